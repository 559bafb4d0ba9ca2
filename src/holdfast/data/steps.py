"""Steps of a plan that run a user's function."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from holdfast.data.blocks import Block, Form, Row, form_of, picked, regrouped, size_of, take
from holdfast.data.conversion import assembled, block_from, rows_of
from holdfast.data.libraries import library
from holdfast.data.plan import Plan
from holdfast.data.selection import EVERYTHING, Wanted
from holdfast.errors import ConfigError


@dataclass(eq=False)
class Call:
    """A user's function with what it is called with besides rows or batches.

    A class is instantiated once in each process that reads, when it is first needed there, and
    what it built does not travel.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    constructor_args: tuple[Any, ...] = ()
    constructor_kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        named = getattr(self.function, "func", self.function)  # a functools.partial has none
        return getattr(named, "__name__", type(named).__name__)

    def __call__(self, value: Any) -> Any:
        return self._ready()(value, *self.args, **self.kwargs)

    def _ready(self) -> Callable[..., Any]:
        if not isinstance(self.function, type):
            return self.function
        if "instance" not in vars(self):
            vars(self)["instance"] = self.function(
                *self.constructor_args, **self.constructor_kwargs
            )
        return vars(self)["instance"]  # type: ignore[no-any-return]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "instance"}


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MapRows(Plan):
    """Each row becomes what `call` returns for it."""

    call: Call
    kind: ClassVar[str] = "map"
    keeps_rows: ClassVar[bool] = True

    def identity(self) -> dict[str, Any]:
        return {"function": self.call.name}

    def length(self) -> int | None:
        return self.inputs[0].length()

    def blocks(self, wanted: Wanted, epoch: int) -> Iterator[Block]:
        for block in self.inputs[0].blocks(wanted, epoch):
            yield [_row_from(self.call(row), f"map({self.call.name})") for row in rows_of(block)]

    def described(self) -> str:
        return f"map({self.call.name})"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class FlatMap(Plan):
    """Each row becomes the rows that `call` returns for it."""

    call: Call
    kind: ClassVar[str] = "flat_map"

    def identity(self) -> dict[str, Any]:
        return {"function": self.call.name}

    def length(self) -> None:
        return None

    def blocks(self, wanted: Wanted, epoch: int) -> Iterator[Block]:
        of = f"flat_map({self.call.name})"
        stream = (
            [_row_from(made, of) for row in rows_of(block) for made in self.call(row)]
            for block in self.inputs[0].blocks(EVERYTHING, epoch)
        )
        return picked(stream, wanted)

    def described(self) -> str:
        return f"flat_map({self.call.name})"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Filter(Plan):
    """The rows for which `call` returns something true; they keep the form they have."""

    call: Call
    kind: ClassVar[str] = "filter"

    def identity(self) -> dict[str, Any]:
        return {"function": self.call.name}

    def length(self) -> None:
        return None

    def blocks(self, wanted: Wanted, epoch: int) -> Iterator[Block]:
        return picked(map(self._kept, self.inputs[0].blocks(EVERYTHING, epoch)), wanted)

    def _kept(self, block: Block) -> Block:
        good = [bool(self.call(row)) for row in rows_of(block)]
        if all(good):
            return block
        if form_of(block) == "rows":
            return list(itertools.compress(block, good))
        return take(block, library("numpy").flatnonzero(good))

    def described(self) -> str:
        return f"filter({self.call.name})"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MapBatches(Plan):
    """Batches of rows become the batches that `call` returns, of as many rows or of others.

    Batches are cut from the first row of the dataset on, so that they are the same for every rank
    and after every resume.
    """

    call: Call
    batch_rows: int
    form: Form
    kind: ClassVar[str] = "map_batches"

    def identity(self) -> dict[str, Any]:
        return {"function": self.call.name, "batch_size": self.batch_rows}

    def length(self) -> int | None:
        return None

    def blocks(self, wanted: Wanted, epoch: int) -> Iterator[Block]:
        return picked(self._made(self.inputs[0].blocks(EVERYTHING, epoch)), wanted)

    def _made(self, stream: Iterator[Block]) -> Iterator[Block]:
        for group in regrouped(stream, itertools.repeat(self.batch_rows)):
            made = self.call(assembled(group, self.form))
            batches = made if isinstance(made, Iterator) else iter([made])
            given = 0
            for batch in batches:
                block = block_from(batch, of=self.described())
                given += size_of(block)
                yield block
            self._check(sum(map(size_of, group)), given)

    def _check(self, taken: int, given: int) -> None:
        """Look at how many rows became how many."""

    def described(self) -> str:
        return f"map_batches({self.call.name})"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MapBatchesRowByRow(MapBatches):
    """Batches of rows become batches of as many: a rank gives `call` no rows but its own."""

    keeps_rows: ClassVar[bool] = True

    def length(self) -> int | None:
        return self.inputs[0].length()

    def blocks(self, wanted: Wanted, epoch: int) -> Iterator[Block]:
        return self._made(self.inputs[0].blocks(wanted, epoch))

    def _check(self, taken: int, given: int) -> None:
        if given != taken:
            raise ConfigError(
                f"{self.described()} made {given} rows of {taken}, against"
                " udf_modifying_row_count=False",
                hint="leave out udf_modifying_row_count, or make it True",
            )


def _row_from(made: object, of: str) -> Row:
    if isinstance(made, dict):
        return made
    if isinstance(made, Mapping):
        return dict(made)
    raise ConfigError(
        f"{of} returned {type(made).__name__}: a row is a dict of column names and values",
        hint="does it return the row it changed?" if made is None else 'return {"item": …}',
    )
