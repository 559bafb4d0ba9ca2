"""Steps of a plan that run a user's function."""

from __future__ import annotations

import copy
import functools
import itertools
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from holdfast.data.blocks import (
    Block,
    Form,
    Row,
    form_of,
    own,
    picked,
    regrouped,
    size_of,
    take,
    unaliased,
)
from holdfast.data.conversion import assembled, block_from, rows_of
from holdfast.data.libraries import library
from holdfast.data.plan import Plan
from holdfast.data.selection import EVERYTHING, Wanted
from holdfast.errors import ConfigError


@dataclass(eq=False)
class Call:
    """A user's function with its arguments besides rows or batches.

    A class is instantiated, and an instance copied, when it is first needed in a pass: so its state
    ends with the pass, and is not pickled.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    constructor_args: tuple[Any, ...] = ()
    constructor_kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        function = getattr(self.function, "func", self.function)  # inside a functools.partial
        return getattr(function, "__name__", type(function).__name__)

    def __call__(self, value: Any) -> Any:
        if "ready" not in vars(self):
            vars(self)["ready"] = self._instance()
        return vars(self)["ready"](value, *self.args, **self.kwargs)

    def _instance(self) -> Callable[..., Any]:
        function = self.function
        if isinstance(function, type):
            instance: Callable[..., Any] = function(
                *self.constructor_args, **self.constructor_kwargs
            )
            return instance
        if isinstance(function, _STATELESS):
            return function
        try:
            return copy.deepcopy(function)
        except TypeError:  # it holds a lock or a file, and cannot be copied
            return function

    def fresh(self) -> Call:
        """Return the same call for another pass."""
        return replace(self)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "ready"}


_STATELESS = (types.FunctionType, types.BuiltinFunctionType, functools.partial)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CallingStep(Plan):
    """A step that runs a user's function."""

    call: Call

    def fresh(self) -> Plan:
        inputs = tuple(plan.fresh() for plan in self.inputs)
        return replace(self, inputs=inputs, call=self.call.fresh())

    def identity(self) -> dict[str, Any]:
        return {"function": self.call.name}

    def described(self) -> str:
        return f"{self.kind}({self.call.name})"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MapRows(CallingStep):
    """Each row becomes what `call` returns for it."""

    kind: ClassVar[str] = "map"
    keeps_rows: ClassVar[bool] = True

    def length(self) -> int | None:
        return self.inputs[0].length()

    def blocks(self, wanted: Wanted, epoch: int) -> Iterator[Block]:
        for block in self.inputs[0].blocks(wanted, epoch):
            yield [_row_from(self.call(row), self.described(), row) for row in rows_of(block)]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class FlatMap(CallingStep):
    """Each row becomes the rows that `call` returns for it."""

    kind: ClassVar[str] = "flat_map"

    def length(self) -> None:
        return None

    def blocks(self, wanted: Wanted, epoch: int) -> Iterator[Block]:
        of = self.described()
        stream = (
            [_row_from(new, of, {}) for row in rows_of(block) for new in self.call(row)]
            for block in self.inputs[0].blocks(EVERYTHING, epoch)
        )
        return picked(stream, wanted)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Filter(CallingStep):
    """The rows for which `call` returns a true value; blocks keep their form."""

    kind: ClassVar[str] = "filter"

    def length(self) -> None:
        return None

    def blocks(self, wanted: Wanted, epoch: int) -> Iterator[Block]:
        return picked(map(self._filtered, self.inputs[0].blocks(EVERYTHING, epoch)), wanted)

    def _filtered(self, block: Block) -> Block:
        good = [bool(self.call(row)) for row in rows_of(block)]
        if all(good):
            return block
        if form_of(block) == "rows":
            return list(itertools.compress(block, good))
        return take(block, library("numpy").flatnonzero(good))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MapBatches(CallingStep):
    """Batches of rows become the batches that `call` returns, with any number of rows.

    Batches begin at the first row of the dataset, so that they are the same for every rank and
    after every resume.
    """

    batch_rows: int
    form: Form
    kind: ClassVar[str] = "map_batches"

    def identity(self) -> dict[str, Any]:
        return {"function": self.call.name, "batch_size": self.batch_rows}

    def length(self) -> int | None:
        return None

    def may_change_its_length(self) -> bool:
        return bool(self.seeds()) or super().may_change_its_length()

    def blocks(self, wanted: Wanted, epoch: int) -> Iterator[Block]:
        return picked(self._mapped(self.inputs[0].blocks(EVERYTHING, epoch)), wanted)

    def _mapped(self, stream: Iterator[Block]) -> Iterator[Block]:
        for group in regrouped(stream, itertools.repeat(self.batch_rows)):
            given = assembled(group, self.form)
            result = self.call(given)
            batches = result if isinstance(result, Iterator) else iter([result])
            rows = 0
            for batch in batches:
                block = unaliased(block_from(batch, of=self.described()), given)
                rows += size_of(block)
                yield block
            self._check(sum(map(size_of, group)), rows)

    def _check(self, rows_in: int, rows_out: int) -> None:
        """Raise if the number of rows changed and must not."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MapBatchesRowByRow(MapBatches):
    """Batches of rows become batches of the same size, so a rank maps only its own rows."""

    keeps_rows: ClassVar[bool] = True

    def length(self) -> int | None:
        return self.inputs[0].length()

    def blocks(self, wanted: Wanted, epoch: int) -> Iterator[Block]:
        return self._mapped(self.inputs[0].blocks(wanted, epoch))

    def _check(self, rows_in: int, rows_out: int) -> None:
        if rows_out != rows_in:
            raise ConfigError(
                f"{self.described()} made {rows_out} rows of {rows_in}, against"
                " udf_modifying_row_count=False",
                hint="leave out udf_modifying_row_count, or make it True",
            )


def _row_from(result: object, of: str, taken: Row) -> Row:
    """Return a function's result as a row; values that are not those of `taken` are copied.

    The function may keep them, and return them again.
    """
    if isinstance(result, Mapping):
        return {
            name: value if name in taken and value is taken[name] else own(value)
            for name, value in result.items()
        }
    raise ConfigError(
        f"{of} returned {type(result).__name__}: a row is a dict of column names and values",
        hint="does it return the row it changed?" if result is None else 'return {"item": …}',
    )
