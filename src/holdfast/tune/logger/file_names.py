"""How the files of trials are called: all alike, or after a name and a number."""

from __future__ import annotations

import re


class FileNames:
    """Keys of the files of one kind.

    Args:
        name: What they are called, unless there is `numbered`.
        numbered: What they are called, with braces where the number is.
    """

    def __init__(self, name: str, numbered: str | None) -> None:
        self._name, self._numbered = name, numbered
        self.are_numbered = numbered is not None
        before, after = (re.escape(part) for part in re.split(r"\{.*\}", numbered or "{}"))
        self._pattern = re.compile(rf"{before}(\d+){after}")

    def first(self, folder: str) -> str:
        """Return the key of the first file there is in a folder."""
        return f"{folder}/{self._name}" if self._numbered is None else self.at(folder, 1)

    def at(self, folder: str, number: int) -> str:
        """Return the key that has a number."""
        assert self._numbered is not None
        return f"{folder}/{self._numbered.format(number)}"

    def number_in(self, key: str) -> int:
        """Return the number in a key, 0 if it is of another kind."""
        found = self._pattern.fullmatch(key.rpartition("/")[2])
        return int(found[1]) if found else 0
