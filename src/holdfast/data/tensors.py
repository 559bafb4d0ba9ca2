"""Makes batches of torch tensors; torch is imported with the first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.data.column_steps import check_columns
from holdfast.data.libraries import library
from holdfast.errors import ConfigError


class TensorMaker:
    """Makes tensors from a batch of numpy arrays, for `iter_torch_batches`."""

    def __init__(
        self, dtypes: Any, device: Any, collate_fn: Callable[[dict[str, Any]], Any] | None
    ) -> None:
        if collate_fn is not None and dtypes is not None:
            raise ConfigError(
                "collate_fn and dtypes were given, but both determine the types of tensors",
                hint="leave out dtypes and make the tensors you want in collate_fn",
            )
        self._dtypes, self._device, self._collate = dtypes, device, collate_fn

    def __call__(self, batch: dict[str, Any]) -> Any:
        if self._collate is not None:
            result = self._collate(batch)
            return result if self._device is None else _moved(result, self._device)
        if isinstance(self._dtypes, Mapping):
            check_columns(self._dtypes, batch)
        return {name: self._tensor(name, array) for name, array in batch.items()}

    def _tensor(self, name: str, array: Any) -> Any:
        dtypes = self._dtypes
        wanted = dtypes.get(name) if isinstance(dtypes, Mapping) else dtypes
        try:
            return library("torch").as_tensor(array, dtype=wanted, device=self._device)
        except TypeError as error:
            if array.dtype.kind in "biufc":
                raise  # the column is not the cause
            raise ConfigError(
                f"column {name!r} has {_kind(array)}, which torch cannot make a tensor of",
                hint=f"drop_columns([{name!r}]), map it to numbers, or pass a collate_fn",
            ) from error


def _kind(array: Any) -> str:
    if array.dtype != object:
        return f"values of type {array.dtype}"
    kinds = sorted({type(value).__name__ for value in array})
    return f"values of type {', '.join(kinds)}, of no single shape"


def _moved(value: Any, device: Any) -> Any:
    """Return a collate function's result with its tensors moved to `device`."""
    if isinstance(value, library("torch").Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {name: _moved(item, device) for name, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_moved(item, device) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(_moved(item, device) for item in value)
    return value
