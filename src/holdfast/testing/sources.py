"""Sources of bytes for testing stores, without files."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.storage.base import Buffer


class Refilled:
    """A source that yields the same buffer again and again, as a file that is read does."""

    def __init__(self, size: int, *, fails_at: int | None = None) -> None:
        self.size, self._fails_at = size, fails_at

    def chunks(self) -> Iterator[Buffer]:
        buffer = bytearray(1 << 20)
        for number in range(-(-self.size // len(buffer))):
            if number == self._fails_at:
                raise LookupError("the source is broken")
            length = min(len(buffer), self.size - number * len(buffer))
            buffer[:length] = bytes([number % 251]) * length
            yield memoryview(buffer)[:length]
            buffer[:] = bytes(len(buffer))  # a store that still uses it reads zeros

    def whole(self) -> bytes:
        return b"".join(bytes(chunk) for chunk in self.chunks())
