"""`prepare_model`: moves a model to a worker's device and wraps it for distributed training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from holdfast.api.checks import this_is
from holdfast.core.names import shown
from holdfast.errors import ConfigError
from holdfast.frameworks.torch.devices import get_device, world_size
from holdfast.frameworks.torch.older import with_mixed_precision


def prepare_model(
    model: nn.Module,
    move_to_device: bool | str | torch.device = True,  # noqa: FBT001, FBT002  # as users know it
    parallel_strategy: Literal["ddp", "fsdp"] | None = "ddp",
    parallel_strategy_kwargs: Mapping[str, Any] | None = None,
) -> nn.Module:
    """Return the model on this worker's device, wrapped if there are other ranks.

    A single worker, or a call outside a training function, gets the model without a wrapper.

    Args:
        model: The model; moving it changes it in place.
        move_to_device: Whether to move it, or the device to move it to.
        parallel_strategy: "ddp" keeps a whole model on every rank, "fsdp" a part of it, which
            needs GPUs; None does not wrap it.
        parallel_strategy_kwargs: Passed on to the wrapper.
    """
    _check_arguments(model, parallel_strategy)
    ranks = world_size("prepare_model")
    if isinstance(move_to_device, str):
        move_to_device = torch.device(move_to_device)
    device = move_to_device if isinstance(move_to_device, torch.device) else get_device()
    if isinstance(move_to_device, torch.device) or move_to_device:
        model = model.to(device)
    model = with_mixed_precision(model, device)
    if ranks == 1 or parallel_strategy is None:
        return model
    extra = dict(parallel_strategy_kwargs or {})
    if parallel_strategy == "ddp":
        on_gpu = {"device_ids": [device], "output_device": device} if device.type == "cuda" else {}
        return DistributedDataParallel(model, **{**on_gpu, **extra})
    return _sharded(model, device, extra)


def _sharded(model: nn.Module, device: torch.device, extra: dict[str, Any]) -> nn.Module:
    if device.type == "cpu":
        raise ConfigError(
            "parallel_strategy='fsdp': torch shards models on GPUs only, and this worker has none",
            hint="set ScalingConfig(use_gpu=True), or use 'ddp'",
        )
    from torch.distributed.fsdp import FullyShardedDataParallel  # slow to import

    return FullyShardedDataParallel(model, **extra)


def _check_arguments(model: object, strategy: object) -> None:
    if not isinstance(model, nn.Module):
        raise ConfigError(
            f"model={shown(model)} is not a torch.nn.Module, {this_is(model)}",
            hint="pass the model itself",
        )
    if strategy not in ("ddp", "fsdp", None):
        raise ConfigError(f"parallel_strategy={shown(strategy)}: must be 'ddp', 'fsdp' or None")
