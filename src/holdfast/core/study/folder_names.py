"""Names of trial folders that a user's function has chosen, so that none is given out twice.

Other folders have the id of their trial in their name and need not be remembered. Of a name only
its digest is kept: less than a megabyte for a hundred thousand trials, in memory and in a state. If
two digests collide, a trial gets another name than it would have had.
"""

from __future__ import annotations

import base64
import hashlib
import sys
import unicodedata
from array import array
from bisect import bisect_left

_DIGEST_BYTES = 8


class FolderNames:
    """The chosen folders of all trials of a study, archived ones included.

    Names that differ in case, or in how an accented letter is written, are the same: some
    filesystems take them for one.
    """

    def __init__(self, data: str = "") -> None:
        self._digests = array("Q", base64.b64decode(data))
        if sys.byteorder == "big":
            self._digests.byteswap()

    def add(self, folder: str) -> None:
        """Remember that a folder was given out."""
        digest = _digest(folder)
        place = bisect_left(self._digests, digest)
        if self._digests[place : place + 1] != array("Q", [digest]):
            self._digests.insert(place, digest)

    def __contains__(self, folder: str) -> bool:
        digest = _digest(folder)
        place = bisect_left(self._digests, digest)
        return place < len(self._digests) and self._digests[place] == digest

    def __len__(self) -> int:
        return len(self._digests)

    def to_data(self) -> str:
        """Return all that is remembered, as text."""
        digests = array("Q", self._digests)
        if sys.byteorder == "big":
            digests.byteswap()
        return base64.b64encode(digests.tobytes()).decode()


def _digest(folder: str) -> int:
    alike = unicodedata.normalize("NFC", unicodedata.normalize("NFC", folder).casefold())
    digest = hashlib.blake2b(alike.encode(errors="surrogatepass"), digest_size=_DIGEST_BYTES)
    return int.from_bytes(digest.digest(), "little")
