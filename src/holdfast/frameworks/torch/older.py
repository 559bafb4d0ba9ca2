"""Deprecated functions for mixed precision; they work, and their warnings name torch's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from types import MethodType
from typing import Any

import torch
from torch import nn

from holdfast.api.deprecated import warn_deprecated


@dataclass
class _Precision:
    """Whether this process trains with mixed precision, and the scaler of its losses."""

    mixed: bool = False
    scaler: torch.amp.GradScaler | None = None


_precision = _Precision()


def accelerate(amp: bool = False) -> None:  # noqa: FBT001, FBT002  # as users know it
    """Make `prepare_model`, `prepare_optimizer` and `backward` use mixed precision, if `amp`.

    This is half precision with scaled losses on GPUs, bfloat16 on CPUs. Deprecated: use
    `torch.autocast`.
    """
    warn_deprecated("holdfast.train.torch.accelerate is deprecated; use torch.autocast")
    _precision.mixed = bool(amp)
    _precision.scaler = None
    if amp and torch.cuda.is_available():
        _precision.scaler = torch.amp.GradScaler("cuda")


def prepare_optimizer(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Return the optimizer, changed to step with losses that `backward` has scaled.

    Deprecated: use `torch.amp.GradScaler` where it is needed.
    """
    warn_deprecated(
        "holdfast.train.torch.prepare_optimizer is deprecated; use the optimizer itself, with"
        " torch.amp.GradScaler where precision is mixed on a GPU"
    )
    if _precision.scaler is not None:
        vars(optimizer)["step"] = _scaled_step(optimizer, _precision.scaler)
    return optimizer


def backward(tensor: torch.Tensor) -> None:
    """Compute the gradients of a loss, scaled if precision is mixed on a GPU.

    Deprecated: use `loss.backward()`.
    """
    warn_deprecated("holdfast.train.torch.backward is deprecated; use loss.backward()")
    loss = tensor if _precision.scaler is None else _precision.scaler.scale(tensor)
    loss.backward()  # type: ignore[no-untyped-call]


def with_mixed_precision(model: nn.Module, device: torch.device) -> nn.Module:
    """Return the model, changed to compute with mixed precision if `accelerate(amp=True)`."""
    if _precision.mixed:
        vars(model)["forward"] = _Autocast(model.forward, device.type)
    return model


@dataclass
class _Autocast:
    """A model's forward pass with mixed precision; a class, so that the model can be pickled."""

    forward: Callable[..., Any]
    device_type: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        kind = torch.bfloat16 if self.device_type == "cpu" else torch.float16
        with torch.autocast(self.device_type, dtype=kind):
            return self.forward(*args, **kwargs)


def _scaled_step(optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler) -> MethodType:
    """Return an optimizer step that goes through the scaler, which in turn calls `step`.

    It is a method, because learning-rate schedulers wrap it as one.
    """
    plain_step, is_inside = optimizer.step, False

    @wraps(plain_step)
    def step(_: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        nonlocal is_inside
        if is_inside:
            return plain_step(*args, **kwargs)
        is_inside = True
        try:
            result = scaler.step(optimizer, *args, **kwargs)
        finally:
            is_inside = False
        scaler.update()
        return result

    return MethodType(step, optimizer)
