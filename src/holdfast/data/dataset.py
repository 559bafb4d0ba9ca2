"""`Dataset`: rows from a source, and the steps applied to them, on one machine.

A dataset is immutable: nothing runs until its rows are read, and every read gives the same rows in
the same order. Only the epochs of a `DataIterator` differ from one another.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from holdfast.core.names import shown
from holdfast.data.blocks import CHUNK_ROWS, Block, Form, Row
from holdfast.data.checks import check_names, check_placement, whole
from holdfast.data.column_steps import Drop, Rename, Select
from holdfast.data.conversion import assembled, form_named, rows_of
from holdfast.data.files import Parquet
from holdfast.data.fingerprint import fingerprint_of, seed_from
from holdfast.data.iterator import DataIterator
from holdfast.data.plan import Cut, Plan, Union
from holdfast.data.reading import Buffer, Reader, Reading
from holdfast.data.selection import EVERYTHING
from holdfast.data.shuffle import Shuffle
from holdfast.data.sources import in_memory
from holdfast.data.steps import Call, Filter, FlatMap, MapBatches, MapBatchesRowByRow, MapRows
from holdfast.errors import ConfigError


class Dataset(Reader):
    """Rows, each a dict by column; made by `from_items`, `read_parquet` and similar functions.

    A dataset in files is sent to workers as paths. One in memory is shared by the trainer: there is
    one copy for all processes of the machine.
    """

    def __init__(self, plan: Plan, *, name: str | None = None) -> None:
        self._plan, self._name = plan, name

    # ----------------------------------------------------------------------------------- contents

    @property
    def name(self) -> str | None:
        """The name of the dataset in messages, if it has one."""
        return self._name

    def set_name(self, name: str | None) -> None:
        """Set the name of the dataset in messages."""
        self._name = name

    @property
    def plan(self) -> Plan:
        """The source of the rows and the steps applied to them."""
        return self._plan

    def count(self) -> int:
        """Return the number of rows; reads them all after a filter or a similar step."""
        return self._plan.count()

    def take(self, limit: int = 20) -> list[Row]:
        """Return the first rows."""
        rows = whole("limit", limit, "it is how many rows to return", at_least=0)
        return [row for block in self._plan.read(range(rows), 0) for row in rows_of(block)]

    def take_all(self, limit: int | None = None) -> list[Row]:
        """Return all rows; raise if there are more than `limit`."""
        if limit is None:
            return self.take(EVERYTHING.stop)
        rows = self.take(limit + 1)
        if len(rows) > limit:
            raise ConfigError(f"the dataset has more than limit={limit} rows")
        return rows

    def take_batch(self, batch_size: int = 20, *, batch_format: str | None = "default") -> Any:
        """Return the first rows as one batch."""
        rows = whole("batch_size", batch_size, "it is how many rows a batch has", at_least=1)
        return self._whole(form_named(batch_format), range(rows))

    def show(self, limit: int = 20) -> None:
        """Print the first rows."""
        for row in self.take(limit):
            sys.stdout.write(f"{row}\n")

    def to_pandas(self, limit: int | None = None) -> Any:
        """Return all rows as a DataFrame; raise if there are more than `limit`."""
        if limit is not None and self.limit(limit + 1).count() > limit:
            raise ConfigError(f"the dataset has more than limit={limit} rows")
        return self._whole("pandas", EVERYTHING)

    def to_numpy(self) -> dict[str, Any]:
        """Return all rows as a dict of arrays."""
        columns: dict[str, Any] = self._whole("numpy", EVERYTHING)
        return columns

    def to_arrow(self) -> Any:
        """Return all rows as a pyarrow Table."""
        return self._whole("pyarrow", EVERYTHING)

    def __repr__(self) -> str:
        name = "" if self._name is None else f"{self._name!r}, "
        return f"Dataset({name}{self._plan.described_as_a_whole()})"

    # -------------------------------------------------------------------------------------- steps

    def map(
        self,
        fn: Callable[..., Row],
        *,
        fn_args: Iterable[Any] | None = None,
        fn_kwargs: Mapping[str, Any] | None = None,
        fn_constructor_args: Iterable[Any] | None = None,
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        **placement: Any,
    ) -> Dataset:
        """Return a dataset in which each row is replaced by what `fn` returns for it."""
        check_placement(placement, "map")
        call = _call(fn, fn_args, fn_kwargs, fn_constructor_args, fn_constructor_kwargs)
        return self._with(MapRows((self._plan,), call=call))

    def flat_map(
        self,
        fn: Callable[..., Iterable[Row]],
        *,
        fn_args: Iterable[Any] | None = None,
        fn_kwargs: Mapping[str, Any] | None = None,
        fn_constructor_args: Iterable[Any] | None = None,
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        **placement: Any,
    ) -> Dataset:
        """Return a dataset in which each row is replaced by the rows that `fn` returns for it."""
        check_placement(placement, "flat_map")
        call = _call(fn, fn_args, fn_kwargs, fn_constructor_args, fn_constructor_kwargs)
        return self._with(FlatMap((self._plan,), call=call))

    def filter(
        self,
        fn: Callable[..., bool],
        *,
        fn_args: Iterable[Any] | None = None,
        fn_kwargs: Mapping[str, Any] | None = None,
        fn_constructor_args: Iterable[Any] | None = None,
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        **placement: Any,
    ) -> Dataset:
        """Return a dataset of the rows for which `fn` returns a true value."""
        check_placement(placement, "filter")
        call = _call(fn, fn_args, fn_kwargs, fn_constructor_args, fn_constructor_kwargs)
        return self._with(Filter((self._plan,), call=call))

    def map_batches(
        self,
        fn: Callable[..., Any],
        *,
        batch_size: int | str | None = None,
        batch_format: str | None = "default",
        fn_args: Iterable[Any] | None = None,
        fn_kwargs: Mapping[str, Any] | None = None,
        fn_constructor_args: Iterable[Any] | None = None,
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        udf_modifying_row_count: bool | None = None,
        **placement: Any,
    ) -> Dataset:
        """Return a dataset whose batches are what `fn` returns, or yields, for batches of this one.

        Args:
            fn: A function, or a class that is instantiated for each pass over the rows.
            batch_size: Rows of a batch; the last may have fewer. None for a default.
            batch_format: The input of `fn`: "numpy", "pandas" or "pyarrow". It may return any.
            fn_args: Arguments of `fn` after the batch.
            fn_kwargs: Keyword arguments of `fn`.
            fn_constructor_args: Arguments for instantiating a class.
            fn_constructor_kwargs: Keyword arguments for instantiating a class.
            udf_modifying_row_count: False promises that row n of the result is made from row n of
                the input. Then each rank runs `fn` only on its own rows; otherwise on all rows,
                because it cannot know which results are its own.
            **placement: Where Ray would run `fn`; here it runs in the process that reads.
        """
        check_placement(placement, "map_batches")
        rows = CHUNK_ROWS
        if batch_size is not None and batch_size != "default":
            rows = whole("batch_size", batch_size, "it is how many rows a batch has", at_least=1)
        call = _call(fn, fn_args, fn_kwargs, fn_constructor_args, fn_constructor_kwargs)
        kind = MapBatchesRowByRow if udf_modifying_row_count is False else MapBatches
        form = form_named(batch_format)
        return self._with(kind((self._plan,), call=call, batch_rows=rows, form=form))

    def select_columns(self, cols: str | Sequence[str], **placement: Any) -> Dataset:
        """Return a dataset of these columns; from Parquet files, only they are read."""
        check_placement(placement, "select_columns")
        names = check_names("cols", cols)
        if isinstance(self._plan, Parquet):
            return self._with(self._plan.selected(names))
        return self._with(Select((self._plan,), names=names))

    def drop_columns(self, cols: str | Sequence[str], **placement: Any) -> Dataset:
        """Return a dataset without these columns."""
        check_placement(placement, "drop_columns")
        return self._with(Drop((self._plan,), names=check_names("cols", cols)))

    def rename_columns(self, names: Mapping[str, str] | Sequence[str], **placement: Any) -> Dataset:
        """Return a dataset with other column names: by the old ones, or for all, in order."""
        check_placement(placement, "rename_columns")
        new = dict(names) if isinstance(names, Mapping) else check_names("names", names)
        return self._with(Rename((self._plan,), names=new))

    def random_shuffle(self, *, seed: int | None = None, **placement: Any) -> Dataset:
        """Return a dataset of the same rows in another order.

        The ranks of a trainer get a different order in each epoch, determined by the seed and the
        epoch's number. Without a seed, one is drawn now and saved in a `DataIterator`'s state.
        """
        check_placement(placement, "random_shuffle")
        if seed is None:
            seed = int.from_bytes(os.urandom(4), "big")
        seed = whole("seed", seed, "it determines the order", at_least=0)
        return self._with(Shuffle((self._plan,), seed=seed))

    def repartition(self, num_blocks: int | None = None, **placement: Any) -> Dataset:
        """Return the dataset itself: the division into blocks has no meaning here."""
        return self

    def limit(self, limit: int) -> Dataset:
        """Return a dataset of the first rows."""
        rows = whole("limit", limit, "it is how many rows to keep", at_least=0)
        return self._with(Cut((self._plan,), stop=rows))

    def union(self, *other: Dataset) -> Dataset:
        """Return a dataset of the rows of this one, and then of the others."""
        for dataset in other:
            if not isinstance(dataset, Dataset):
                raise ConfigError(f"union with {type(dataset).__name__}: it must be a Dataset")
        return self._with(Union((self._plan, *(dataset.plan for dataset in other))))

    def materialize(self) -> Dataset:
        """Return a dataset with these rows in memory, so that the steps do not run again."""
        return self._with(in_memory(self._plan.read(EVERYTHING, 0)))

    # ------------------------------------------------------------------------------------- splits

    def train_test_split(
        self, test_size: float, *, shuffle: bool = False, seed: int | None = None
    ) -> tuple[Dataset, Dataset]:
        """Return the first rows, for training, and the last ones, for testing.

        With `shuffle`, the rows are shuffled before the split, and those for training once more in
        every epoch. Without a seed, one is derived from the data: a script that runs again with the
        same data must make the same split, or it would train on rows for testing.

        Args:
            test_size: The number of rows for testing, or a float between 0 and 1 for their share.
            shuffle: Whether to shuffle before the split.
            seed: Determines the order.
        """
        if shuffle and seed is None:
            seed = seed_from(fingerprint_of(self._plan))
        ordered = self.random_shuffle(seed=seed) if shuffle else self
        rows = ordered.count()
        if isinstance(test_size, float):
            if not 0 < test_size < 1:
                raise ConfigError(f"test_size={test_size}: as a float it must be between 0 and 1")
            train = math.floor(rows * (1 - test_size) + 1e-9)  # 0.7 · 10 is a little less than 7
        else:
            meaning = "it is the number of rows for testing, or as a float their share"
            train = rows - whole("test_size", test_size, meaning, at_least=1)
        if not 0 < train < rows:
            raise ConfigError(
                f"test_size={test_size}: of {rows} rows that leaves {max(0, train)} for training"
                f" and {rows - max(0, train)} for testing"
            )
        first = ordered.limit(train)
        if shuffle:
            first = first.random_shuffle(seed=seed)
        return first, self._with(Cut((ordered.plan,), start=train))

    def split(
        self, n: int, *, equal: bool = False, locality_hints: Sequence[Any] | None = None
    ) -> list[Dataset]:
        """Return `n` datasets, each with a contiguous part of these rows.

        With `equal`, all have the same number of rows, and up to n - 1 rows are left out; else some
        have one row more than others.
        """
        parts = whole("n", n, "it is how many datasets to make", at_least=1)
        size, rest = divmod(self.count(), parts)
        starts = [part * size + (0 if equal else min(part, rest)) for part in range(parts + 1)]
        return [
            self._with(Cut((self._plan,), start=start, stop=stop))
            for start, stop in itertools.pairwise(starts)
        ]

    def streaming_split(
        self, n: int, *, equal: bool = True, locality_hints: Sequence[Any] | None = None
    ) -> list[DataIterator]:
        """Return `n` iterators that share these rows, one for each of `n` ranks."""
        ranks = whole("n", n, "it is how many iterators to make", at_least=1)
        return [shard(self, ranks, rank, equal=equal) for rank in range(ranks)]

    def iterator(self) -> DataIterator:
        """Return an iterator over all rows; each loop is an epoch and can be resumed."""
        return shard(self, 1, 0)

    # ------------------------------------------------------------------------------------ reading

    def _with(self, plan: Plan) -> Dataset:
        return Dataset(plan, name=self._name)

    def _whole(self, form: Form, wanted: range) -> Block:
        return assembled(list(self._plan.read(wanted, 0)) or [[]], form)

    def _sample(self) -> Plan:
        return self._plan

    def _start(self, buffer: Buffer | None) -> Reading:
        plan = self._plan
        if buffer is not None:
            plan = Shuffle((plan,), seed=buffer.seed or 0, window=buffer.rows)
        return Reading(plan.read(EVERYTHING, 0))


def named(dataset: Dataset, name: str) -> Dataset:
    """Return the dataset, named `name` if it has no name yet."""
    return dataset if dataset.name is not None else Dataset(dataset.plan, name=name)


def shared(dataset: Dataset) -> Dataset:
    """Return the dataset with rows in memory moved to shared memory.

    It is sent to other processes as references, which are valid while this process lives.
    """
    return Dataset(dataset.plan.shared(), name=dataset.name)


def shard(dataset: Dataset, world_size: int, rank: int, *, equal: bool = True) -> DataIterator:
    """Return the part of `dataset` that `rank` of `world_size` gets.

    With `equal`, every rank has the same number of rows in an epoch, and the last few rows may be
    left out; else some ranks have one row more than others.
    """
    return DataIterator(
        dataset.plan, world_size=world_size, rank=rank, equal=equal, name=dataset.name
    )


def _call(
    fn: Callable[..., Any],
    args: Iterable[Any] | None,
    kwargs: Mapping[str, Any] | None,
    constructor_args: Iterable[Any] | None,
    constructor_kwargs: Mapping[str, Any] | None,
) -> Call:
    if not callable(fn):
        raise ConfigError(f"fn={shown(fn)}: not a function")
    return Call(
        fn,
        tuple(args or ()),
        dict(kwargs or {}),
        tuple(constructor_args or ()),
        dict(constructor_kwargs or {}),
    )
