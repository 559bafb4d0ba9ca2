"""`TorchTrainer`: a training function on several workers that share a process group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from holdfast.api.did_you_mean import rejects_unknown_arguments
from holdfast.errors import ConfigError
from holdfast.frameworks.torch.config import TorchConfig
from holdfast.train.arguments import config_or_default
from holdfast.train.trainer import DataParallelTrainer

if TYPE_CHECKING:
    from holdfast.api.config import RunConfig, ScalingConfig
    from holdfast.checkpoint import Checkpoint
    from holdfast.data.config import DataConfig
    from holdfast.train.reported import ValidationConfig


@rejects_unknown_arguments
class TorchTrainer(DataParallelTrainer):
    """Runs one function on several workers, with `torch.distributed` initialized.

    Every worker is a process with one rank. The process group exists when the function starts, even
    for one worker, and so do the variables that scripts for `torchrun` read (`RANK`, `LOCAL_RANK`,
    `WORLD_SIZE`, `MASTER_ADDR` …). Each attempt makes a new group.

    Several workers on a node share its CPUs: unless OMP_NUM_THREADS is set, each computes with its
    share of them as threads, at least one.

    Args:
        train_loop_per_worker: The training function; it takes no argument, or a dictionary.
        train_loop_config: That dictionary.
        torch_config: How the process group is made.
        scaling_config: How many workers there are, and what each needs.
        run_config: The run's name, where it is stored, and which failures it survives.
        datasets: What `holdfast.train.get_dataset_shard` returns, by name.
        dataset_config: Which of them are split among the workers.
        validation_config: How checkpoints are validated while training goes on.
        metadata: Deprecated: facts about the run.
        resume_from_checkpoint: Deprecated: the checkpoint that a new run starts from.
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
        self.torch_config = config_or_default(torch_config, "torch_config", TorchConfig)
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
                "TorchConfig(backend='nccl') needs GPUs, and ScalingConfig(use_gpu=False) gives"
                " workers none",
                hint="set use_gpu=True, or leave out the backend",
            )
