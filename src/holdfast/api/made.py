"""Objects that are known by what they were made with, so that they can be made again.

A scheduler or a searcher is not plain data. But it was made by a call, and the call is.
"""

from __future__ import annotations

import sys
from typing import Any, Self

from holdfast.api.imports import import_path, imported


class Made:
    """Remembers what its constructor was given, apart from what it remembers otherwise."""

    __slots__ = ("made_with",)

    made_with: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        made = super().__new__(cls)
        made.made_with = args, kwargs
        return made


def class_path(kind: type) -> str | None:
    """Return by what a class is found again: also one of the script that was run."""
    path = import_path(kind)
    main = sys.modules.get("__main__")
    if path is None and main is not None and getattr(main, kind.__qualname__, None) is kind:
        return f"__main__:{kind.__qualname__}"
    return path


def class_at(path: str) -> Any:
    """Return the class that `class_path` named; raise `LookupError` if it is not there."""
    module, _, name = path.partition(":")
    try:
        return imported(path)
    except (ImportError, AttributeError) as error:
        place = "the script that runs now" if module == "__main__" else module
        raise LookupError(f"there is no {name} in {place}") from error
