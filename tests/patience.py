"""How long a test waits for what must happen: as good as for ever, and without getting in its way.

The limit only keeps a test from hanging. No test may fail because the machine is busy, so none is
written that would notice whether something took a millisecond or a minute.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable

PATIENCE_S = 120.0
PAUSE_S = 0.003


def pause() -> None:
    """Leave the processor to whoever is waited for, before the next look."""
    select.select([], [], [], PAUSE_S)


def wait_until(is_so: Callable[[], object], what: str = "it did not come true") -> None:
    """Return once something holds; fail with `what` if that takes longer than anything takes."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, what
        pause()
