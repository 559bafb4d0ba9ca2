"""Runs a trainer as a trial of a study: the trial's process drives the run and reports for it.

The run is stored inside the trial's folder, and resumes when the trial is retried. The reports of
its ranks are the trial's results, and its checkpoints are the trial's own, without a copy.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast.api.scaling import ScalingConfig, must_be_settled
from holdfast.checkpoint import Checkpoint
from holdfast.errors import HoldfastBug
from holdfast.storage.locate import location_of
from holdfast.train.arguments import must_be_instance
from holdfast.train.callbacks import TrainRunContext, UserCallback
from holdfast.worker.context import WorkerContext, current
from holdfast.worker.reporting import Mode, Save
from holdfast.worker.run_storage import RunStorage

if TYPE_CHECKING:
    from holdfast.train.trainer import BaseTrainer

RUN_NAME = "run"


def as_trainable(trainer: BaseTrainer) -> Callable[[dict[str, Any]], None]:
    """Return a function that a study can run with many configs.

    A config may have `train_loop_config`, which is merged over the trainer's own, and
    `scaling_config`, which may be a dictionary of its fields. All trials share the datasets in
    memory while the function exists.
    """
    trainer = trainer._sharing()  # noqa: SLF001  # in this package

    def train(config: dict[str, Any]) -> None:
        _run_inside_trial(trainer, config)

    train.__name__ = train.__qualname__ = type(trainer).__name__
    train._resources = lambda config: _needs(_scaling(trainer, config))  # type: ignore[attr-defined]  # noqa: SLF001
    return train


def _scaling(trainer: BaseTrainer, config: Mapping[str, Any]) -> ScalingConfig:
    """Return the scaling of a trial's run: from the trial's config, or else the trainer's."""
    given = config.get("scaling_config", trainer.scaling_config)
    scaling = ScalingConfig(**given) if isinstance(given, Mapping) else given
    must_be_instance(scaling, "scaling_config", ScalingConfig)
    must_be_settled(scaling)
    return scaling


def _needs(scaling: ScalingConfig) -> list[dict[str, float]]:
    """Return what a trial reserves: its run's workers; the driver process itself mostly waits."""
    count = scaling.max_workers
    each = {name: need / count for name, need in scaling.total_resources.items() if count}
    return [{}, *([each] * count)]


def _run_inside_trial(trainer: BaseTrainer, config: Mapping[str, Any]) -> None:
    trial = current()
    if trial is None:
        raise HoldfastBug("a trainer was run as a trial outside a study")
    trial_trainer = copy.copy(trainer)
    loop_config = {
        **(getattr(trainer, "train_loop_config", None) or {}),
        **config.get("train_loop_config", {}),
    }
    if loop_config:
        trial_trainer.train_loop_config = loop_config  # type: ignore[attr-defined]
    trial_trainer.scaling_config = _scaling(trainer, config)
    run, storage = trainer.run_config, RunStorage(trial.store)
    # A store on a filesystem object of the user's can be opened only through that object.
    is_given = trial.job.store.keys() & {"filesystem", "fsspec"}
    trial_trainer.run_config = replace(
        run,
        name=RUN_NAME,
        storage_path=storage.experiment_fs_path if is_given else location_of(trial.store),
        storage_filesystem=storage.storage_filesystem if is_given else None,
        callbacks=[*run.callbacks, _Relay(trial)],
        resume="auto",
    )
    trial_trainer.fit()


class _Relay(UserCallback):
    """Passes the reports of the run on to the study."""

    def __init__(self, trial: WorkerContext) -> None:
        self._trial = trial

    def after_report(
        self,
        run_context: TrainRunContext,
        metrics: list[dict[str, Any]],
        checkpoint: Checkpoint | None,
    ) -> None:
        del run_context
        save = None if checkpoint is None else Save(checkpoint=checkpoint, mode=Mode.ALREADY)
        self._trial.reporter.report(metrics[0], save)
