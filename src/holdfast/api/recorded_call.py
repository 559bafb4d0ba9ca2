"""Objects that remember their constructor's arguments, so that a record can rebuild them.

A scheduler or a searcher is not plain data, but the call that made it is.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self


class Made:
    """Base class that keeps the arguments its constructor was called with.

    Attributes:
        made_with: Those arguments.
        may_be_recorded: Whether a record may rebuild it. Anyone who can write to the storage can
            write a record, so a class whose arguments are code says False.
        made_needs_files: Whether the constructor reads files; then a read-only view builds none.
    """

    __slots__ = ("made_with",)

    may_be_recorded: ClassVar[bool] = True
    made_needs_files: ClassVar[bool] = False
    made_with: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        made = super().__new__(cls)
        made.made_with = args, kwargs
        return made
