"""A thread that writes what loggers have buffered, so that no result waits for a disk."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

log = logging.getLogger(__name__)

BATCH_S = 0.5


class Flushable(Protocol):
    """Has buffered data to write."""

    def flush(self, *, durable: bool = True) -> bool:
        """Write it, durably if `durable`; return whether that succeeded. From any thread."""
        ...


class Writer:
    """Flushes loggers every half a second, from `start` until `close`.

    They may still be flushed directly at any time.
    """

    def __init__(self, loggers: Sequence[Flushable], every_s: float = BATCH_S) -> None:
        self._loggers, self._every_s = loggers, every_s
        self._wanted = threading.Event()
        self._is_closing = False
        self._asked = self._settled = 0  # counts of durable flushes: requested, and done
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, if it is not running."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="holdfast-files", daemon=True)
            self._thread.start()

    def settle(self) -> Callable[[], bool]:
        """Request that all that is buffered now becomes durable; return a check whether it is."""
        if self._thread is None:
            is_done = self._flush(durable=True)
            return lambda: is_done
        self._asked += 1
        request = self._asked
        self._wanted.set()
        return lambda: self._settled >= request

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
            self._flush(durable=False)  # first, so that one sync covers all of them
            if asked > self._settled and self._flush(durable=True):
                self._settled = asked

    def _flush(self, *, durable: bool) -> bool:
        is_done = True
        for logger in self._loggers:
            try:
                is_done &= logger.flush(durable=durable)
            except Exception:  # the other loggers must still be flushed
                is_done = False
                log.exception("%s could not write", type(logger).__name__)
        return is_done
