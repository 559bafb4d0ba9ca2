"""Blocks: some rows of a dataset, in one of four forms.

A block is a list of dicts, a dict of numpy arrays, a pandas DataFrame or an Arrow table: whatever
the source or the user's function returned, so that nothing is converted before another form is
needed. `conversion.py` converts between them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from holdfast.data.libraries import is_instance, library
from holdfast.data.selection import Wanted, cut, indices, within
from holdfast.errors import HoldfastBug

Row = dict[str, Any]
Block = Any  # list[Row] | dict[str, numpy.ndarray] | pandas.DataFrame | pyarrow.Table
Form = Literal["rows", "numpy", "pandas", "pyarrow"]

CHUNK_ROWS = 512  # how many rows flow through a plan at once

_IMMUTABLE = frozenset({bool, int, float, complex, str, bytes, type(None)})


def form_of(block: Block) -> Form:
    """Return which of the four forms a block has."""
    if isinstance(block, list):
        return "rows"
    if isinstance(block, dict):
        return "numpy"
    if is_instance(block, "pandas", "DataFrame"):
        return "pandas"
    if is_instance(block, "pyarrow", "Table"):
        return "pyarrow"
    raise HoldfastBug(f"{type(block).__name__} is not a block")


def size_of(block: Block) -> int:
    """Return how many rows a block has."""
    if isinstance(block, dict):
        return len(next(iter(block.values()))) if block else 0
    return len(block)


def names_of(block: Block) -> list[str]:
    """Return the names of a block's columns, in order."""
    match form_of(block):
        case "rows":
            return list(dict.fromkeys(name for row in block for name in row))
        case "numpy":
            return list(block)
        case "pandas":
            return list(block.columns)
        case "pyarrow":
            return list(block.column_names)


def take(block: Block, wanted: Wanted) -> Block:
    """Return rows of a block, by their numbers in it; an array may have any order."""
    if isinstance(wanted, range):
        return _sliced(block, wanted)
    match form_of(block):
        case "rows":
            return [block[number] for number in wanted.tolist()]
        case "numpy":
            return {name: values[wanted] for name, values in block.items()}
        case "pandas":
            return block.iloc[wanted]
        case "pyarrow":
            return block.take(library("pyarrow").array(wanted))


def _sliced(block: Block, wanted: range) -> Block:
    piece = slice(wanted.start, wanted.stop, wanted.step)
    match form_of(block):
        case "rows":
            return block[piece]
        case "numpy":
            return {name: values[piece] for name, values in block.items()}
        case "pandas":
            return block.iloc[piece]
        case "pyarrow" if wanted.step == 1 or len(wanted) == 0:
            return block.slice(wanted.start, len(wanted))
        case "pyarrow":
            return block.take(library("pyarrow").array(indices(wanted)))


def chunks(block: Block, rows: int = CHUNK_ROWS) -> Iterator[Block]:
    """Yield a block in pieces of at most `rows` rows."""
    if size_of(block) <= rows:
        yield block
        return
    for piece in cut(range(size_of(block)), rows):
        yield take(block, piece)


def picked(blocks: Iterable[Block], wanted: Wanted) -> Iterator[Block]:
    """Yield the wanted rows of a stream; reading stops at the last of them."""
    if not len(wanted):
        return
    low, final = 0, int(wanted[-1])
    for block in blocks:
        high = low + size_of(block)
        here = within(wanted, low, high)
        if len(here):
            yield take(block, here)
        low = high
        if low > final:
            return


def regrouped(blocks: Iterable[Block], sizes: Iterable[int]) -> Iterator[list[Block]]:
    """Yield the rows of a stream in groups of the given sizes, each as pieces of blocks.

    The last group is smaller if the stream ends inside it. No group is empty.
    """
    asked = iter(sizes)
    missing = next(asked, None)
    group: list[Block] = []
    for block in blocks:
        low, size = 0, size_of(block)
        while low < size and missing is not None:
            high = min(size, low + missing)
            group.append(block if high - low == size else take(block, range(low, high)))
            missing -= high - low
            low = high
            if missing == 0:
                yield group
                group, missing = [], next(asked, None)
        if missing is None:
            return
    if group:
        yield group


def owned(block: Block) -> Block:
    """Return a copy that may be written to without changing the original.

    User functions change what they get in place, and a source is read again in the next epoch.
    """
    match form_of(block):
        case "rows":
            return [{name: own(value) for name, value in row.items()} for row in block]
        case "numpy":
            return {name: _own_array(values) for name, values in block.items()}
        case "pandas":
            frame = block.copy()
            for place, kind in enumerate(frame.dtypes):
                if str(kind) == "object":
                    values = [own(value) for value in frame.iloc[:, place]]
                    series = library("pandas").Series(values, index=frame.index, dtype=object)
                    frame.isetitem(place, series)
            return frame
        case "pyarrow":
            return block  # cannot be written to


def unaliased(block: Block, taken: Block) -> Block:
    """Return a block that a function made from `taken`, with copies of what it may have kept.

    Arrays in the memory of `taken` are not copied: the reader owns them already.
    """
    match form_of(block):
        case "numpy":
            arrays = list(taken.values()) if form_of(taken) == "numpy" else []
            return {
                name: values if _shares_memory(values, arrays) else _own_array(values)
                for name, values in block.items()
            }
        case "pandas" if block is not taken:
            return owned(block)
        case _:
            return block


def _shares_memory(values: Any, arrays: list[Any]) -> bool:
    np = library("numpy")
    return values.dtype != object and any(np.may_share_memory(values, array) for array in arrays)


def own(value: Any) -> Any:
    """Return a copy of a value that may be written to; immutable values are not copied."""
    kind = type(value)
    if kind in _IMMUTABLE:
        return value
    if kind is tuple or kind is list:
        return kind(map(own, value))
    if kind is dict:
        return {name: own(inner) for name, inner in value.items()}
    if is_instance(value, "torch", "Tensor"):
        # Not a deep copy: that of a view would copy the whole tensor behind it.
        tensor = value.clone()
        return tensor.detach().requires_grad_(value.requires_grad) if value.is_leaf else tensor
    if is_instance(value, "numpy", "ndarray"):
        return _own_array(value)
    try:
        return copy.deepcopy(value)
    except TypeError:  # an open file or a lock, which cannot be copied
        return value


def _own_array(values: Any) -> Any:
    return copy.deepcopy(values) if values.dtype == object else values.copy()
