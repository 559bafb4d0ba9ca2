"""Writes what loggers have waiting, so that nobody who tells them of a result waits for a disk."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
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
        self._is_closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, if that has not been done."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="holdfast-files", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Return once the thread is gone; may be called more than once."""
        self._is_closing.set()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while not self._is_closing.wait(self._every_s):
            for one in self._loggers:
                try:
                    one.flush(durable=False)
                except Exception:  # others have something to write as well, and it may pass
                    log.exception("%s could not write", type(one).__name__)
