"""Rows in memory: in this process at first, and once for all processes of the machine when shared.

Arrays and tables are stored in shared memory as they are, and read in place; Python objects are
stored as pickled chunks of rows, and a chunk is unpickled when some of its rows are wanted. The
memory is read-only, so readers get copies of their rows. It is freed with the process that shared
it, however that ends.
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
from holdfast.objects.serial import pickled_part, unpickled_part

log = logging.getLogger(__name__)

_NUMBERS = "biufcmM"
_IN_ARRAY = _NUMBERS + "US"  # numpy kinds whose values are in the array itself


class MemoryRows:
    """Rows in memory, pickled by value; `shared` returns rows that are pickled by reference."""

    def __init__(self, blocks: Iterable[Block]) -> None:
        self._blocks: Sequence[Block] = tuple(blocks)
        self._shared: SharedRows | None = None
        self._pid = 0  # of the process that shared them, to notice a fork
        self.rows = sum(map(size_of, self._blocks))

    @classmethod
    def copied(cls, blocks: Iterable[Block]) -> Self:
        """Return a copy of the rows, in shared memory if it is large.

        So there is never a second copy, when a trainer shares the rows.
        """
        rows = cls(blocks)
        try:
            rows.shared()
        except StoreFull:
            log.info("rows are not shared before they must be", exc_info=True)
        rows._blocks = tuple(map(owned, rows._blocks))  # empty if they were shared
        return rows

    def read(self, wanted: Wanted) -> Iterator[Block]:
        """Yield the wanted rows, as copies."""
        if self._shared is not None:
            return self._shared.read(wanted)
        return _read(self._blocks, wanted)

    def shared(self) -> MemoryRows | SharedRows:
        """Return the same rows in shared memory, and use those too; small ones stay here."""
        if self._shared is None or self._pid != os.getpid():
            packed = self._packed() if self._shared is None else self._shared.blocks()
            size = sum(map(_size_bytes, packed))
            if size < LARGE_BYTES:
                return self
            must_fit_in_memory(size)
            self._shared, self._pid = SharedRows(put(packed), self.rows), os.getpid()
            self._shared.blocks()  # mapped now, so that a fork has it even if this process ends
            self._blocks = ()  # one copy is enough
        return self._shared

    def _packed(self) -> list[Block | Packed]:
        try:
            return [_packed(block) for block in self._blocks]
        except Exception as error:  # any object's own pickling may raise anything
            raise _cannot_send("a dataset with such rows", error) from error

    def __getstate__(self) -> dict[str, Any]:
        blocks = self._blocks if self._shared is None else tuple(self.read(range(self.rows)))
        return {"_blocks": blocks, "_shared": None, "_pid": 0, "rows": self.rows}


class SharedRows:
    """Rows in shared memory, pickled as a reference that is valid while its owner lives."""

    def __init__(self, ref: ObjectRef, rows: int) -> None:
        self.ref, self.rows = ref, rows
        self._blocks: list[Block | Packed] | None = None

    def blocks(self) -> list[Block | Packed]:
        """Return the rows as they are stored, read-only."""
        if self._blocks is None:
            self._blocks = get(self.ref)
        return self._blocks

    def read(self, wanted: Wanted) -> Iterator[Block]:
        """Yield the wanted rows, as copies."""
        return _read(self.blocks(), wanted)

    def shared(self) -> SharedRows:
        """Return itself."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_blocks": None}


class SharedObject:
    """An object in shared memory; its arrays are writable, unseen by other processes."""

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
    """Return the object in shared memory, or itself if it is small; raise if it cannot be sent."""
    if isinstance(value, SharedObject):
        return value
    try:
        ref = put(value)
    except ConfigError as error:
        raise _cannot_send(f"a dataset of type {type(value).__name__}", error) from error
    return SharedObject(ref) if ref.size_bytes >= LARGE_BYTES else value


def _cannot_send(data: str, error: Exception) -> ConfigError:
    cause = error.__cause__ if isinstance(error, ConfigError) else error
    return ConfigError(
        f"{data} cannot be sent to workers: {type(cause).__name__}: {cause}",
        hint="keep locks, files and connections out of it, and open them where they are used",
    )


def unshared(value: Any) -> Any:
    """Return the object that `share` was given."""
    return value.value if isinstance(value, SharedObject) else value


def must_fit_in_memory(size_bytes: int) -> None:
    """Raise if the machine has too little memory left for a shared copy."""
    left = memory_available()
    if left is not None and size_bytes > left:
        raise ConfigError(
            f"the rows in memory take {size_bytes / 2**30:.1f} GiB, and this machine has"
            f" {left / 2**30:.1f} GiB left for the copy that all workers share",
            hint="write the rows to files, and use read_parquet: workers then read only what they"
            " need",
        )


@dataclass
class Packed:
    """A block of Python objects as pickled chunks of rows, each unpickled when it is read."""

    chunks: list[Any]
    rows: int

    def __len__(self) -> int:
        return self.rows


def _packed(block: Block) -> Block | Packed:
    """Return a block as it is stored in shared memory."""
    match form_of(block):
        case "numpy" if all(values.dtype.kind in _IN_ARRAY for values in block.values()):
            contiguous = library("numpy").ascontiguousarray  # readers would copy others
            return {name: contiguous(values) for name, values in block.items()}
        case "pandas" if _is_numeric(block):
            return block
        case "pyarrow":
            return _compact(block)
        case _:
            return Packed([pickled_part(chunk) for chunk in chunks(block)], size_of(block))


def _is_numeric(frame: Any) -> bool:
    kinds = [*frame.dtypes, frame.index.dtype]
    return all(getattr(kind, "kind", "O") in _NUMBERS and "[" not in str(kind) for kind in kinds)


def _compact(table: Any) -> Any:
    """Return a table without the buffers it was sliced from, which would be stored with it."""
    if table.get_total_buffer_size() <= table.nbytes + LARGE_BYTES // CHUNK_ROWS:
        return table
    pa = library("pyarrow")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def _size_bytes(block: Block | Packed) -> int:
    if isinstance(block, Packed):
        return sum(memoryview(chunk).nbytes for chunk in block.chunks)
    if isinstance(block, dict):
        return sum(values.nbytes for values in block.values())
    if form_of(block) == "pandas":
        return int(block.memory_usage(index=True).sum())
    return int(block.get_total_buffer_size())


def _read(blocks: Sequence[Block | Packed], wanted: Wanted) -> Iterator[Block]:
    low = 0
    for block in blocks:
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
            yield take(unpickled_part(chunk), here)
