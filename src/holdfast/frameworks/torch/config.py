"""`TorchConfig`: how the process group of a torch run is made; does not import torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.api.assignment import assignable, config_repr
from holdfast.api.checks import checking
from holdfast.api.did_you_mean import rejects_unknown_arguments
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
# itself. The first workers load it in parallel and would gain nothing from waiting for it; later
# ones start with it loaded. Its slowest dependencies come before it, as steps of their own.
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
@rejects_unknown_arguments
@dataclass(unsafe_hash=True, repr=False)
class TorchConfig(BackendConfig):
    """How the process group of a torch run is made.

    Attributes:
        backend: Torch's name of it, such as "gloo"; None takes "nccl" for workers with GPUs and
            "gloo" for others.
        init_method: "env" or "tcp", for older scripts. There is no difference: ranks always meet
            through their driver, and the variables of "env" are always set.
        timeout_s: How long an operation waits for a rank that is alive but does not join it. A
            rank that dies is noticed at once.
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
                    problems.add("timeout_s", f"must be finite; {meaning}")
                elif self.timeout_s > _TIMEOUT_MAX_S:
                    problems.add("timeout_s", "longer than torch can count")

    def __repr__(self) -> str:
        return config_repr(self, TorchConfig())

    def setups(self) -> Sequence[Callable[[WorkerContext], None]]:
        return (JoinProcessGroup(self),)

    def modules(self) -> Sequence[str]:
        return PRELOADED

    def later_modules(self) -> Sequence[str]:
        return PRELOADED_LATER


@dataclass(frozen=True, slots=True)
class JoinProcessGroup:
    """Joins the process group in a worker; sending it there does not load torch in the driver."""

    config: TorchConfig

    def __call__(self, context: WorkerContext) -> None:
        from holdfast.frameworks.torch.process_group import join

        join(context, self.config)
