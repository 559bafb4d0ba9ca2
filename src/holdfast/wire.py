"""What a driver and its workers say to each other, and how it travels.

A message is a msgpack frame with its length before it, on a stream socket. Both ends are of one
release, made by one driver, so there is no version in it. Pickled functions and values may be
inside; they cross the socket and never rest on a disk.
"""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import struct
import threading
import time
from collections import deque
from typing import Any, TypeAlias

import msgspec

_LENGTH = struct.Struct("!I")
_READ_BYTES = 1 << 16


# ---------------------------------------------------------------------- from a worker


class Began(msgspec.Struct, tag=True, frozen=True):
    """All is prepared: the training function is called now."""


class Reported(msgspec.Struct, tag=True, frozen=True):
    """The `index`-th report of this rank; `saves` says that a checkpoint part follows.

    `validation` says that the checkpoint is to be validated, and how, as far as it is not usual.
    """

    index: int
    metrics: dict[str, Any]
    saves: bool = False
    directory: str | None = None
    validation: dict[str, Any] | None = None


class Delivered(msgspec.Struct, tag=True, frozen=True):
    """The part of a checkpoint that belongs to report `index` is at rest."""

    index: int
    files: list[tuple[str, int, str]]
    folders: list[str]


class Placed(msgspec.Struct, tag=True, frozen=True):
    """The user's own code has put this rank's part into the folder `directory` of the run."""

    index: int
    directory: str


class NotDelivered(msgspec.Struct, tag=True, frozen=True):
    """The part of a checkpoint could not be stored; the error is raised in user code."""

    index: int
    error: str


class Resent(msgspec.Struct, tag=True, frozen=True):
    """The files that were asked for again are at rest."""

    index: int


class Meeting(msgspec.Struct, tag=True, frozen=True):
    """This rank waits for all others at meeting `index`, and may bring data for all."""

    index: int
    data: bytes | None = None


class Asked(msgspec.Struct, tag=True, frozen=True):
    """This rank wants a list of the checkpoints there are, its own `reports` included.

    `validated` says to wait until none of them is waiting to be validated. Threads may ask at the
    same time; `instead_of` is the question that is not to be answered any more, 0 for none.
    """

    index: int
    reports: int
    validated: bool
    instead_of: int = 0


class Warned(msgspec.Struct, tag=True, frozen=True):
    """Somebody has told this process by a signal that it will be ended."""

    signal: int


class SawNotice(msgspec.Struct, tag=True, frozen=True):
    """User code has been told that machines will be taken away."""


class LastWords(msgspec.Struct, tag=True, frozen=True):
    """The training function is done: it returned `value`, or raised it; pickled, if it can be."""

    value: bytes | None = None
    error: str | None = None
    trace: str = ""


class JobDone(msgspec.Struct, tag=True, frozen=True):
    """The function has returned `value`, pickled, and the process waits for another job."""

    value: bytes | None = None


# ---------------------------------------------------------------------- to a worker


class Assigned(msgspec.Struct, tag=True, frozen=True):
    """What to run, and everything there is to know about it: the first message, or after a job."""

    job: bytes


class Slotted(msgspec.Struct, tag=True, frozen=True):
    """Where the checkpoint of report `index` goes."""

    index: int
    number: int
    directory: str
    epoch: int
    attempt: int


class Resend(msgspec.Struct, tag=True, frozen=True):
    """Another rank has overwritten these files of report `index`; yours are the ones that count."""

    index: int
    paths: list[str]


class Committed(msgspec.Struct, tag=True, frozen=True):
    """The checkpoint of report `index` is durable."""

    index: int
    directory: str


class Refused(msgspec.Struct, tag=True, frozen=True):
    """The checkpoint of report `index` will not be: why."""

    index: int
    error: str


class Judged(msgspec.Struct, tag=True, frozen=True):
    """What a trial is to do after report `index`: CONTINUE, PAUSE or STOP, after a save if so."""

    index: int
    action: str
    save: bool = False


class Met(msgspec.Struct, tag=True, frozen=True):
    """All ranks have come to meeting `index`; or they have not, for the reason in `error`.

    `data` is what `rank` brought, the lowest that still runs.
    """

    index: int
    rank: int = 0
    data: bytes | None = None
    error: str | None = None


class Listed(msgspec.Struct, tag=True, frozen=True):
    """The checkpoints there are, worst first: folder, metrics, and how far validation is."""

    index: int
    checkpoints: list[tuple[str, dict[str, Any], str]]


class Noticed(msgspec.Struct, tag=True, frozen=True):
    """Some nodes will go away by `deadline`, seconds since 1970; None if nobody knows when."""

    deadline: float | None
    ranks: dict[str, list[int]]


