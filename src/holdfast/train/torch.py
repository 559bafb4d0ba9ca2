"""Training with PyTorch, by the names its users know; torch is loaded when it is first needed.

The code is in `holdfast.frameworks.torch`, above this package, so it is asked for by name; what
type checkers are to see of it is in `torch.pyi`.
"""

from __future__ import annotations

from importlib import import_module

_NAMES = (
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
)
__all__ = list(_NAMES)


def __getattr__(name: str) -> object:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module("holdfast.frameworks.torch"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
