"""Converts the values of a column to a numpy array, and arrays to Arrow.

The same rule for all sources: numbers become an array of numbers, values of one shape an array with
more dimensions, a missing number becomes NaN, and everything else an array of objects; so do whole
numbers that would lose digits as floats. An array is always writable and shares no memory with its
source.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.data.libraries import library

_NUMBERS = frozenset({bool, int, float, complex})
_MAY_BE_MISSING = frozenset({int, float})
_KINDS_OF_NUMBERS = "biufc"
_FLOAT_MAX = 2**53  # up to here, a float represents every whole number


def column(values: Sequence[Any]) -> Any:
    """Return the values of a column as an array."""
    np = library("numpy")
    kinds = set(map(type, values))
    if kinds <= _NUMBERS or all(issubclass(kind, np.generic) for kind in kinds):
        return np.array(values)
    present = kinds - {type(None)}
    if present and present <= _MAY_BE_MISSING and all(map(_is_exact_as_float, values)):
        return np.array([np.nan if value is None else value for value in values], dtype=float)
    if all(_is_like_an_array(kind) for kind in kinds):
        return _stacked(values)
    return _objects(values)


def from_series(series: Any) -> Any:
    """Return a pandas Series as an array."""
    values = series.to_numpy()
    if values.dtype != object:
        return values.copy()
    missing = series.isna()  # pandas has several values that mean missing
    return column([None if no else value for value, no in zip(values, missing, strict=True)])


def from_arrow(values: Any) -> Any:
    """Return an Arrow ChunkedArray as an array."""
    np, pa = library("numpy"), library("pyarrow")
    if isinstance(values.type, pa.FixedShapeTensorType) and values.num_chunks:
        return np.concatenate([chunk.to_numpy_ndarray() for chunk in values.chunks])
    if pa.types.is_fixed_size_list(values.type) and not values.null_count:
        flat = pa.chunked_array(
            [chunk.flatten() for chunk in values.chunks], values.type.value_type
        )
        inner = from_arrow(flat)
        return inner.reshape(len(values), values.type.list_size, *inner.shape[1:])
    if values.null_count and pa.types.is_integer(values.type):
        return column(values.to_pylist())
    array = values.to_numpy()
    if array.dtype == object:
        return column(array.tolist())
    return array if array.flags.writeable else array.copy()


def to_arrow(values: Any) -> Any:
    """Return an array as an Arrow Array; further dimensions become lists of a fixed size."""
    pa = library("pyarrow")
    if values.ndim == 1 and values.dtype != object:
        return pa.array(values)
    if values.ndim > 1 and values.size:
        inner = to_arrow(values.reshape(-1, *values.shape[2:]))
        return pa.FixedSizeListArray.from_arrays(inner, values.shape[1])
    return pa.array([_plain(value) for value in values])


def joined_arrays(arrays: Sequence[Any]) -> Any:
    """Return the values of several arrays as one."""
    np = library("numpy")
    if len({array.shape[1:] for array in arrays}) > 1:
        return column([value for array in arrays for value in array])
    if _can_concatenate(arrays):
        return np.concatenate(arrays)
    return _objects([value for array in arrays for value in values_of(array)])


def _can_concatenate(arrays: Sequence[Any]) -> bool:
    """Whether arrays can be joined without changing a value, such as 1 to "1" or True to 1."""
    kinds = {array.dtype.kind for array in arrays}
    if len(kinds) == 1:
        return True
    if not kinds <= set("iuf"):
        return False
    if "f" not in kinds:
        return library("numpy").result_type(*arrays).kind in "iu"
    return all(_is_exact_as_float(value) for array in arrays for value in _extremes(array))


def _extremes(array: Any) -> list[Any]:
    return [] if array.dtype.kind == "f" or not array.size else [array.min(), array.max()]


def _is_exact_as_float(value: Any) -> bool:
    return value is None or isinstance(value, float) or -_FLOAT_MAX <= int(value) <= _FLOAT_MAX


def values_of(array: Any) -> list[Any]:
    """Return an array's values as rows hold them: Python numbers and strings, else arrays."""
    if array.ndim == 1 and array.dtype.kind in f"{_KINDS_OF_NUMBERS}USO":
        return array.tolist()  # type: ignore[no-any-return]
    return list(array)


def _is_like_an_array(kind: type) -> bool:
    return kind is list or hasattr(kind, "__array__")


def _stacked(values: Sequence[Any]) -> Any:
    """Return values of one shape as one array, others as an array of objects."""
    np = library("numpy")
    try:
        arrays = [np.asarray(value) for value in values]
    except ValueError:  # a list with parts of different lengths
        return _objects(values)
    same_shape = len({array.shape for array in arrays}) == 1
    if same_shape and all(array.dtype.kind in _KINDS_OF_NUMBERS for array in arrays):
        return np.stack(arrays)
    return _objects(values)


def _objects(values: Sequence[Any]) -> Any:
    """Return an array of objects, filled one by one, so that numpy does not look inside them."""
    array = library("numpy").empty(len(values), dtype=object)
    for place, value in enumerate(values):
        array[place] = value
    return array


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value
