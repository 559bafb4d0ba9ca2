"""How the workers of a torch run find each other; torch itself is not needed to say so."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.api.assignment import assignable
from holdfast.api.checks import checking
from holdfast.api.config_repr import readable
from holdfast.api.did_you_mean import spelled
from holdfast.train.backend import BackendConfig

if TYPE_CHECKING:
    from holdfast.worker.context import WorkerContext

_TIMEOUT_MAX_S = 1e9  # some thirty years; torch counts nanoseconds in 64 bits

PRELOADED = (
    "torch",
    "holdfast.frameworks.torch.process_group",
    "holdfast.frameworks.torch.loaders",
    "holdfast.frameworks.torch.models",
)

# Building an optimizer or DistributedDataParallel loads torch._dynamo, which takes as long as torch
# itself. The first workers load it side by side, so it would be no gain to have them wait for it;
# later ones have it at once. It comes in parts: what it loads, and takes long, is named before it.
PRELOADED_LATER = (
    "mpmath",
    "sympy",
    "torch.fx.experimental.symbolic_shapes",
    "torch._numpy",
    "torch.distributed.tensor",
    "torch.distributed.fsdp",
    "torch._dynamo",
)


@assignable
@spelled
@dataclass(unsafe_hash=True, repr=False)
class TorchConfig(BackendConfig):
    """How the process group of a torch run is made.

    Attributes:
        backend: What torch calls it, such as "gloo"; None takes "nccl" for workers with GPUs and
            "gloo" for others.
        init_method: "env" or "tcp", as in older scripts. There is no difference: the ranks always
            meet through their driver, and the variables of "env" are always set.
        timeout_s: How long an operation waits for a rank that lives and does not come. A rank that
            dies is noticed at once.
    """

    backend: str | None = None
    init_method: str = "env"
    timeout_s: float = 1800

    def __post_init__(self) -> None:
        with checking(self) as problems:
            problems.text("backend", 'it is a name such as "gloo" or "nccl", None to choose')
            problems.choice("init_method", "env", "tcp")
            meaning = "it is how long an operation waits for the other ranks"
            if problems.seconds("timeout_s", meaning, above_zero=True):
                if math.isinf(self.timeout_s):
                    problems.add("timeout_s", f"without an end; {meaning}")
                elif self.timeout_s > _TIMEOUT_MAX_S:
                    problems.add("timeout_s", "longer than torch can count")

    def __repr__(self) -> str:
        return readable(self, TorchConfig())

    def setups(self) -> Sequence[Callable[[WorkerContext], None]]:
        return (Joining(self),)

    def modules(self) -> Sequence[str]:
        return PRELOADED

    def later_modules(self) -> Sequence[str]:
        return PRELOADED_LATER


@dataclass(frozen=True, slots=True)
class Joining:
    """What a worker does before its function; it travels there without torch being loaded here."""

    config: TorchConfig

    def __call__(self, context: WorkerContext) -> None:
        from holdfast.frameworks.torch.process_group import join

        join(context, self.config)
