"""Objects that are known by what they were made with, so that they can be made again.

A scheduler or a searcher is not plain data. But it was made by a call, and the call is.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self


class Made:
    """Remembers what its constructor was given, apart from what it remembers otherwise.

    Attributes:
        may_be_recorded: Whether one may be made again from a record, which anybody may have written
            who can write to the storage: not if what it is made with is code.
        made_needs_files: Whether the constructor reads files; then none is made for a mere look.
    """

    __slots__ = ("made_with",)

    may_be_recorded: ClassVar[bool] = True
    made_needs_files: ClassVar[bool] = False
    made_with: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        made = super().__new__(cls)
        made.made_with = args, kwargs
        return made
