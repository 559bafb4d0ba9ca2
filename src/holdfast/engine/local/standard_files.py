"""Files 0, 1 and 2 of a driver, which services and schedulers may start without them."""

from __future__ import annotations

import os
import sys


def complete() -> None:
    """Give this process an empty input, and outputs that lead nowhere, where it has none.

    Otherwise the next file that is opened, a journal perhaps, would have such a number, and get
    whatever some library prints.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # It gets the lowest number that is free; and is for the processes we start as well.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
