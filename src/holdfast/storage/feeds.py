"""Files on their way to a store, with the errors of the file kept apart from those of the store."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.storage.base import Source


class Feed:
    """A source as vendors want it: buffers that stay valid, each time from the start.

    `error` is what the source raised, if that is why a write broke off. Vendors pass it on, but
    then a file that cannot be read looks just like an object that is missing.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[bytes]:
        self.error = None
        try:
            for chunk in self._source.chunks():
                yield bytes(chunk)
        except Exception as error:
            self.error = error
            raise