class SaveWanted(msgspec.Struct, tag=True, frozen=True):
    """The group will be restarted for a reason of ours: a checkpoint would be welcome now."""


Message: TypeAlias = (
    Began
    | Reported
    | Delivered
    | Placed
    | NotDelivered
    | Resent
    | Meeting
    | Asked
    | Warned
    | SawNotice
    | LastWords
    | JobDone
    | Assigned
    | Slotted
    | Resend
    | Committed
    | Refused
    | Judged
    | Met
    | Listed
    | Noticed
    | SaveWanted
)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Message).decode


class Channel:
    """One end of a conversation. Any thread may send; one thread receives.

    What the socket does not take at once is kept, in order, and goes out with the next send or
    with `flush`.

    Args:
        unsent_bytes_max: How much may be kept so. Whoever sends more than that waits until the
            peer has taken enough, or is gone. None to keep any amount: then sending never blocks
            on a peer that does not read.
    """

    UNSENT_BYTES_MAX = 32 << 20
    FULL_S = 0.001  # a socket that was full is not tried again for so long: a try costs more
    FRAMES_MAX = 256  # that are handed to the socket at once

    def __init__(
        self, connection: socket.socket, *, unsent_bytes_max: int | None = UNSENT_BYTES_MAX
    ) -> None:
        connection.settimeout(0)
        self._socket = connection
        self._lock = threading.Lock()
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._unsent_bytes_max = unsent_bytes_max
        self._full_until = 0.0
        self._received = bytearray()
        self.is_closed = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Message) -> None:
        """Pass on a message; a peer that is gone is noticed by the one who receives."""
        body = _encode(message)
        frame = memoryview(_LENGTH.pack(len(body)) + body)
        with self._lock:
            if self.is_closed:
                return
            self._unsent.append(frame)
            self._unsent_bytes += len(frame)
            if len(self._unsent) == 1 or time.monotonic() >= self._full_until:
                self._send_some()
        most = self._unsent_bytes_max
        while most is not None and self._unsent_bytes > most and not self.is_closed:
            self._poll(select.POLLOUT, 1.0)  # not for longer: another thread may close it
            with self._lock:
                self._send_some()

    @property
    def has_unsent(self) -> bool:
        """Whether something waits for the socket to take it."""
        return bool(self._unsent)

    def flush(self, timeout_s: float | None = 0.0) -> bool:
        """Return whether all that was sent has left this process, waiting a while for it.

        None waits until the peer has taken it, or is gone.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            with self._lock:
                self._send_some()
                if not self._unsent:
                    return True
            left_s = 1.0 if deadline is None else deadline - time.monotonic()
            if self.is_closed or left_s <= 0:
                return False
            self._poll(select.POLLOUT, left_s)

    def _send_some(self) -> None:
        unsent = self._unsent
        while unsent and not self.is_closed:
            try:
                if len(unsent) == 1:
                    sent = self._socket.send(unsent[0])
                else:
                    sent = self._socket.sendmsg(itertools.islice(unsent, self.FRAMES_MAX))
            except BlockingIOError:
                self._full_until = time.monotonic() + self.FULL_S
                return
            except OSError:
                self.is_closed = True
                return
            self._unsent_bytes -= sent
            while sent and sent >= len(unsent[0]):
                sent -= len(unsent.popleft())
            if sent:
                unsent[0] = unsent[0][sent:]

    def _poll(self, event: int, timeout_s: float | None) -> bool:
        """Return whether the socket is ready, or at its end, waiting a while for it.

        Not `select`: that takes no file whose number is over 1023.
        """
        poll = select.poll()
        try:
            poll.register(self._socket, event)
        except ValueError:  # it is closed
            return True
        return bool(poll.poll(None if timeout_s is None else timeout_s * 1000))

    def receive(self) -> list[Message]:
        """Return messages that have come in, [] only if all have; `is_closed` if no more can."""
        try:
            while chunk := self._socket.recv(_READ_BYTES):
                self._received += chunk
                if len(chunk) < _READ_BYTES and (found := self._messages()):
                    return found  # most likely it was all; who wants to be sure asks again
            self.is_closed = True
        except BlockingIOError:
            pass  # that is all for now
        except OSError:
            self.is_closed = True
        return self._messages()

    def wait(self, timeout_s: float | None = None) -> list[Message]:
        """Return the next messages as soon as there are any.

        [] once the peer is gone, or if none came in time.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.is_closed:
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._poll(select.POLLIN, left_s):
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

    def hang_up(self) -> None:
        """End the conversation for both; whoever waits for a message gets none."""
        with contextlib.suppress(OSError):  # the other end was quicker
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.is_closed = True
        self._socket.close()
