"""What the process of a trial does: runs the user's function, or advances the user's class.

After every result the process waits to hear what becomes of its trial, so a trial never gets
further than what was decided about it.
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
from holdfast.tune.trainables.result_fields import Filling
from holdfast.wire import Judged
from holdfast.worker.context import WorkerContext, current

log = logging.getLogger(__name__)

EXPORTED = "export"  # the folder of a trial that models are exported to


class TrialLeaves(SystemExit):
    """Raised where a trial reports, if it is to go no further; let it pass."""

    def __init__(self, how: str) -> None:
        super().__init__(0)
        self.how = how


def _here() -> WorkerContext:
    context = current()
    assert context is not None, "a trial's program runs in a worker"
    return context


def _verdict(context: WorkerContext, index: int) -> Judged:
    judged = context.conversation.answer("verdict", index)
    if not isinstance(judged, Judged):
        raise HoldfastBug(f"{judged!r} is no verdict")
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
        context = _here()
        told = context.job.metadata
        config = copy.deepcopy(dict(told["config"]))
        filling = Filling(config, told, context.job.reports_before)
        if context.checkpoint is not None and not told.get("before"):
            filling.restore(counters_of(context.checkpoint))  # it is of another study
        context.reporter.fill = filling.fill
        context.reporter.then = lambda index: self._go_on_or_leave(context, index)
        try:
            self._run(context, config)
        except TrialLeaves as leaving:
            return leaving.how
        return "done"

    def _run(self, context: WorkerContext, config: dict[str, Any]) -> None:
        returned = self.function(config, **unshared(self.parameters))
        if inspect.isgenerator(returned):
            for one in returned:
                self._report(context, one)
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


_kept: list[Trainable] = []  # of the trial before, in a process that does several


def _keep(trial: Trainable) -> None:
    """Keep the object of a trial for the next one; if there is none, it ends with the process."""
    atexit.unregister(_stop_kept)  # or there would be one more for each trial
    atexit.register(_stop_kept)
    _kept.append(trial)


def _stop_kept() -> None:
    while _kept:
        _kept.pop().stop()


@dataclass(frozen=True)
class ClassProgram:
    """Advances an object of a `Trainable` class step by step.

    Attributes:
        frequency: After how many steps it is saved, 0 for never.
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

    def __call__(self) -> str:
        context = _here()
        trial = self._loaded_trial(context)
        try:
            how = self._advance(context, trial)
        except BaseException:
            trial.stop()
            raise
        if context.job.stays:
            _keep(trial)
        else:
            trial.stop()
        return how

    def _loaded_trial(self, context: WorkerContext) -> Trainable:
        """Return an object for a trial, as it was saved if it was."""
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
        """Return an object for a trial: the one of the trial before, if it lends itself to it."""
        told, done = context.job.metadata, context.job.reports_before
        config = dict(told["config"])
        if _kept:
            kept = _kept.pop()
            if type(kept) is self.trainable and kept._become(config, told, done):  # noqa: SLF001
                return kept
            kept.stop()
        return make(Beginning(self.trainable, config, told, done, unshared(self.parameters)))

    def _advance(self, context: WorkerContext, trial: Trainable) -> str:
        if context.job.metadata.get("verdict") == "STOP":
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
