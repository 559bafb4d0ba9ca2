"""A training run as a trial of a study: its process drives the run, and tells the study of it.

The run is kept inside the trial's folder. When the trial is tried again, the same run carries on.
What its ranks report is the trial's result, and its checkpoints are the trial's own, without a
copy.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast.checkpoint import Checkpoint
from holdfast.errors import HoldfastBug
from holdfast.train.callbacks import TrainRunContext, UserCallback
from holdfast.worker.context import WorkerContext, current
from holdfast.worker.reporting import Mode, Save

if TYPE_CHECKING:
    from holdfast.train.trainer import BaseTrainer

RUN = "run"


def as_trainable(trainer: BaseTrainer) -> Callable[[dict[str, Any]], None]:
    """Return a function that a study can run with many configs.

    A config may have `train_loop_config`, which is laid over the trainer's own, and
    `scaling_config`. Datasets in memory are shared by all trials, while the function lives.
    """
    trainer = trainer._sharing()  # noqa: SLF001  # of this package

    def train(config: dict[str, Any]) -> None:
        _run_inside_trial(trainer, config)

    train.__name__ = train.__qualname__ = type(trainer).__name__
    scaling = trainer.scaling_config
    each = {
        name: need / scaling.max_workers
        for name, need in scaling.total_resources.items()
        if scaling.max_workers
    }
    # The process that drives the run mostly waits; the run's workers are what is reserved.
    train._resources = [{}, *([each] * scaling.max_workers)]  # type: ignore[attr-defined]  # noqa: SLF001
    return train


def _run_inside_trial(trainer: BaseTrainer, config: Mapping[str, Any]) -> None:
    trial = current()
    if trial is None:
        raise HoldfastBug("a trainer was run as a trial outside a study")
    again = copy.copy(trainer)
    loop_config = {
        **(getattr(trainer, "train_loop_config", None) or {}),
        **config.get("train_loop_config", {}),
    }
    if loop_config:
        again.train_loop_config = loop_config  # type: ignore[attr-defined]
    if "scaling_config" in config:
        again.scaling_config = config["scaling_config"]
    run = trainer.run_config
    again.run_config = replace(
        run,
        name=RUN,
        storage_path=trial.store.url,
        callbacks=[*run.callbacks, _Relay(trial)],
        resume="auto",
    )
    again.fit()


class _Relay(UserCallback):
    """Passes on to the study what the ranks of the run have reported."""

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
