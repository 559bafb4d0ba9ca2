"""Whether a record has the shape that some version of ours writes; one that has not is damage.

A seal says that a record is as somebody wrote it, not that it was one of us: text where a number
belongs, a list for a dictionary, a path that leads out of the run's folder. Members that are not
known are left alone; a later version may have added them.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec

from holdfast.errors import Damaged

T = TypeVar("T")
DEPTH_MAX = 200

Count = Annotated[int, msgspec.Meta(ge=0)]
# A file or folder below a run's: relative, and no way up or out.
Inside = Annotated[
    str,
    msgspec.Meta(
        pattern=r"\A(?!/)(?!(.*/)?\.{1,2}(/|\Z))(?!.*//)[^\x00-\x1f]+(?<!/)\Z", max_length=4096
    ),
]


def fit(data: object, shape: type[T]) -> T:
    """Return `data` as `shape`, a dataclass or typed dictionary; raise `Damaged` if it is not."""
    try:
        return msgspec.convert(data, shape)
    except (msgspec.ValidationError, OverflowError, RecursionError) as error:
        raise Damaged(f"it is another record: {error}") from None


def is_too_deep(value: object) -> bool:
    """Whether data is nested more deeply than any that people make, and than code likes."""
    level = [value]
    for _ in range(DEPTH_MAX):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list | tuple)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return True


def known_format(record: dict[str, Any]) -> int:
    """Return the number of a record's format; raise `Damaged` if it is none."""
    found = record.get("format", 0)
    if type(found) is not int:
        raise Damaged(f"it is another record: its format is {found!r:.40}")
    return found
