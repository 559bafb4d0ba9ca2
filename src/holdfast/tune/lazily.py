"""A list that is made when somebody looks at it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

T_co = TypeVar("T_co", covariant=True)


class Lazily(Sequence[T_co]):
    """What `make` returns, which is called once, or never."""

    def __init__(self, make: Callable[[], Sequence[T_co]]) -> None:
        self._make: Callable[[], Sequence[T_co]] | None = make
        self._made: Sequence[T_co] = ()

    def _all(self) -> Sequence[T_co]:
        if self._make is not None:
            self._made, self._make = self._make(), None
        return self._made

    def __len__(self) -> int:
        return len(self._all())

    @overload
    def __getitem__(self, place: int) -> T_co: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[T_co]: ...
    def __getitem__(self, place: int | slice) -> T_co | Sequence[T_co]:
        return self._all()[place]

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self._all()),)
