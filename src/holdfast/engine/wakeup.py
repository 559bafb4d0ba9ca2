"""Wakes a loop that waits for files to become readable; any thread or signal handler may."""

from __future__ import annotations

import contextlib
import socket


class Wakeup:
    """A file that becomes readable when it is poked, until it is drained."""

    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()
        self._read.settimeout(0)
        self._write.settimeout(0)

    def fileno(self) -> int:
        return self._read.fileno()

    def poke(self) -> None:
        """Make it readable."""
        with contextlib.suppress(OSError):  # it is full, which wakes as well; or it is closed
            self._write.send(b"!")

    def drain(self) -> None:
        """Have it wait for the next poke."""
        with contextlib.suppress(OSError):  # there is nothing; or it was closed meanwhile
            self._read.recv(4096)

    def close(self) -> None:
        self._read.close()
        self._write.close()
