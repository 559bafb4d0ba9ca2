"""Writes what loggers have waiting, so that nobody who tells them of a result waits for a disk."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

log = logging.getLogger(__name__)

BATCH_S = 0.5


class Waiting(Protocol):
    """Somebody who has something to write."""

    def flush(self, *, durable: bool = True) -> bool:
        """Write it, from any thread."""
        ...


class Writer:
    """A thread that has loggers write every half a second, from the first call on until closed.

    What it has not written is written by `flush`, as if there were no such thread.
    """

    def __init__(self, loggers: Sequence[Waiting], every_s: float = BATCH_S) -> None:
        self._loggers, self._every_s = loggers, every_s
        self._wanted = threading.Event()
        self._is_closing = False
        self._asked = self._settled = 0  # how often all was to be made durable, and was
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, if that has not been done."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="holdfast-files", daemon=True)
            self._thread.start()

    def settle(self) -> Callable[[], bool]:
        """Have all that waits now made durable; return what says whether it is."""
        if self._thread is None:
            is_done = self._flush(durable=True)
            return lambda: is_done
        self._asked += 1
        mine = self._asked
        self._wanted.set()
        return lambda: self._settled >= mine

    def close(self) -> None:
        """Return once the thread is gone; may be called more than once."""
        self._is_closing = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while True:
            self._wanted.wait(self._every_s)
            self._wanted.clear()
            if self._is_closing:
                return
            asked = self._asked
            self._flush(durable=False)  # first, so that one sync is for all of them
            if asked > self._settled and self._flush(durable=True):
                self._settled = asked

    def _flush(self, *, durable: bool) -> bool:
        is_done = True
        for one in self._loggers:
            try:
                is_done &= one.flush(durable=durable)
            except Exception:  # others have something to write as well, and it may pass
                is_done = False
                log.exception("%s could not write", type(one).__name__)
        return is_done
