"""Data in memory: in this process at first, and once for all processes of the machine when shared.

Arrays and tables lie in shared memory as they are, and are read there; what consists of Python's
objects lies there as pickled chunks of rows, and a chunk is unpickled when some of its rows are
wanted. Nobody can write to it, so whoever reads gets a copy of the rows that are read. It ends with
the process that shared it, however that ends.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from holdfast.data.blocks import CHUNK_ROWS, Block, chunks, form_of, owned, size_of, take
from holdfast.data.libraries import library
from holdfast.data.selection import Wanted, cut, within
from holdfast.engine.machine import memory_available
from holdfast.errors import ConfigError, StoreFull
from holdfast.objects import ObjectRef, get, put
from holdfast.objects.refs import LARGE_BYTES, get_private
from holdfast.objects.serial import frozen, thawed

log = logging.getLogger(__name__)

_NUMBERS = "biufcmM"
_IN_ARRAY = _NUMBERS + "US"  # kinds of numpy's types whose values lie in the array itself


class HeldRows:
    """Rows in memory; they travel by value, and what `shared` returns does by reference."""

    def __init__(self, blocks: Iterable[Block]) -> None:
        self._blocks: Sequence[Block] = tuple(blocks)
        self._shared: SharedRows | None = None
        self._pid = 0  # of the process that shared them: in a fork of it they are another's
        self.rows = sum(map(size_of, self._blocks))

    @classmethod
    def copied(cls, blocks: Iterable[Block]) -> Self:
        """Return rows that nobody else has: a copy, and if it is large, one in shared memory.

        So there is never a third, and a trainer that shares the rows has nothing left to do.
        """
        held = cls(blocks)
        try:
            held.shared()
        except StoreFull:
            log.info("rows are not shared before they must be", exc_info=True)
        held._blocks = tuple(map(owned, held._blocks))  # those that were not shared
        return held

    def read(self, wanted: Wanted) -> Iterator[Block]:
        """Yield the wanted rows, as copies."""
        if self._shared is not None:
            return self._shared.read(wanted)
        return _read(self._blocks, wanted)

    def shared(self) -> HeldRows | SharedRows:
        """Return the same rows in shared memory, and use them there too; small ones stay here."""
        if self._shared is None or self._pid != os.getpid():
            lying = self._laid_out() if self._shared is None else self._shared.lying()
            size = sum(map(_size_bytes, lying))
            if size < LARGE_BYTES:
                return self
            must_fit_in_memory(size)
            self._shared, self._pid = SharedRows(put(lying), self.rows), os.getpid()
            self._shared.lying()  # mapped now: a fork has it then, also when this process is gone
            self._blocks = ()  # one copy is enough
        return self._shared

    def _laid_out(self) -> list[Block | Packed]:
        try:
            return [_laid_out(block) for block in self._blocks]
        except Exception as error:  # any object's own pickling may raise anything
            raise _cannot_travel("a dataset with such rows", error) from error

    def __getstate__(self) -> dict[str, Any]:
        blocks = self._blocks if self._shared is None else tuple(self.read(range(self.rows)))
        return {"_blocks": blocks, "_shared": None, "_pid": 0, "rows": self.rows}


class SharedRows:
    """Rows in shared memory; what travels is a reference, good while its owner lives."""

    def __init__(self, ref: ObjectRef, rows: int) -> None:
        self.ref, self.rows = ref, rows
        self._lying: list[Block | Packed] | None = None

    def lying(self) -> list[Block | Packed]:
        """Return the rows as they lie there; nobody can write to them."""
        if self._lying is None:
            self._lying = get(self.ref)
        return self._lying

    def read(self, wanted: Wanted) -> Iterator[Block]:
        """Yield the wanted rows, as copies."""
        return _read(self.lying(), wanted)

    def shared(self) -> SharedRows:
        """Return itself."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_lying": None}


