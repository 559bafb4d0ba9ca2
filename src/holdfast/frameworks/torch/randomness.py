"""Random numbers: reproducible ones, and the state to save and restore with a checkpoint."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from typing import Any

import torch

from holdfast.errors import ConfigError
from holdfast.settings import add_to_environment


def enable_reproducibility(seed: int = 0) -> None:
    """Make this process draw the same numbers, and compute the same results, every time.

    Seeds Python, numpy and torch, and makes torch use deterministic algorithms only; an operation
    that has none raises. For different numbers on each rank, pass different seeds. A resumed run
    must also restore its position in the sequence: see `rng_state`.
    """
    torch.manual_seed(seed)
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed % 2**32)
    torch.use_deterministic_algorithms(True)  # noqa: FBT003  # torch's own signature
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    add_to_environment({"CUBLAS_WORKSPACE_CONFIG": ":4096:8"})  # cuBLAS requires it


def rng_state() -> dict[str, Any]:
    """Return the states of this process's random generators: Python's, numpy's, torch's.

    Save it with every checkpoint, each rank its own (`rng-{rank}.pt`), with `torch.save`; it holds
    only plain data and tensors, so that `torch.load(…, weights_only=True)` reads it.

    A `DataLoader` draws a number each time it is iterated; give it its own `generator`, or a
    resumed epoch draws one more than it would have.
    """
    version, internal, gauss = random.getstate()
    state: dict[str, Any] = {
        "python": [version, list(internal), gauss],
        "torch": torch.get_rng_state(),
    }
    if (numpy := sys.modules.get("numpy")) is not None:
        state["numpy"] = _plain(numpy.random.get_state(legacy=False))
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        # Only then: asking would make this process use a GPU.
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_rng_state(state: Mapping[str, Any]) -> None:
    """Restore the generators to the states that `rng_state` returned.

    GPUs that are not in the state, or not on this machine, are skipped.
    """
    try:
        version, internal, gauss = state["python"]
        cpu = state["torch"]
    except (KeyError, TypeError, ValueError):
        raise ConfigError(
            "state: must be what rng_state() returned", hint="set_rng_state(rng_state())"
        ) from None
    random.setstate((version, tuple(internal), gauss))
    torch.set_rng_state(cpu.cpu())
    if "numpy" in state:
        import numpy as np  # even if unused so far: it must continue from this state

        np.random.set_state(_arrays(state["numpy"], np))
    if "cuda" in state and torch.cuda.is_available():
        for index, gpu in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(gpu.cpu(), index)


def _plain(value: Any) -> Any:
    """Return a generator state of numpy with lists in place of arrays."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value


def _arrays(value: Any, numpy: Any) -> Any:
    if isinstance(value, dict):
        return {key: _arrays(inner, numpy) for key, inner in value.items()}
    return numpy.array(value) if isinstance(value, list) else value
