"""Steps that choose, drop and rename columns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from holdfast.data.blocks import Block, form_of, names_of, size_of
from holdfast.data.plan import Plan
from holdfast.data.selection import Wanted
from holdfast.errors import ConfigError


def check_columns(asked: Collection[str], columns: Collection[str]) -> None:
    """Raise if one of the requested columns does not exist."""
    unknown = [name for name in asked if name not in columns]
    if unknown:
        raise ConfigError(
            f"no column {', '.join(map(repr, unknown))}: the columns are"
            f" {', '.join(map(repr, columns)) or 'none'}"
        )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ColumnStep(Plan):
    """Every row with some of its columns, renamed as `_chosen` says."""

    keeps_rows: ClassVar[bool] = True

    def length(self) -> int | None:
        return self.inputs[0].length()

    def blocks(self, wanted: Wanted, epoch: int) -> Iterator[Block]:
        for block in self.inputs[0].blocks(wanted, epoch):
            if size_of(block):
                yield _with_columns(block, self._chosen(names_of(block)))

    @abstractmethod
    def _chosen(self, columns: list[str]) -> Mapping[str, str]:
        """Return the new name of each column that stays, by its old name."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Select(ColumnStep):
    """The columns of these names, in this order."""

    names: tuple[str, ...]
    kind: ClassVar[str] = "select_columns"

    def identity(self) -> dict[str, Any]:
        return {"names": list(self.names)}

    def _chosen(self, columns: list[str]) -> Mapping[str, str]:
        check_columns(self.names, columns)
        return {name: name for name in self.names}

    def described(self) -> str:
        return f"select_columns({', '.join(self.names)})"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Drop(ColumnStep):
    """All columns but these."""

    names: tuple[str, ...]
    kind: ClassVar[str] = "drop_columns"

    def identity(self) -> dict[str, Any]:
        return {"names": list(self.names)}

    def _chosen(self, columns: list[str]) -> Mapping[str, str]:
        check_columns(self.names, columns)
        left = {name: name for name in columns if name not in self.names}
        if not left:
            raise ConfigError(f"drop_columns({list(self.names)!r}) leaves no column")
        return left

    def described(self) -> str:
        return f"drop_columns({', '.join(self.names)})"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Rename(ColumnStep):
    """All columns, with new names: given by the old names, or for all columns in order."""

    names: Mapping[str, str] | tuple[str, ...]
    kind: ClassVar[str] = "rename_columns"

    def identity(self) -> dict[str, Any]:
        return {
            "names": [*map(list, self.names.items())]
            if isinstance(self.names, Mapping)
            else list(self.names)
        }

    def _chosen(self, columns: list[str]) -> Mapping[str, str]:
        if isinstance(self.names, Mapping):
            check_columns(self.names, columns)
            chosen = {name: self.names.get(name, name) for name in columns}
        elif len(self.names) == len(columns):
            chosen = dict(zip(columns, self.names, strict=True))
        else:
            raise ConfigError(
                f"rename_columns got {len(self.names)} names for {len(columns)} columns:"
                f" {', '.join(map(repr, columns))}"
            )
        if len(set(chosen.values())) < len(chosen):
            raise ConfigError(f"rename_columns gives a name twice: {list(chosen.values())!r}")
        return chosen

    def described(self) -> str:
        return "rename_columns"


def _with_columns(block: Block, chosen: Mapping[str, str]) -> Block:
    match form_of(block):
        case "rows":
            return [{new: row.get(old) for old, new in chosen.items()} for row in block]
        case "numpy":
            return {new: block[old] for old, new in chosen.items()}
        case "pandas":
            return block[list(chosen)].set_axis(list(chosen.values()), axis=1)
        case "pyarrow":
            return block.select(list(chosen)).rename_columns(list(chosen.values()))
