"""Training with PyTorch: a trainer, and the functions that training functions call.

`TorchTrainer` and `TorchConfig` do not import torch, because a driver often has no other use for
it. Users import all names from `holdfast.train.torch`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.frameworks.torch.checkpoint import TorchCheckpoint as TorchCheckpoint
    from holdfast.frameworks.torch.config import TorchConfig as TorchConfig
    from holdfast.frameworks.torch.devices import get_device as get_device
    from holdfast.frameworks.torch.devices import get_devices as get_devices
    from holdfast.frameworks.torch.loaders import prepare_data_loader as prepare_data_loader
    from holdfast.frameworks.torch.models import prepare_model as prepare_model
    from holdfast.frameworks.torch.older import accelerate as accelerate
    from holdfast.frameworks.torch.older import backward as backward
    from holdfast.frameworks.torch.older import prepare_optimizer as prepare_optimizer
    from holdfast.frameworks.torch.process_group import ProcessGroupError as ProcessGroupError
    from holdfast.frameworks.torch.randomness import (
        enable_reproducibility as enable_reproducibility,
    )
    from holdfast.frameworks.torch.randomness import rng_state as rng_state
    from holdfast.frameworks.torch.randomness import set_rng_state as set_rng_state
    from holdfast.frameworks.torch.sampler import ResumableSampler as ResumableSampler
    from holdfast.frameworks.torch.trainer import TorchTrainer as TorchTrainer
else:
    from holdfast.lazy_exports import lazy_exports

    _NAMES = {
        "holdfast.frameworks.torch.checkpoint": "TorchCheckpoint",
        "holdfast.frameworks.torch.config": "TorchConfig",
        "holdfast.frameworks.torch.devices": "get_device get_devices",
        "holdfast.frameworks.torch.loaders": "prepare_data_loader",
        "holdfast.frameworks.torch.models": "prepare_model",
        "holdfast.frameworks.torch.older": "accelerate backward prepare_optimizer",
        "holdfast.frameworks.torch.process_group": "ProcessGroupError",
        "holdfast.frameworks.torch.randomness": "enable_reproducibility rng_state set_rng_state",
        "holdfast.frameworks.torch.sampler": "ResumableSampler",
        "holdfast.frameworks.torch.trainer": "TorchTrainer",
    }
    __all__, __getattr__, __dir__ = lazy_exports(__name__, _NAMES)
