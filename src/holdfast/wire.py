"""What a driver and its workers say to each other, and how it travels.

A message is a msgpack frame with its length before it, on a stream socket. Both ends are of one
release, made by one driver, so there is no version in it. Pickled functions and values may be
inside; they cross the socket and never rest on a disk.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
from collections import deque
from typing import Any, TypeAlias

import msgspec

_LENGTH = struct.Struct("!I")
_READ_BYTES = 1 << 16


# ---------------------------------------------------------------------- from a worker


class Reported(msgspec.Struct, tag=True, frozen=True):
    """The `index`-th report of this rank; `saves` says that a checkpoint part follows."""

    index: int
    metrics: dict[str, Any]
    saves: bool = False
    directory: str | None = None


class Delivered(msgspec.Struct, tag=True, frozen=True):
    """The part of a checkpoint that belongs to report `index` is at rest."""

    index: int
    files: list[tuple[str, int, str]]
    folders: list[str]


class NotDelivered(msgspec.Struct, tag=True, frozen=True):
    """The part of a checkpoint could not be stored; the error is raised in user code."""

    index: int
    error: str


class Meeting(msgspec.Struct, tag=True, frozen=True):
    """This rank waits for all others at meeting `index`; rank 0 may bring data for all."""

    index: int
    data: bytes | None = None


class LastWords(msgspec.Struct, tag=True, frozen=True):
    """The training function is done: it returned `value`, or raised it; pickled, if it can be."""

    value: bytes | None = None
    error: str | None = None
    trace: str = ""


# ---------------------------------------------------------------------- to a worker


class Assigned(msgspec.Struct, tag=True, frozen=True):
    """The first message: what to run, and everything there is to know about it."""

    job: bytes


class Slotted(msgspec.Struct, tag=True, frozen=True):
    """Where the checkpoint of report `index` goes."""

    index: int
    number: int
    directory: str
    epoch: int
    attempt: int


class Committed(msgspec.Struct, tag=True, frozen=True):
    """The checkpoint of report `index` is durable."""

    index: int
    directory: str


class Refused(msgspec.Struct, tag=True, frozen=True):
    """The checkpoint of report `index` will not be: why."""

    index: int
    error: str


class Met(msgspec.Struct, tag=True, frozen=True):
    """All ranks have come to meeting `index`."""

    index: int
    data: bytes | None = None


class Noticed(msgspec.Struct, tag=True, frozen=True):
    """Some nodes will go away by `deadline`, seconds since 1970; None if nobody knows when."""

    deadline: float | None
    ranks: dict[str, list[int]]


Message: TypeAlias = (
    Reported
    | Delivered
    | NotDelivered
    | Meeting
    | LastWords
    | Assigned
    | Slotted
    | Committed
    | Refused
    | Met
    | Noticed
)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Message).decode


class Channel:
    """One end of a conversation. Any thread may send; one thread receives.

    Sending never blocks on a peer that does not read: what the socket does not take at once is
    kept, in order, and goes out with the next send or with `flush`.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(0)
        self._socket = connection
        self._lock = threading.Lock()
        self._unsent: deque[memoryview] = deque()
        self._received = bytearray()
        self.is_closed = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Message) -> None:
        """Pass on a message; a peer that is gone is noticed by the one who receives."""
        body = _encode(message)
        with self._lock:
            self._unsent.append(memoryview(_LENGTH.pack(len(body)) + body))
            self._send_some()

    @property
    def has_unsent(self) -> bool:
        """Whether something waits for the socket to take it."""
        return bool(self._unsent)

    def flush(self, timeout_s: float | None = 0.0) -> bool:
        """Return whether all that was sent has left this process, waiting a while for it.

        None waits until the peer has taken it, or is gone.
        """
        while True:
            with self._lock:
                self._send_some()
                if not self._unsent:
                    return True
            if not select.select([], [self._socket], [], timeout_s)[1]:
                return False

    def _send_some(self) -> None:
        while self._unsent and not self.is_closed:
            try:
                sent = self._socket.send(self._unsent[0])
            except BlockingIOError:
                return
            except OSError:
                self.is_closed = True
                self._unsent.clear()
                return
            if sent == len(self._unsent[0]):
                self._unsent.popleft()
            else:
                self._unsent[0] = self._unsent[0][sent:]

    def receive(self) -> list[Message]:
        """Return the messages that have come in; `is_closed` tells whether more can."""
        try:
            while chunk := self._socket.recv(_READ_BYTES):
                self._received += chunk
            self.is_closed = True
        except BlockingIOError:
            pass  # that is all for now
        except OSError:
            self.is_closed = True
        return self._messages()

    def wait(self, timeout_s: float | None = None) -> list[Message]:
        """Return the next messages as soon as there are any, [] once the peer is gone."""
        while not self.is_closed:
            if not select.select([self._socket], [], [], timeout_s)[0]:
                return []
            if messages := self.receive():
                return messages
        return []

    def _messages(self) -> list[Message]:
        found: list[Message] = []
        start = 0
        while len(self._received) - start >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._received, start)
            end = start + _LENGTH.size + size
            if len(self._received) < end:
                break
            found.append(_decode(memoryview(self._received)[start + _LENGTH.size : end]))
            start = end
        if start:
            del self._received[:start]
        return found

    def close(self) -> None:
        self.is_closed = True
        self._socket.close()
