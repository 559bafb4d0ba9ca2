"""Opens the standard files 0, 1 and 2 in a driver that was started without them."""

from __future__ import annotations

import os
import sys


def complete() -> None:
    """Open the null device in place of each standard file that is missing, as under some services.

    Otherwise the next file to be opened, perhaps a journal, would get such a number, and with it
    whatever some library prints.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # It gets the lowest free number, and child processes inherit it.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
