"""The events of an engine, and a wait for the next one that any thread can interrupt."""

from __future__ import annotations

import contextlib
import socket
import time
from collections import deque
from collections.abc import Callable

from holdfast.engine.base import EngineEvent


class Wakeup:
    """A file that becomes readable when it is poked, until it is drained."""

    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()
        self._read.settimeout(0)
        self._write.settimeout(0)

    def fileno(self) -> int:
        return self._read.fileno()

    def poke(self) -> None:
        """Make it readable; from any thread or signal handler."""
        with contextlib.suppress(OSError):  # it is full, which wakes as well; or it is closed
            self._write.send(b"!")

    def drain(self) -> None:
        """Make it wait for the next poke."""
        with contextlib.suppress(OSError):  # there is nothing to read, or it was just closed
            self._read.recv(4096)

    def close(self) -> None:
        self._read.close()
        self._write.close()


class EventQueue:
    """The events that an engine has not returned yet: its `next_event`, `wake` and `close`.

    Args:
        listen: Adds new events to `pending`. Returns once there are some, after the given number
            of seconds, or when `wakeup` is readable; it drains that.
    """

    def __init__(self, listen: Callable[[float | None], None]) -> None:
        self._listen = listen
        self.pending: deque[EngineEvent] = deque()
        self.wakeup = Wakeup()
        self._is_woken = False
        self.is_closed = False

    def next(self, timeout_s: float | None) -> EngineEvent | None:
        """Return the next event, None if there was none in time or `wake` was called."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.pending:
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            if self._is_woken or self.is_closed:
                self._is_woken = False
                return None
            self._listen(left_s)
            if left_s == 0.0 and not self.pending:
                return None
        return self.pending.popleft()

    def wake(self) -> None:
        """Make `next` return, now or when it is next called; from any thread or handler."""
        self._is_woken = True
        self.wakeup.poke()

    def close(self) -> None:
        """End every wait, now and later."""
        self.is_closed = True
        self.wakeup.poke()
        self.wakeup.close()
