"""Writes what loggers have waiting, so that nobody who tells them of a result waits for a disk."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Protocol

log = logging.getLogger(__name__)

BATCH_S = 0.5
ROUNDS = 2  # of making all durable: in the second there is only what came during the first


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
        self._rounds = 0  # that are left
        self._is_settling = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, if that has not been done."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="holdfast-files", daemon=True)
            self._thread.start()

    def settle(self) -> bool:
        """Have nearly everything made durable; return whether it is, since this was last asked.

        Whoever flushes then has little to wait for.
        """
        if self._thread is None:
            return True
        if not self._is_settling:
            self._is_settling, self._rounds = True, ROUNDS
            self._wanted.set()
        if self._rounds:
            return False
        self._is_settling = False
        return True

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
            self._flush(durable=False)
            while self._rounds and not self._is_closing:
                self._flush(durable=True)
                self._rounds -= 1

    def _flush(self, *, durable: bool) -> None:
        for one in self._loggers:
            try:
                one.flush(durable=durable)
            except Exception:  # others have something to write as well, and it may pass
                log.exception("%s could not write", type(one).__name__)
