"""A list that is made when somebody looks at it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

T = TypeVar("T", covariant=True)


class Lazily(Sequence[T]):
    """What `make` returns, which is called once, or never."""

    def __init__(self, make: Callable[[], Sequence[T]]) -> None:
        self._make: Callable[[], Sequence[T]] | None = make
        self._made: Sequence[T] = ()

    def _all(self) -> Sequence[T]:
        if self._make is not None:
            self._made, self._make = self._make(), None
        return self._made

    def __len__(self) -> int:
        return len(self._all())

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[T]: ...
    def __getitem__(self, place: int | slice) -> T | Sequence[T]:
        return self._all()[place]

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self._all()),)
