"""Plans for rows in memory, and for datasets of other libraries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from holdfast.data.blocks import CHUNK_ROWS, Block, chunks, own
from holdfast.data.conversion import rows_of
from holdfast.data.fingerprint import describe_values, sample_of
from holdfast.data.libraries import library
from holdfast.data.memory import MemoryRows, SharedRows, share, unshared
from holdfast.data.plan import Plan
from holdfast.data.selection import Wanted, cut, within


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class InMemory(Plan):
    """Rows in memory."""

    held: MemoryRows | SharedRows
    kind: ClassVar[str] = "memory"

    def identity(self) -> dict[str, Any]:
        return _identity_of_rows(self)

    def length(self) -> int:
        return self.held.rows

    def blocks(self, wanted: Wanted, epoch: int) -> Iterator[Block]:
        return self.held.read(wanted)

    def shared(self) -> Plan:
        return replace(self, held=self.held.shared())

    def described(self) -> str:
        return f"{self.length()} rows in memory"


def in_memory(blocks: Iterable[Block], *, is_users: bool = False) -> InMemory:
    """Return a plan of these blocks; the user's own are copied, because they may change."""
    return InMemory(held=MemoryRows.copied(blocks) if is_users else MemoryRows(blocks))


@dataclass(frozen=True, eq=False, repr=False)
class Numbers(Plan):
    """Rows that contain their own number: `{"id": 0}`, `{"id": 1}` and so on."""

    rows: int = 0
    kind: ClassVar[str] = "range"

    def identity(self) -> dict[str, Any]:
        return {"rows": self.rows}

    def length(self) -> int:
        return self.rows

    def blocks(self, wanted: Wanted, epoch: int) -> Iterator[Block]:
        np = library("numpy")
        for here in cut(within(wanted, 0, self.rows), CHUNK_ROWS):
            yield {"id": np.array(here, dtype=np.int64)}

    def described(self) -> str:
        return f"{self.rows} numbers"


@dataclass(frozen=True, eq=False, repr=False)
class Items(Plan):
    """Items of a map-style dataset of torch, one at a time: rows `{"item": …}`."""

    items: Any = None
    kind: ClassVar[str] = "torch"

    def identity(self) -> dict[str, Any]:  # items may be random, or slow to make
        return {"rows": self.length(), "type": type(unshared(self.items)).__qualname__}

    def shared(self) -> Plan:
        return replace(self, items=share(self.items))

    def length(self) -> int:
        return len(unshared(self.items))

    def blocks(self, wanted: Wanted, epoch: int) -> Iterator[Block]:
        for here in cut(within(wanted, 0, self.length()), CHUNK_ROWS):
            items = unshared(self.items)
            yield [{"item": own(items[int(number)])} for number in here]

    def described(self) -> str:
        return f"{self.length()} items of {type(unshared(self.items)).__name__}"


@dataclass(frozen=True, eq=False, repr=False)
class HuggingFace(Plan):
    """Rows of a `datasets.Dataset`, read as Arrow tables, with the row selection it has."""

    dataset: Any = None
    kind: ClassVar[str] = "huggingface"

    def identity(self) -> dict[str, Any]:
        return _identity_of_rows(self)

    def shared(self) -> Plan:
        return replace(self, dataset=share(self.dataset))

    def length(self) -> int:
        return int(unshared(self.dataset).num_rows)

    def blocks(self, wanted: Wanted, epoch: int) -> Iterator[Block]:
        tables = unshared(self.dataset).with_format("arrow")
        for here in cut(within(wanted, 0, self.length()), CHUNK_ROWS):
            table = tables[here if isinstance(here, range) else here.tolist()]
            yield from chunks(table)

    def described(self) -> str:
        return f"{self.length()} rows of Hugging Face"


def _identity_of_rows(plan: Plan) -> dict[str, Any]:
    rows = plan.length() or 0
    blocks = plan.blocks(sample_of(rows), 0)
    return {"rows": rows, **describe_values(row for block in blocks for row in rows_of(block))}
