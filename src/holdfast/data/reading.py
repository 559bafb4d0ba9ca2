"""Loops over rows and batches, which `Dataset` and `DataIterator` have in common."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, Self, TypeVar

from holdfast.data.blocks import CHUNK_ROWS, Block, Row, names_of, regrouped, size_of
from holdfast.data.checks import whole
from holdfast.data.conversion import assembled, converted, form_named, rows_of
from holdfast.data.plan import Plan
from holdfast.data.tensors import TensorMaker

T = TypeVar("T")


@dataclass(frozen=True)
class Buffer:
    """A local shuffle as a user requests it: over how many of a rank's rows, with which seed."""

    rows: int
    seed: int | None


@dataclass(frozen=True)
class Schema:
    """Names and types of columns; the types as numpy writes them."""

    names: list[str]
    types: list[str]


class Reading:
    """One pass over the rows, from the first `next` of a loop to its end."""

    def __init__(self, blocks: Iterator[Block]) -> None:
        self.blocks = blocks

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.finish()
        elif kind is GeneratorExit:
            self.leave()
        else:
            self.fail()

    def hand_out(self, rows: int, asked: int) -> None:
        """Count `rows` of `asked` rows as consumed; called before the user gets them."""

    def finish(self) -> None:
        """Note that all rows were read."""

    def leave(self) -> None:
        """Note that the loop was left before its end: by break, an error, or garbage collection."""

    def fail(self) -> None:
        """Note that the next batch could not be made."""


class Passes(Generic[T]):
    """An iterable whose every loop is a new pass."""

    def __init__(self, begin: Callable[[], Iterator[T]]) -> None:
        self._begin = begin

    def __iter__(self) -> Iterator[T]:
        return self._begin()


class Reader(ABC):
    """Rows that can be looped over.

    A loop owns what it gets, and may write to it. Two arguments of Ray's methods have no effect and
    are accepted so that scripts run: `prefetch_batches` and `pin_memory`.
    """

    device: Any = None
    """The default device of `iter_torch_batches`; None is the CPU."""

    @abstractmethod
    def _start(self, buffer: Buffer | None) -> Reading:
        """Begin a pass."""

    @abstractmethod
    def _sample(self) -> Plan:
        """Return the plan from whose first row the columns are known."""

    def iter_rows(self, *, prefetch_blocks: int = 0) -> Iterable[Row]:
        """Return the rows, as dicts, to loop over."""
        return Passes(self._rows)

    def iter_batches(
        self,
        *,
        prefetch_batches: int = 1,
        batch_size: int | None = 256,
        batch_format: str | None = "default",
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
    ) -> Iterable[Any]:
        """Return batches to loop over.

        Args:
            prefetch_batches: Has no effect here.
            batch_size: Rows of a batch; the last may have fewer. None for a default.
            batch_format: "numpy" or "default" for a dict of arrays, "pandas" or "pyarrow".
            drop_last: Whether to leave out a last batch that has fewer rows.
            local_shuffle_buffer_size: Shuffle the rows, this many of a rank's at a time.
            local_shuffle_seed: The seed of that shuffle, if there is one rank. Several ranks must
                agree on the order, so they use the seed of the dataset's shuffle.
        """
        form = form_named(batch_format)
        return self._passes(
            lambda pieces: assembled(pieces, form),
            batch_size,
            _buffer(local_shuffle_buffer_size, local_shuffle_seed),
            drop_last=drop_last,
        )

    def iter_torch_batches(
        self,
        *,
        prefetch_batches: int = 1,
        batch_size: int | None = 256,
        dtypes: Any = None,
        device: Any = None,
        collate_fn: Callable[[dict[str, Any]], Any] | None = None,
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
        pin_memory: bool = False,
    ) -> Iterable[Any]:
        """Return batches of torch tensors to loop over, each a dict by column.

        Args:
            prefetch_batches: Has no effect here.
            batch_size: As in `iter_batches`.
            dtypes: A torch dtype for all columns, or a dict of dtypes by column.
            device: The device of the tensors; None or "auto" is the worker's, if it has one.
            collate_fn: Makes a batch from a dict of numpy arrays; excludes `dtypes`.
            drop_last: As in `iter_batches`.
            local_shuffle_buffer_size: As in `iter_batches`.
            local_shuffle_seed: As in `iter_batches`.
            pin_memory: Has no effect here.
        """
        place = self.device if device is None or device == "auto" else device
        make = TensorMaker(dtypes, place, collate_fn)
        return self._passes(
            lambda pieces: make(assembled(pieces, "numpy")),
            batch_size,
            _buffer(local_shuffle_buffer_size, local_shuffle_seed),
            drop_last=drop_last,
        )

    def schema(self) -> Schema | None:
        """Return names and types of the columns, from the first row; None if there is none."""
        first = self._first_row()
        if first is None:
            return None
        columns = converted(first, "numpy")
        return Schema(list(columns), [str(array.dtype) for array in columns.values()])

    def columns(self) -> list[str] | None:
        """Return the names of the columns; None if there is no row."""
        first = self._first_row()
        return None if first is None else names_of(first)

    def __iter__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be looped over itself: use iter_rows() for rows,"
            " iter_batches(batch_size=…) or iter_torch_batches(batch_size=…) for batches"
        )

    def _first_row(self) -> Block | None:
        blocks = self._sample().read(range(1), 0)
        return next((block for block in blocks if size_of(block)), None)

    def _passes(
        self,
        make: Callable[[list[Block]], Any],
        batch_size: int | None,
        buffer: Buffer | None,
        *,
        drop_last: bool,
    ) -> Passes[Any]:
        rows = CHUNK_ROWS
        if batch_size is not None:
            meaning = "it is how many rows a batch has"
            rows = whole("batch_size", batch_size, meaning, at_least=1)
        return Passes(lambda: self._batches(make, rows, buffer, drop_last=drop_last))

    def _batches(
        self,
        make: Callable[[list[Block]], Any],
        rows: int,
        buffer: Buffer | None,
        *,
        drop_last: bool,
    ) -> Iterator[Any]:
        with self._start(buffer) as reading:
            for pieces in regrouped(reading.blocks, itertools.repeat(rows)):
                size = sum(map(size_of, pieces))
                if drop_last and size < rows:
                    break
                batch = make(pieces)
                reading.hand_out(size, rows)
                yield batch

    def _rows(self) -> Iterator[Row]:
        with self._start(None) as reading:
            for block in reading.blocks:
                for row in rows_of(block):
                    reading.hand_out(1, 1)
                    yield row


def _buffer(rows: int | None, seed: int | None) -> Buffer | None:
    if seed is not None:
        seed = whole("local_shuffle_seed", seed, "it determines the order", at_least=0)
    if rows is None:
        return None
    meaning = "it is how many rows are shuffled at a time"
    return Buffer(whole("local_shuffle_buffer_size", rows, meaning, at_least=1), seed)
