"""Batches of torch tensors, made without importing torch before one is wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.data.column_steps import check_columns
from holdfast.data.libraries import library
from holdfast.errors import ConfigError


class TensorMaker:
    """Makes tensors of a batch of numpy arrays, as `iter_torch_batches` was told."""

    def __init__(
        self, dtypes: Any, device: Any, collate_fn: Callable[[dict[str, Any]], Any] | None
    ) -> None:
        if collate_fn is not None and dtypes is not None:
            raise ConfigError(
                "collate_fn and dtypes were given, and both decide the types of tensors",
                hint="leave out dtypes and make the tensors you want in collate_fn",
            )
        self._dtypes, self._device, self._collate = dtypes, device, collate_fn

    def __call__(self, batch: dict[str, Any]) -> Any:
        if self._collate is not None:
            made = self._collate(batch)
            return made if self._device is None else _moved(made, self._device)
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
                raise  # not the column's fault
            raise ConfigError(
                f"column {name!r} has {_kind(array)}, of which torch makes no tensor",
                hint=f"drop_columns([{name!r}]), map it to numbers, or pass a collate_fn",
            ) from error


def _kind(array: Any) -> str:
    if array.dtype != object:
        return f"values of type {array.dtype}"
    kinds = sorted({type(value).__name__ for value in array})
    return f"values of type {', '.join(kinds)}, of no single shape"


def _moved(made: Any, device: Any) -> Any:
    """Return what a collate function made, its tensors moved to `device`."""
    if isinstance(made, library("torch").Tensor):
        return made.to(device)
    if isinstance(made, dict):
        return {name: _moved(value, device) for name, value in made.items()}
    if isinstance(made, tuple) and hasattr(made, "_fields"):
        return type(made)(*(_moved(value, device) for value in made))
    if isinstance(made, list | tuple):
        return type(made)(_moved(value, device) for value in made)
    return made
