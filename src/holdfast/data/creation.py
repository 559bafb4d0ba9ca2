"""Makes datasets from items, arrays, tables, files and the datasets of other libraries.

Ray's arguments about parallelism are accepted and have no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.data.blocks import Row
from holdfast.data.checks import check_placement, whole
from holdfast.data.conversion import with_text_names
from holdfast.data.dataset import Dataset
from holdfast.data.files import CSV, JSON, Paths, parquet_plan, text_plan
from holdfast.data.libraries import is_instance, library
from holdfast.data.sources import HuggingFace, Items, Numbers, in_memory
from holdfast.errors import ConfigError


def from_items(items: Iterable[Any], **placement: Any) -> Dataset:
    """Return a dataset with a row for each item; other items than dicts become `{"item": …}`."""
    check_placement(placement, "from_items")
    if isinstance(items, str | bytes | Mapping):
        raise ConfigError(
            f"from_items got {type(items).__name__}: it needs a list with one item per row",
            hint="put it into a list",
        )
    rows = [_row(item) for item in items]
    names = dict.fromkeys(name for row in rows for name in row)
    if any(len(row) < len(names) for row in rows):
        rows = [{name: row.get(name) for name in names} for row in rows]
    return Dataset(in_memory([rows]))


def from_numpy(ndarrays: Any, *, column: str = "data") -> Dataset:
    """Return a dataset with a row for each entry of an array's first axis, or of several arrays."""
    np = library("numpy")
    arrays = ndarrays if isinstance(ndarrays, list | tuple) else [ndarrays]
    for array in arrays:
        if not isinstance(array, np.ndarray) or array.ndim == 0:
            raise ConfigError(
                f"from_numpy got {type(array).__name__}: it needs an array of at least one"
                " dimension, or a list of such"
            )
    return Dataset(in_memory(({column: array} for array in arrays), is_users=True))


def from_pandas(dfs: Any) -> Dataset:
    """Return a dataset of the rows of a DataFrame, or of several; an index is left out."""
    frames = dfs if isinstance(dfs, list | tuple) else [dfs]
    _check_kinds("from_pandas", frames, "pandas", "DataFrame")
    return Dataset(in_memory((with_text_names(frame) for frame in frames), is_users=True))


def from_arrow(tables: Any) -> Dataset:
    """Return a dataset of the rows of a pyarrow Table, or of several."""
    table_list = tables if isinstance(tables, list | tuple) else [tables]
    _check_kinds("from_arrow", table_list, "pyarrow", "Table")
    return Dataset(in_memory(table_list))


def from_torch(dataset: Any, *, local_read: bool = False) -> Dataset:  # noqa: ARG001
    """Return a dataset with a row `{"item": …}` for each item of a map-style torch dataset."""
    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise ConfigError(
            f"from_torch got {type(dataset).__name__}: it needs a map-style dataset, one with"
            " __getitem__ and __len__",
            hint="from_items(list(dataset)), if it fits in memory",
        )
    return Dataset(Items(items=dataset))


def from_huggingface(dataset: Any) -> Dataset:
    """Return a dataset of the rows of a Hugging Face `datasets.Dataset`."""
    if isinstance(dataset, Mapping):
        splits = ", ".join(map(repr, dataset))
        raise ConfigError(
            f"from_huggingface got {type(dataset).__name__} of {splits}: it needs one of them",
            hint=f"dataset[{next(iter(dataset), 'train')!r}]",
        )
    if not (hasattr(dataset, "with_format") and hasattr(dataset, "num_rows")):
        raise ConfigError(
            f"from_huggingface got {type(dataset).__name__}: it needs a datasets.Dataset with a"
            " known number of rows",
            hint="load it without streaming=True",
        )
    return Dataset(HuggingFace(dataset=dataset))


def range(n: int, **placement: Any) -> Dataset:  # noqa: A001  # Ray's name for it
    """Return a dataset of the rows `{"id": 0}` to `{"id": n - 1}`."""
    check_placement(placement, "range")
    return Dataset(Numbers(rows=whole("n", n, "it is how many rows to make", at_least=0)))


def read_parquet(
    paths: Paths,
    *,
    columns: Sequence[str] | None = None,
    filesystem: Any = None,
    **placement: Any,
) -> Dataset:
    """Return a dataset of the rows in Parquet files, read a row group at a time.

    Args:
        paths: Files, or folders with all files below that end with .parquet; URIs work too.
        columns: Which columns to read; None reads all.
        filesystem: A filesystem of pyarrow or fsspec, that `paths` belong to.
        **placement: How Ray would split the work; has no effect here.
    """
    check_placement(placement, "read_parquet")
    return Dataset(parquet_plan(paths, columns, filesystem))


def read_csv(paths: Paths, *, filesystem: Any = None, **arrow_csv_args: Any) -> Dataset:
    """Return a dataset of the rows in CSV files, read one file at a time.

    Args:
        paths: Files, or folders with all files below that end with .csv; URIs work too.
        filesystem: A filesystem of pyarrow or fsspec, that `paths` belong to.
        **arrow_csv_args: Arguments of `pyarrow.csv.read_csv`: `read_options`, `parse_options` …
    """
    options = _arrow_options("read_csv", arrow_csv_args)
    return Dataset(text_plan(paths, "CSV", CSV, filesystem, options))


def read_json(paths: Paths, *, filesystem: Any = None, **arrow_json_args: Any) -> Dataset:
    """Return a dataset of the rows in JSON files: one object per line, or one list of objects.

    Args:
        paths: Files, or folders with all files below that end with .json or .jsonl.
        filesystem: A filesystem of pyarrow or fsspec, that `paths` belong to.
        **arrow_json_args: Arguments of `pyarrow.json.read_json`.
    """
    options = _arrow_options("read_json", arrow_json_args)
    return Dataset(text_plan(paths, "JSON", JSON, filesystem, options))


def _arrow_options(of: str, given: Mapping[str, Any]) -> dict[str, Any]:
    options = {"read_options", "parse_options", "convert_options", "memory_pool"}
    check_placement(given.keys() - options, of)
    return {name: value for name, value in given.items() if name in options}


def _row(item: Any) -> Row:
    if not isinstance(item, Mapping):
        return {"item": item}
    for name in item:
        if not isinstance(name, str):
            raise ConfigError(f"a row has a column {name!r}: a column name must be a string")
    return dict(item)


def _check_kinds(of: str, given: Sequence[Any], module: str, kind: str) -> None:
    for value in given:
        if not is_instance(value, module, kind):
            raise ConfigError(
                f"{of} got {type(value).__name__}: it needs a {module}.{kind}, or a list of such"
            )
