"""Objects on their way here: downloads that can go on after a connection broke."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.errors import Conflict, StoreError
from holdfast.storage.bucket.address import Bucket
from holdfast.storage.bucket.errors import explained

if TYPE_CHECKING:
    from obstore import BytesStream, GetResult

Opener = Callable[[int, str | None], "GetResult"]


class ObjectStream:
    """An object read in order; `resumed` goes on where a broken connection left it.

    `open_at` begins to read at an offset, if the object still has the tag it is given.
    """

    def __init__(
        self, bucket: Bucket, what: str, key: str, chunk_bytes: int, open_at: Opener
    ) -> None:
        self._bucket, self._what, self._key = bucket, what, key
        self._chunk_bytes, self._open_at = chunk_bytes, open_at
        self._offset = 0
        self._tag: str | None = None
        self._chunks: BytesStream | None = None

    def __iter__(self) -> ObjectStream:
        return self

    def __next__(self) -> memoryview:
        chunks = self._chunks or self._open()
        with explained(self._bucket, "read", self._what, self._key):
            chunk = memoryview(next(chunks))
        self._offset += len(chunk)
        return chunk

    def resumed(self) -> ObjectStream:
        """Return the rest of the same object; reading it fails if that has been replaced."""
        rest = ObjectStream(self._bucket, self._what, self._key, self._chunk_bytes, self._open_at)
        rest._offset, rest._tag = self._offset, self._tag
        return rest

    def _open(self) -> BytesStream:
        try:
            found = self._open_at(self._offset, self._tag)
        except Conflict:
            raise StoreError(
                f"{self._what} was replaced while it was read", key=self._key, hint="read it again"
            ) from None
        self._tag = found.meta["e_tag"]
        self._chunks = found.stream(min_chunk_size=self._chunk_bytes)
        return self._chunks
