"""Training with PyTorch: a trainer, and what its training functions call.

`TorchTrainer` and `TorchConfig` are to be had without torch being imported, because a driver often
has no other use for it. Users find all names in `holdfast.train.torch`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.frameworks.torch.checkpoint import TorchCheckpoint
    from holdfast.frameworks.torch.config import TorchConfig
    from holdfast.frameworks.torch.devices import get_device, get_devices
    from holdfast.frameworks.torch.loaders import prepare_data_loader
    from holdfast.frameworks.torch.models import prepare_model
    from holdfast.frameworks.torch.older import accelerate, backward, prepare_optimizer
    from holdfast.frameworks.torch.process_group import ProcessGroupError
    from holdfast.frameworks.torch.randomness import (
        enable_reproducibility,
        rng_state,
        set_rng_state,
    )
    from holdfast.frameworks.torch.sampler import ResumableSampler
    from holdfast.frameworks.torch.trainer import TorchTrainer

__all__ = [
    "ProcessGroupError",
    "ResumableSampler",
    "TorchCheckpoint",
    "TorchConfig",
    "TorchTrainer",
    "accelerate",
    "backward",
    "enable_reproducibility",
    "get_device",
    "get_devices",
    "prepare_data_loader",
    "prepare_model",
    "prepare_optimizer",
    "rng_state",
    "set_rng_state",
]

_HOMES = {
    "ProcessGroupError": "process_group",
    "ResumableSampler": "sampler",
    "TorchCheckpoint": "checkpoint",
    "TorchConfig": "config",
    "TorchTrainer": "trainer",
    "accelerate": "older",
    "backward": "older",
    "enable_reproducibility": "randomness",
    "get_device": "devices",
    "get_devices": "devices",
    "prepare_data_loader": "loaders",
    "prepare_model": "models",
    "prepare_optimizer": "older",
    "rng_state": "randomness",
    "set_rng_state": "randomness",
}

if not TYPE_CHECKING:  # hidden from type checkers, which would take any name for a good one

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
