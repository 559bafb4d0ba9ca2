"""Programs of a trial's process: run the user's function, or advance an object of their class.

After every result the process waits for the verdict, so a trial never gets further than what was
decided about it.
"""

from __future__ import annotations

import atexit
import copy
import inspect
import logging
import numbers
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.names import shown
from holdfast.core.plain_data import own
from holdfast.core.study.trial import Verdict
from holdfast.errors import ConfigError, HoldfastBug
from holdfast.objects.refs import unshared
from holdfast.storage.transfer import upload_tree
from holdfast.tune.result import DEFAULT_METRIC, SHOULD_CHECKPOINT
from holdfast.tune.trainable import Beginning, Trainable, make
from holdfast.tune.trainables.class_checkpoints import counters_of, store
from holdfast.tune.trainables.result_fields import ResultFields
from holdfast.wire import Judged
from holdfast.worker.context import WorkerContext, current
from holdfast.worker.job import TrialJob

log = logging.getLogger(__name__)

EXPORTED = "export"  # the folder of a trial that models are exported to


class TrialLeaves(SystemExit):
    """Raised where a trial reports, if it goes no further; user code must let it pass."""

    def __init__(self, how: str) -> None:
        super().__init__(0)
        self.how = how


def _here() -> tuple[WorkerContext, TrialJob]:
    context = current()
    assert context is not None, "a trial's program runs in a worker"
    assert context.job.trial is not None, "the worker of a trial has a trial's job"
    return context, context.job.trial


def _verdict(context: WorkerContext, index: int) -> Judged:
    judged = context.conversation.answer("verdict", index)
    if not isinstance(judged, Judged):
        raise HoldfastBug(f"{judged!r} is not a verdict")
    return judged


@dataclass(frozen=True)
class FunctionProgram:
    """Runs a function with the config of the trial.

    Attributes:
        parameters: What `with_parameters` adds to its arguments.
    """

    function: Callable[..., Any]
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self) -> str:
        context, trial = _here()
        config = copy.deepcopy(dict(trial.config))
        fields = ResultFields(config, trial, context.job.reports_before)
        if context.checkpoint is not None and not trial.last_result:
            fields.restore(counters_of(context.checkpoint))  # it is of another study
        context.reporter.fill = fields.fill
        context.reporter.then = lambda index: self._go_on_or_leave(context, index)
        try:
            self._run(context, config)
        except TrialLeaves as leaving:
            return leaving.how
        return "done"

    def _run(self, context: WorkerContext, config: dict[str, Any]) -> None:
        returned = self.function(config, **unshared(self.parameters))
        if inspect.isgenerator(returned):
            for result in returned:
                self._report(context, result)
        elif returned is not None:
            self._report(context, returned)

    def _report(self, context: WorkerContext, returned: object) -> None:
        if isinstance(returned, Mapping):
            context.reporter.report(returned)
        elif isinstance(returned, numbers.Real) and not isinstance(returned, bool):
            context.reporter.report({DEFAULT_METRIC: own(returned)})
        elif returned:
            raise ConfigError(
                f"the trainable returned {shown(returned)}, which is neither metrics nor a number",
                hint="return a dictionary, a number, or nothing",
            )

    def _go_on_or_leave(self, context: WorkerContext, index: int) -> None:
        judged = _verdict(context, index)
        if judged.verdict is not Verdict.CONTINUE:
            raise TrialLeaves("paused" if judged.verdict is Verdict.PAUSE else "stopped")


@dataclass
class ClassProgram:
    """Advances an object of a `Trainable` class step by step.

    In a process that does several trials it keeps the object of one for the next, which may reuse
    it; the last object is stopped with the process.

    Attributes:
        frequency: After how many steps a trial is saved, 0 for never.
        at_end: Whether it is saved when it ends.
        exports: What its model is written as when it ends.
        load_retries: How often its checkpoint is loaded again, by a new object, if that failed.
    """

    trainable: type[Trainable]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    frequency: int = 0
    at_end: bool = True
    exports: tuple[str, ...] = ()
    load_retries: int = 0
    _idle: Trainable | None = field(default=None, init=False, repr=False)

    def __call__(self) -> str:
        context, _ = _here()
        trial = self._loaded_trial(context)
        try:
            how = self._advance(context, trial)
        except BaseException:
            trial.stop()
            raise
        if context.job.stays:
            self._keep(trial)
        else:
            trial.stop()
        return how

    def _keep(self, trial: Trainable) -> None:
        """Keep an object for the next trial; if there is none, it is stopped with the process."""
        atexit.unregister(self._stop_idle)  # else it would be registered once for each trial
        atexit.register(self._stop_idle)
        self._idle = trial

    def _stop_idle(self) -> None:
        if self._idle is not None:
            self._idle.stop()

    def _loaded_trial(self, context: WorkerContext) -> Trainable:
        """Return an object for a trial, with its checkpoint loaded if there is one."""
        failures = 0
        while True:
            trial = self._trial(context)
            if context.checkpoint is None:
                return trial
            try:
                trial.restore(context.checkpoint)
            except Exception as error:  # it is the user's own code
                failures += 1
                if failures > self.load_retries:
                    raise
                log.warning(
                    "%s could not load its checkpoint, and tries again (%d of %d): %r",
                    type(trial).__name__, failures, self.load_retries, error,
                )  # fmt: skip
                trial.stop()
            else:
                return trial

    def _trial(self, context: WorkerContext) -> Trainable:
        """Return an object for a trial: that of the trial before, if it can be reset."""
        job, done = _here()[1], context.job.reports_before
        config = dict(job.config)
        former, self._idle = self._idle, None
        if former is not None:
            if former._become(config, job, done):  # noqa: SLF001
                return former
            former.stop()
        return make(Beginning(self.trainable, config, job, done, unshared(self.parameters)))

    def _advance(self, context: WorkerContext, trial: Trainable) -> str:
        if _here()[1].verdict is Verdict.STOP:
            self._export(context, trial)
            return "stopped"
        reporter = context.reporter
        while True:
            result = trial.train()
            wants_save = bool(result.pop(SHOULD_CHECKPOINT, False))
            reporter.report(result)
            wants_save |= self._is_due(result["training_iteration"])
            wants_save |= result["done"] and self.at_end
            if wants_save:
                reporter.announce_save()
            judged = _verdict(context, reporter.count)
            is_end = judged.verdict is Verdict.STOP or result["done"]
            if wants_save or judged.save or (is_end and self.at_end):
                self._save(context, trial)
            if is_end:
                self._export(context, trial)
                return "done" if result["done"] else "stopped"
            if judged.verdict is Verdict.PAUSE:
                return "paused"

    def _is_due(self, iteration: int) -> bool:
        return self.frequency > 0 and iteration % self.frequency == 0

    def _export(self, context: WorkerContext, trial: Trainable) -> None:
        """Write the model to the folder `export` of the trial."""
        if not self.exports:
            return
        with tempfile.TemporaryDirectory(prefix="holdfast-trial-") as folder:
            trial.export_model(self.exports, folder)
            upload_tree(context.store, folder, EXPORTED)

    def _save(self, context: WorkerContext, trial: Trainable) -> None:
        def make(folder: str) -> None:
            store(folder, trial.save_checkpoint(folder), type(trial).__name__)

        context.reporter.save_made(make)
