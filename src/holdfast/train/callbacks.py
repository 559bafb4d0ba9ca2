"""User callbacks, called in the driver when ranks have reported or failed."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.api.checks import this_is
from holdfast.api.config import RunConfig
from holdfast.api.scaling import ScalingConfig
from holdfast.checkpoint import Checkpoint
from holdfast.control.observers import Observer
from holdfast.core.names import shown
from holdfast.core.run.outcomes import WorkerExit
from holdfast.data.config import DataConfig
from holdfast.errors import ConfigError
from holdfast.train.backend import BackendConfig
from holdfast.train.errors import exceptions_of

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainRunContext:
    """The run that a callback is called for."""

    run_id: str
    run_config: RunConfig
    train_loop_config: Mapping[str, Any] | None
    scaling_config: ScalingConfig
    backend_config: BackendConfig | None = None
    dataset_config: DataConfig | None = None

    def get_run_config(self) -> RunConfig:
        """Return the run's config."""
        return self.run_config


class UserCallback:
    """Subclass it, override a method, and pass an instance in `RunConfig(callbacks=[…])`.

    Its methods run in the driver, one at a time. An exception is logged and does not end the run.
    """

    def after_report(
        self,
        run_context: TrainRunContext,
        metrics: list[dict[str, Any]],
        checkpoint: Checkpoint | None,
    ) -> None:
        """All ranks have reported; `metrics[i]` is rank i's. The checkpoint is durable."""

    def after_exception(
        self, run_context: TrainRunContext, worker_exceptions: dict[int, BaseException]
    ) -> None:
        """Workers have failed; another attempt follows if `FailureConfig` allows it."""


def check_callbacks(callbacks: Sequence[object]) -> None:
    """Raise if one of the callbacks would never be called."""
    for position, callback in enumerate(callbacks):
        if not hasattr(callback, "after_report") and not hasattr(callback, "after_exception"):
            raise ConfigError(
                f"callbacks[{position}]={shown(callback)}: it has no method after_report or"
                f" after_exception and would never be called, {this_is(callback)}",
                hint="subclass holdfast.train.UserCallback; callbacks of Tune are for trials, in"
                " the RunConfig of a Tuner",
            )


class CallbackObserver(Observer):
    """Calls one callback when a run's ranks have reported or failed."""

    def __init__(self, callback: UserCallback, context: TrainRunContext) -> None:
        self._callback, self._context = callback, context

    def reported(
        self, step: int, metrics: Mapping[int, Mapping[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        by_rank = [dict(metrics[rank]) for rank in sorted(metrics)]
        self._call("after_report", by_rank, checkpoint)

    def group_lost(
        self,
        attempt: int,
        exits: Sequence[WorkerExit],
        errors: Mapping[int, bytes | None],
        card: str,
        *,
        is_last: bool,
    ) -> None:
        failures = exceptions_of(exits, errors)
        if failures:
            self._call("after_exception", failures)

    def _call(self, name: str, *arguments: object) -> None:
        method = getattr(self._callback, name, None)
        if method is None:
            return
        try:
            method(self._context, *arguments)
        except Exception:
            kind = type(self._callback).__qualname__
            log.exception("%s.%s failed; the run goes on", kind, name)
