"""The devices of this worker, its rank, and how many ranks it trains with."""

from __future__ import annotations

import torch
import torch.distributed as dist

from holdfast.errors import ConfigError
from holdfast.worker.context import current


def get_device() -> torch.device:
    """Return the device that this worker computes on, the first one if it has several.

    Outside a training function, that is the first GPU, or the CPU if there is none.
    """
    return get_devices()[0]


def get_devices() -> list[torch.device]:
    """Return the devices that this worker computes on: its GPUs, or the CPU if it has none."""
    context = current()
    if context is None:
        return [torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")]
    gpus = context.place.gpus
    if gpus is None:
        return [torch.device("cpu")]
    numbers = indices(gpus, torch.cuda.device_count(), rank=context.place.rank)
    return [torch.device("cuda", number) for number in numbers]


def indices(gpus: tuple[str, ...], visible: int, *, rank: int) -> list[int]:
    """Return the numbers by which torch addresses a worker's GPUs.

    A process that sees only its own GPUs counts them from 0; one that sees all of its node uses the
    node's numbers.
    """
    if len(gpus) == visible:
        return list(range(visible))
    numbers = [int(name) for name in gpus if name.isdecimal()]
    if len(numbers) == len(gpus) and max(numbers, default=visible) < visible:
        return numbers
    raise ConfigError(
        f"rank {rank} was given the GPUs {', '.join(gpus) or '(none)'}, but torch sees"
        f" {visible} of them",
        hint="check that torch was built for CUDA, and the value of CUDA_VISIBLE_DEVICES",
    )


def world_size(asker: str) -> int:
    """Return how many ranks this process trains with; 1 outside a training function.

    Raises `RuntimeError` if there are other workers but no process group.
    """
    if dist.is_available() and dist.is_initialized():
        return dist.get_world_size()
    context = current()
    if context is None or context.place.world_size == 1:
        return 1
    raise RuntimeError(
        f"holdfast.train.torch.{asker}() found {context.place.world_size} workers and no process"
        " group: run this function with TorchTrainer, which makes one"
    )


def rank() -> int:
    """Return this process's rank among those it trains with."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
