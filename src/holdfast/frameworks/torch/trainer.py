"""`TorchTrainer`: a training function on several workers that share a process group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from holdfast.api.did_you_mean import spelled
from holdfast.errors import ConfigError
from holdfast.frameworks.torch.config import TorchConfig
from holdfast.train.arguments import given_or
from holdfast.train.trainer import DataParallelTrainer

if TYPE_CHECKING:
    from holdfast.api.config import RunConfig, ScalingConfig
    from holdfast.checkpoint import Checkpoint
    from holdfast.data.config import DataConfig
    from holdfast.train.reported import ValidationConfig


@spelled
class TorchTrainer(DataParallelTrainer):
    """Runs one function on several workers, which find `torch.distributed` ready.

    Every worker is a process with one rank. The process group is there when the function begins,
    of one worker as of many, and so are the variables that scripts for `torchrun` read (`RANK`,
    `LOCAL_RANK`, `WORLD_SIZE`, `MASTER_ADDR` …). Each attempt makes a new one.

    Several workers on a node share its CPUs: unless OMP_NUM_THREADS is set, each computes with as
    many threads as there are CPUs for it, and with one at least.

    Args:
        train_loop_per_worker: The training function; it takes nothing, or a dictionary.
        train_loop_config: That dictionary.
        torch_config: How the process group is made.
        scaling_config: How many workers there are, and what each needs.
        run_config: Where the run is kept, under what name, and what it absorbs.
        datasets: What `holdfast.train.get_dataset_shard` gives out, by name.
        dataset_config: Which of them are split between the workers.
        validation_config: How checkpoints are validated while training goes on.
        metadata: Of older scripts: facts about the run.
        resume_from_checkpoint: Of older scripts: what a new run begins from.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: Mapping[str, Any] | None = None,
        torch_config: TorchConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        dataset_config: DataConfig | None = None,
        validation_config: ValidationConfig | None = None,
        metadata: Mapping[str, Any] | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
    ) -> None:
        if find_spec("torch") is None:
            raise ConfigError("torch is not installed", hint="pip install 'holdfast[torch]'")
        self.torch_config = given_or(torch_config, "torch_config", TorchConfig)
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=self.torch_config,
            scaling_config=scaling_config,
            run_config=run_config,
            datasets=datasets,
            dataset_config=dataset_config,
            validation_config=validation_config,
            metadata=metadata,
            resume_from_checkpoint=resume_from_checkpoint,
        )
        if self.torch_config.backend == "nccl" and not self.scaling_config.use_gpu:
            raise ConfigError(
                "TorchConfig(backend='nccl') joins GPUs, and ScalingConfig(use_gpu=False) gives"
                " workers none",
                hint="set use_gpu=True, or leave out the backend",
            )
