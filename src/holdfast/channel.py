"""A socket between a driver and a worker that carries whole messages, in order.

A message is a msgpack frame with its length before it.
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

import msgspec

from holdfast.errors import ConfigError
from holdfast.wire import Assigned, JobDone, LastWords, Meeting, Message, Met

_LENGTH = struct.Struct("!I")
_READ_BYTES = 1 << 16
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Message).decode
_BYTES = (bytes, bytearray, memoryview)
_USER_DATA: dict[type[Message], str] = {  # what may make a message too large
    Assigned: "the function with its config and everything it refers to",
    Meeting: "the data that one rank shares with the others",
    Met: "the data that one rank shares with the others",
    LastWords: "what the function returned or raised",
    JobDone: "what the function returned",
}


class Channel:
    """One end of the connection. Any thread may send; one thread receives.

    What the socket does not accept at once is queued and goes out with the next send or `flush`.

    Args:
        unsent_bytes_max: How much may be queued. Beyond that, `send` blocks until the peer has
            read enough or is gone. None for no limit: `send` never blocks on a slow peer.
    """

    UNSENT_BYTES_MAX = 32 << 20
    FULL_S = 0.001  # pause before a full socket is tried again: trying costs more than waiting
    FRAMES_MAX = 256  # per call of sendmsg
    MESSAGE_BYTES_MAX = (1 << 32) - 1  # the limit of msgpack and of the length before a frame

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
        """Send a message; that the peer is gone shows only in `receive` and `wait`.

        Raises `ConfigError` if the message is too large; nothing of it is sent then.
        """
        body = self._encoded(message)
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

    def _encoded(self, message: Message) -> bytes:
        try:
            body = _encode(message)
        except msgspec.EncodeError:
            values = (getattr(message, name) for name in message.__struct_fields__)
            sizes = [len(value) for value in values if isinstance(value, _BYTES)]
            size = max(sizes, default=0)
            if size <= self.MESSAGE_BYTES_MAX:
                raise
        else:
            if len(body) <= self.MESSAGE_BYTES_MAX:
                return body
            size = len(body)
        raise ConfigError(
            f"{_USER_DATA.get(type(message), 'a message')} takes {size / 2**30:.1f} GiB, and at"
            f" most {self.MESSAGE_BYTES_MAX / 2**30:.1f} GiB can be sent to another process",
            hint="give large values to holdfast.put(…) and pass the reference, or read and write"
            " files in the function",
        )

    @property
    def has_unsent(self) -> bool:
        """Whether anything is queued."""
        return bool(self._unsent)

    def flush(self, timeout_s: float | None = 0.0) -> bool:
        """Wait until the queue is empty; return whether it is.

        With None, wait until the peer has taken everything, or is gone.
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
        """Wait until the socket is ready or closed; return whether it is.

        Not with `select`, which accepts no file descriptor above 1023.
        """
        poll = select.poll()
        try:
            poll.register(self._socket, event)
        except ValueError:  # it is closed
            return True
        return bool(poll.poll(None if timeout_s is None else timeout_s * 1000))

    def receive(self) -> list[Message]:
        """Return messages that have arrived; [] once all have been returned.

        Sets `is_closed` when no more can arrive.
        """
        try:
            while chunk := self._socket.recv(_READ_BYTES):
                self._received += chunk
                if len(chunk) < _READ_BYTES and (messages := self._messages()):
                    return messages  # most likely all; the caller asks again to be sure
            self.is_closed = True
        except BlockingIOError:
            pass  # that is all for now
        except OSError:
            self.is_closed = True
        return self._messages()

    def wait(self, timeout_s: float | None = None) -> list[Message]:
        """Return the next messages as soon as they arrive; [] on a timeout or a closed socket."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.is_closed:
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._poll(select.POLLIN, left_s):
                return []
            if messages := self.receive():
                return messages
        return []

    def _messages(self) -> list[Message]:
        messages: list[Message] = []
        start = 0
        while len(self._received) - start >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._received, start)
            end = start + _LENGTH.size + size
            if len(self._received) < end:
                break
            messages.append(_decode(memoryview(self._received)[start + _LENGTH.size : end]))
            start = end
        if start:
            del self._received[:start]
        return messages

    def hang_up(self) -> None:
        """Shut the connection down for both ends; a pending `wait` returns []."""
        with contextlib.suppress(OSError):  # the peer was faster
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.is_closed = True
        self._socket.close()
