"""Trainers: what a user builds and calls `fit` on."""

from __future__ import annotations

import inspect
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.control.identity import run_store
from holdfast.control.open_run import OpenRun, open_run
from holdfast.control.run_controller import Outcome, Plan, RunController
from holdfast.core.outcomes import Died, Finished, Hung, Raised, WorkerExit, describe
from holdfast.core.run_history import RunHistory
from holdfast.core.run_machine import Ending
from holdfast.engine.local import LocalEngine
from holdfast.errors import ConfigError
from holdfast.storage.base import Store
from holdfast.train.config import RunConfig, ScalingConfig, budget_of, retention_of
from holdfast.train.errors import (
    ControllerError,
    TrainingFailedError,
    WorkerDiedError,
    WorkerGroupError,
)
from holdfast.train.older_arguments import warn_of_older_arguments
from holdfast.train.result import Result, result_of
from holdfast.worker.context import WorkerContext

ENTRY = "holdfast.worker.entry:main"
WORKER_MODULES = ("holdfast.worker.entry", "holdfast.train")


class DataParallelTrainer:
    """Runs one function on several workers, and brings it through whatever dies.

    Args:
        train_loop_per_worker: The training function; it takes nothing, or a dictionary.
        train_loop_config: That dictionary.
        scaling_config: How many workers there are, and what each needs.
        run_config: Where the run is kept, under what name, and what it absorbs.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: Mapping[str, Any] | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
    ) -> None:
        self._takes_config = takes_config(train_loop_per_worker)
        self._function, self._config = train_loop_per_worker, train_loop_config
        self.scaling_config = scaling_config or ScalingConfig()
        self.run_config = run_config or RunConfig()
        warn_of_older_arguments(self.scaling_config, self.run_config)
        if self.scaling_config.max_workers == 0:
            raise ConfigError(
                "num_workers=0: training inside the driver's own process is not there yet",
                hint="use num_workers=1, which is one worker process",
            )

    def fit(self) -> Result:
        """Run to the end, carrying on from where a run of the same name and storage path is.

        Raises `TrainingFailedError`, with the `Result` so far, if the run fails for good.
        """
        config = self.run_config
        store = run_store(config.storage_path, config.name, config.storage_filesystem)
        engine = LocalEngine(ENTRY, [*WORKER_MODULES, *self._modules()])
        engine.warm_up()
        try:
            with open_run(store, name=config.name, accounts=[RunHistory]) as run:
                try:
                    outcome = self._drive(run, engine)
                finally:
                    engine.close()  # nothing writes any more when the run is given back
                return self._result(run, outcome)
        finally:
            engine.close()

    def _drive(self, run: OpenRun, engine: LocalEngine) -> Outcome:
        [history] = run.accounts
        assert isinstance(history, RunHistory)
        failures = self.run_config.failure_config
        plan = Plan(
            function=self._function,
            config=(self._config or {}) if self._takes_config else None,
            setups=self._setups(),
            workers=self.scaling_config.max_workers,
            budget=budget_of(failures),
            backoff_max_s=failures.backoff_max_s,
            retention=retention_of(self.run_config.checkpoint_config),
            log_folder=_log_folder(run.store, run.identity.run_id),
        )
        return RunController(run, history, engine, plan).drive()

    def _setups(self) -> Sequence[Callable[[WorkerContext], None]]:
        """Return what prepares a framework in each worker, before the training function."""
        return ()

    def _modules(self) -> Sequence[str]:
        """Return what every worker will want imported."""
        return ()

    def _result(self, run: OpenRun, outcome: Outcome) -> Result:
        retention = retention_of(self.run_config.checkpoint_config)
        result = result_of(run.store, run.record, retention)
        if outcome.over.ending is Ending.SUCCEEDED:
            if outcome.value is not None:
                result.return_value = pickle.loads(outcome.value)  # noqa: S301  # our own worker's
            return result
        error = failure_of(outcome)
        error.result = result
        result.error = error
        raise error


def takes_config(function: Callable[..., Any]) -> bool:
    """Whether a training function takes its config; raise if it cannot be called as one."""
    if not callable(function):
        raise ConfigError(f"train_loop_per_worker={function!r} is not a function")
    parameters = inspect.signature(function).parameters.values()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind in positional
    ]
    if len(required) > 1:
        raise ConfigError(
            f"the training function wants {len(required)} arguments ({', '.join(required)});"
            " it gets one at most, its config",
            hint="pass the others inside train_loop_config, or use functools.partial",
        )
    return any(parameter.kind in positional for parameter in parameters)


def failure_of(outcome: Outcome) -> TrainingFailedError:
    """Return the error that a failed run is raised as."""
    exits = outcome.over.exits
    if not exits:
        return ControllerError(f"the workers could not be started in {outcome.attempts} attempts")
    culprits = [one for one in exits if isinstance(one, Raised | Died | Hung)]
    failures = {one.rank: _exception_of(one, outcome.errors.get(one.rank)) for one in culprits}
    lines = [describe(one) for one in culprits]
    first = next((one for one in culprits if isinstance(one, Raised)), None)
    trace = f"\n\n{first.trace}" if first is not None else ""
    attempts = f"attempt {outcome.attempts}"
    return WorkerGroupError(f"{'; '.join(lines)} ({attempts}, no retries left){trace}", failures)


def _exception_of(ended: WorkerExit, pickled: bytes | None) -> BaseException:
    """Return what a worker raised, as itself where it travels, else as its description."""
    assert not isinstance(ended, Finished)
    if pickled is not None:
        try:
            raised = pickle.loads(pickled)  # noqa: S301  # our own worker's
        except Exception:  # noqa: BLE001  # unpickling runs the error's own code
            raised = None
        if isinstance(raised, BaseException):
            return raised
    return WorkerDiedError(describe(ended))


def _log_folder(store: Store, run_id: str) -> str:
    """Return where workers write their logs: with the run, or here if that is far away."""
    if store.local is not None:
        return store.local.path("logs")
    return os.path.join(os.path.expanduser("~/.cache/holdfast/logs"), run_id)
