"""Converts blocks between their forms, and results of user functions to blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.data.blocks import Block, Form, Row, form_of, names_of
from holdfast.data.columns import (
    column,
    from_arrow,
    from_series,
    joined_arrays,
    to_arrow,
    values_of,
)
from holdfast.data.libraries import is_instance, library
from holdfast.errors import ConfigError

FORMS: dict[str | None, Form] = {
    None: "numpy",
    "default": "numpy",
    "numpy": "numpy",
    "pandas": "pandas",
    "pyarrow": "pyarrow",
}


def form_named(batch_format: str | None) -> Form:
    """Return the form for a user's `batch_format`."""
    if batch_format not in FORMS:
        names = ", ".join(repr(name) for name in FORMS if name)
        raise ConfigError(f"batch_format={batch_format!r}: must be one of {names}")
    return FORMS[batch_format]


def converted(block: Block, form: Form) -> Block:
    """Return a block in the given form; the block itself if it has that form."""
    if form_of(block) == form:
        return block
    match form:
        case "rows":
            return rows_of(block)
        case "numpy":
            return _as_numpy(block)
        case "pandas":
            return _as_pandas(block)
        case "pyarrow":
            return _as_arrow(block)


def assembled(pieces: Sequence[Block], form: Form) -> Block:
    """Return the rows of several blocks as one block in the given form."""
    return converted(joined(pieces), form)


def joined(pieces: Sequence[Block]) -> Block:
    """Return the rows of several blocks as one block, in their own form if they share one.

    A column that is missing in some of them is None there.
    """
    if len(pieces) == 1:
        return pieces[0]
    if len({form_of(piece) for piece in pieces}) == 1 and _can_join(pieces):
        match form_of(pieces[0]):
            case "rows":
                return [row for piece in pieces for row in piece]
            case "numpy":
                names = pieces[0]
                return {name: joined_arrays([piece[name] for piece in pieces]) for name in names}
            case "pandas":
                return library("pandas").concat(pieces, ignore_index=True)
            case "pyarrow":
                return library("pyarrow").concat_tables(pieces)
    return [row for piece in pieces for row in rows_of(piece)]


def _can_join(pieces: Sequence[Block]) -> bool:
    """Return whether blocks of one form can be joined as they are."""
    first, *others = pieces
    match form_of(first):
        case "rows":
            return True
        case "pyarrow":
            return all(piece.schema.equals(first.schema) for piece in others)
        case _:
            return all(names_of(piece) == names_of(first) for piece in others)


def rows_of(block: Block) -> list[Row]:
    """Return a block's rows as dicts."""
    match form_of(block):
        case "rows":
            return block  # type: ignore[no-any-return]
        case "numpy":
            columns = [values_of(array) for array in block.values()]
            return [dict(zip(block, values, strict=True)) for values in zip(*columns, strict=True)]
        case "pandas":
            return block.to_dict("records")  # type: ignore[no-any-return]
        case "pyarrow":
            return _rows_of_table(block)


def _rows_of_table(table: Any) -> list[Row]:
    """Return a table's rows; tensors of a fixed shape become arrays of that shape."""
    kind = library("pyarrow").FixedShapeTensorType
    tensors = [field.name for field in table.schema if isinstance(field.type, kind)]
    if not tensors:
        return table.to_pylist()  # type: ignore[no-any-return]
    rows = (
        table.drop_columns(tensors).to_pylist()
        if len(tensors) < table.num_columns
        else [{}] * len(table)
    )
    arrays = {name: list(from_arrow(table[name])) for name in tensors}
    return [
        {name: arrays[name][number] if name in arrays else row[name] for name in table.column_names}
        for number, row in enumerate(rows)
    ]


def _as_numpy(block: Block) -> Block:
    names = names_of(block)
    match form_of(block):
        case "pandas":
            return {name: from_series(block[name]) for name in names}
        case "pyarrow":
            return {name: from_arrow(block[name]) for name in names}
        case _:
            return {name: column([row.get(name) for row in block]) for name in names}


def _as_pandas(block: Block) -> Block:
    match form_of(block):
        case "numpy":
            flat = {name: list(a) if a.ndim > 1 else a for name, a in block.items()}
            return library("pandas").DataFrame(flat)
        case "pyarrow":
            return block.to_pandas()
        case _:
            return library("pandas").DataFrame(block)


def _as_arrow(block: Block) -> Block:
    pa = library("pyarrow")
    match form_of(block):
        case "pandas":
            return pa.Table.from_pandas(block, preserve_index=False)
        case "numpy":
            return pa.table({name: to_arrow(array) for name, array in block.items()})
        case _:
            return pa.table({name: _arrow_column(block, name) for name in names_of(block)})


def _arrow_column(rows: Sequence[Row], name: str) -> Any:
    values = [row.get(name) for row in rows]
    if any(hasattr(value, "__array__") for value in values):
        return to_arrow(column(values))
    return library("pyarrow").array(values)


def block_from(value: object, *, of: str) -> Block:
    """Return a user's batch as a block; `of` names its origin in errors."""
    if isinstance(value, dict):
        return _columns_from(value, of=of)
    if is_instance(value, "pandas", "DataFrame"):
        return with_text_names(value)
    if is_instance(value, "pyarrow", "Table"):
        return value
    if is_instance(value, "pyarrow", "RecordBatch"):
        return library("pyarrow").Table.from_batches([value])
    raise ConfigError(
        f"{of} returned {type(value).__name__}: a batch is a dict of arrays, a pandas DataFrame or"
        " a pyarrow Table",
        hint="return a dict of column names and arrays; for single rows use map",
    )


def with_text_names(frame: Any) -> Any:
    """Return a DataFrame whose column names are strings; pandas allows anything."""
    if all(isinstance(name, str) for name in frame.columns):
        return frame
    return frame.set_axis([str(name) for name in frame.columns], axis=1)


def _columns_from(batch: dict[Any, Any], *, of: str) -> Block:
    np = library("numpy")
    columns: dict[str, Any] = {}
    for name, values in batch.items():
        array = column(values) if isinstance(values, list | tuple) else np.asarray(values)
        if array.ndim == 0:
            raise ConfigError(
                f"{of} returned {type(values).__name__} for column {name!r}: a column of a batch"
                " has one value for each row",
                hint="return an array or a list",
            )
        columns[str(name)] = array
    if len({len(array) for array in columns.values()}) > 1:
        lengths = ", ".join(f"{name!r} has {len(array)}" for name, array in columns.items())
        raise ConfigError(f"{of} returned columns of different lengths: {lengths}")
    return columns
