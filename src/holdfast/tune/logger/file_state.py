"""What is known of the file of one trial, and what is to be written to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from holdfast.tune.logger.formats import Record, last_step

P = TypeVar("P")


@dataclass(slots=True)
class FileState(Generic[P]):
    """What is known of one trial's file.

    Attributes:
        is_loaded: Whether the rest says what is in the file; if not, it is read before a write.
        is_guess: Whether it says so only because the trial is new, and nothing was written yet.
        is_torn: Whether our own last write may have been cut short.
        cut: The last iteration that counts of what is in the file, None for all.
        waiting: Records to be added after that.
        waiting_bytes: About how many bytes they are.
        is_over: Whether the trial has ended, so that this can be forgotten.
    """

    key: str = ""
    is_loaded: bool = False
    is_guess: bool = False
    is_torn: bool = False
    size: int = 0
    head: Any = None
    last: int | None = None
    cut: int | None = None
    waiting: list[Record[P]] = field(default_factory=list)
    waiting_bytes: int = 0
    is_over: bool = False

    def needs_writing(self) -> bool:
        """Whether there is anything to do for it."""
        return bool(self.waiting) or self.cut is not None or self.is_over

    def is_finished(self) -> bool:
        """Whether it can be forgotten."""
        return self.is_over and not self.waiting and self.cut is None

    def is_now(self, data: bytes, head: Any, last: int | None) -> None:
        """Know that exactly this is in the file."""
        self.size, self.head, self.last = len(data), head, last
        self.is_loaded, self.is_guess, self.is_torn = True, False, False

    def is_unknown(self) -> None:
        """Know that somebody else may have written it."""
        self.is_loaded = self.is_guess = self.is_torn = False


def reaches(records: list[Record[P]], step: int) -> bool:
    """Whether records go to an iteration, or further."""
    last = records[-1].step if records else None
    if last is None:
        last = last_step(records)
    return last is not None and last >= step


def first_step(records: Iterable[Record[P]]) -> int | None:
    """Return the earliest iteration among the records."""
    return next((one.step for one in records if one.step is not None), None)


def earlier(one: int | None, other: int | None) -> int | None:
    """Return the lower of two, None only if both are."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def later(one: int | None, other: int | None) -> int | None:
    """Return the higher of two, None only if both are."""
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)