class SharedObject:
    """An object in shared memory; its arrays may be written to, and nobody else sees it."""

    def __init__(self, ref: ObjectRef) -> None:
        self.ref = ref
        self._value: Any = None

    @property
    def value(self) -> Any:
        if self._value is None:
            self._value = get_private(self.ref)
        return self._value

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_value": None}


def share(value: Any) -> Any:
    """Return an object in shared memory, or itself if it is small; raise if it cannot travel."""
    if isinstance(value, SharedObject):
        return value
    try:
        ref = put(value)
    except ConfigError as error:
        raise _cannot_travel(f"a dataset of type {type(value).__name__}", error) from error
    return SharedObject(ref) if ref.size_bytes >= LARGE_BYTES else value


def _cannot_travel(what: str, error: Exception) -> ConfigError:
    cause = error.__cause__ if isinstance(error, ConfigError) else error
    return ConfigError(
        f"{what} cannot be sent to workers: {type(cause).__name__}: {cause}",
        hint="keep locks, files and connections out of it, and open them where they are used",
    )


def unshared(value: Any) -> Any:
    """Return an object, wherever it is."""
    return value.value if isinstance(value, SharedObject) else value


def must_fit_in_memory(size_bytes: int) -> None:
    """Raise if this machine has not enough memory left for a copy that its processes share."""
    left = memory_available()
    if left is not None and size_bytes > left:
        raise ConfigError(
            f"the rows in memory take {size_bytes / 2**30:.1f} GiB, and of this machine's memory"
            f" {left / 2**30:.1f} GiB are left for the copy that all workers share",
            hint="write the rows to files, and read them with read_parquet: workers read what they"
            " need",
        )


@dataclass
class Packed:
    """A block of Python's objects as chunks of rows, each unpickled when it is wanted."""

    chunks: list[Any]
    rows: int

    def __len__(self) -> int:
        return self.rows


def _laid_out(block: Block) -> Block | Packed:
    """Return a block as it is to lie in shared memory."""
    match form_of(block):
        case "numpy" if all(values.dtype.kind in _IN_ARRAY for values in block.values()):
            contiguous = library("numpy").ascontiguousarray  # others would be copied by each reader
            return {name: contiguous(values) for name, values in block.items()}
        case "pandas" if _is_numeric(block):
            return block
        case "pyarrow":
            return _compact(block)
        case _:
            return Packed([frozen(chunk) for chunk in chunks(block)], size_of(block))


def _is_numeric(frame: Any) -> bool:
    kinds = [*frame.dtypes, frame.index.dtype]
    return all(getattr(kind, "kind", "O") in _NUMBERS and "[" not in str(kind) for kind in kinds)


def _compact(table: Any) -> Any:
    """Return a table without what it was cut out of, all of which would travel with it."""
    if table.get_total_buffer_size() <= table.nbytes + LARGE_BYTES // CHUNK_ROWS:
        return table
    pa = library("pyarrow")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def _size_bytes(lying: Block | Packed) -> int:
    if isinstance(lying, Packed):
        return sum(memoryview(chunk).nbytes for chunk in lying.chunks)
    if isinstance(lying, dict):
        return sum(values.nbytes for values in lying.values())
    if form_of(lying) == "pandas":
        return int(lying.memory_usage(index=True).sum())
    return int(lying.get_total_buffer_size())


def _read(lying: Sequence[Block | Packed], wanted: Wanted) -> Iterator[Block]:
    low = 0
    for block in lying:
        rows = len(block) if isinstance(block, Packed) else size_of(block)
        here = within(wanted, low, low + rows)
        if len(here):
            yield from _read_block(block, here)
        low += rows


def _read_block(block: Block | Packed, wanted: Wanted) -> Iterator[Block]:
    if not isinstance(block, Packed):
        for here in cut(wanted, CHUNK_ROWS):
            yield owned(take(block, here))
        return
    for number, chunk in enumerate(block.chunks):
        here = within(wanted, number * CHUNK_ROWS, (number + 1) * CHUNK_ROWS)
        if len(here):
            yield take(thawed(chunk), here)
