"""Validates checkpoints one at a time, in a process of their own, while training goes on.

The request is journaled before the commit of the checkpoint is acknowledged, so if the driver dies,
the next one goes on with the rest. A checkpoint is pinned until it has its verdict.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from holdfast.checkpoint import Checkpoint
from holdfast.clock import Clock
from holdfast.control.host.log_folders import log_at
from holdfast.control.record.open_run import OpenTrainingRun
from holdfast.core.names import shown
from holdfast.core.placement import Place
from holdfast.core.run.machine import Ending
from holdfast.core.run.outcomes import Evicted, Finished, Raised
from holdfast.core.run.validation import DONE, WANTED, ValidationStatus
from holdfast.engine.base import Ended, Engine, EngineError, Said, WorkerSpec
from holdfast.errors import ConfigError
from holdfast.storage import locate
from holdfast.wire import Assigned, Began
from holdfast.worker.job import Job, Task, pack, unpack_value
from holdfast.worker.metrics import plain_metrics

log = logging.getLogger(__name__)

PIN = "validation"
TICK_S = 1.0
LOOK_S = 0.05  # how often the validation is polled while training goes on


@dataclass(frozen=True, slots=True, kw_only=True)
class Validator:
    """How checkpoints are validated.

    Attributes:
        function: Takes a checkpoint and `arguments` by name, and returns metrics.
        timeout_s: How long it may take; None for no limit.
        engine: Makes the engine that runs its process, apart from the workers.
        retries: How often it is tried again if its process dies, or raises one of
            `retried_errors`; None for any number.
    """

    function: Callable[..., Mapping[str, Any]]
    arguments: Mapping[str, Any]
    timeout_s: float | None
    engine: Callable[[], Engine]
    retries: int | None = 0
    retried_errors: tuple[type[BaseException], ...] = ()


class Validations:
    """The validations of an open run."""

    def __init__(
        self,
        run: OpenTrainingRun,
        validator: Validator,
        log_folder: str,
        clock: Clock,
    ) -> None:
        self._run, self._validator = run, validator
        self._ledger = run.validations
        self._log_folder, self._clock = log_folder, clock
        self._engine: Engine | None = None
        self._number: int | None = None  # which is being validated now
        self._may_take_s: float | None = None
        self._ends_at: float | None = None  # known once its function has begun
        self._tries = 0
        self._losses: dict[int, int] = {}  # how often the validation of a checkpoint was lost

    @property
    def are_done(self) -> bool:
        """Whether no checkpoint waits for its verdict."""
        return not self._ledger.pending

    def want(self, number: int, settings: Mapping[str, Any]) -> None:
        """Request the validation of a checkpoint; the request survives this driver."""
        self._run.pin(number, PIN)
        self._run.note(WANTED, {"number": number, "how": dict(settings)})

    def go_on(self, timeout_s: float = 0.0) -> bool:
        """Do what can be done now, waiting a while for events; return whether a verdict came."""
        if self._number is None and self.are_done:
            return False
        if self._engine is None:
            self._engine = self._validator.engine()
        if self._number is None and self._engine.nodes():
            self._begin(self._engine, next(iter(self._ledger.pending)))
            return False
        event = self._engine.next_event(timeout_s)
        while event is not None:
            if isinstance(event, Ended) and event.group == self._tries:
                self._conclude(event)
                return True
            if isinstance(event, Said) and isinstance(event.message, Began) and self._may_take_s:
                # Not before: the function has no part in the time a process takes to start.
                self._ends_at = self._clock.monotonic() + self._may_take_s
            event = self._engine.next_event(0.0)
        if self._ends_at is not None and self._clock.monotonic() >= self._ends_at:
            self._engine.stop_group(self._tries)
        return False

    def finish(self, ending: Callable[[], Ending | None]) -> Ending:
        """Validate until every checkpoint has its verdict, and return how the run ends.

        `ending` is called again and again; if it returns an ending, that is returned at once, and
        the next driver does the rest.
        """
        while not self.are_done:
            if (early_ending := ending()) is not None:
                return early_ending
            self.go_on(TICK_S)
        return Ending.SUCCEEDED

    def close(self) -> None:
        """Stop the validation that runs; the next driver starts it again."""
        if self._engine is not None:
            self._engine.close()

    def _begin(self, engine: Engine, number: int) -> None:
        record = self._run.record.kept.get(number)
        if record is None:
            self._decide(number, ValidationStatus.FAILED, {})
            return
        settings = self._ledger.pending[number]
        arguments = {**self._validator.arguments, **(settings.get("fn_kwargs") or {})}
        checkpoint = Checkpoint.in_run(self._run.store, record.directory)
        task = Task(partial(self._validator.function, checkpoint, **arguments))
        node = engine.nodes()[0].name
        self._tries += 1
        job = Job(
            task=pack(task),
            place=Place(0, 1, 0, 1, 0, node),
            run_name=self._run.identity.name,
            run_id=self._run.identity.run_id,
            attempt=self._tries,
            store=locate.describe(self._run.store),
            checkpoint=checkpoint,
        )
        log_name = f"{record.directory.replace('/', '-')}.log"
        path = log_at(self._log_folder, "validation", log_name)
        spec = WorkerSpec(rank=0, node=node, log=path, first=Assigned(pack(job)))
        try:
            engine.start_group(self._tries, [spec])
        except EngineError as error:
            log.warning("checkpoint %s cannot be validated: %s", record.directory, error)
            self._decide(number, ValidationStatus.FAILED, {})
            return
        self._may_take_s = settings.get("timeout_s") or self._validator.timeout_s
        self._ends_at = None
        self._number = number

    def _conclude(self, ended: Ended) -> None:
        number, self._number = self._number, None
        assert number is not None
        record = self._run.record.kept.get(number)
        checkpoint = f"checkpoint {number}" if record is None else record.directory
        if isinstance(ended.exit, Evicted):
            log.warning("the validation of %s took too long", checkpoint)
            self._decide(number, ValidationStatus.TIMED_OUT, {})
            return
        problem = ended.exit.describe()
        if isinstance(ended.exit, Finished):
            try:
                self._decide(number, ValidationStatus.VALIDATED, _metrics_of(ended))
                return
            except ConfigError as error:
                problem = error.message
        elif self._is_tried_again(number, ended):
            log.warning("the validation of %s is tried again: %s", checkpoint, problem)
            return  # it is still pending, and the next to be validated
        log.warning("the validation of %s failed: %s", checkpoint, problem)
        self._decide(number, ValidationStatus.FAILED, {})

    def _is_tried_again(self, number: int, ended: Ended) -> bool:
        """Count a lost validation, and return whether it is tried again."""
        lost = self._losses[number] = self._losses.get(number, 0) + 1
        limit = self._validator.retries
        if limit is not None and lost > limit:
            return False
        if not isinstance(ended.exit, Raised):
            return True
        return _raised_one_of(ended, self._validator.retried_errors)

    def _decide(self, number: int, verdict: ValidationStatus, metrics: Mapping[str, Any]) -> None:
        facts = {"number": number, "verdict": str(verdict), "metrics": dict(metrics)}
        self._run.note(DONE, facts)
        self._run.unpin(number, PIN)


def _raised_one_of(ended: Ended, kinds: tuple[type[BaseException], ...]) -> bool:
    """Whether a validation has raised an error of one of these classes.

    An error that cannot be unpickled here is recognised by the name of its class.
    """
    assert isinstance(ended.exit, Raised)
    if BaseException in kinds:
        return True
    if ended.words is not None and ended.words.value is not None:
        try:
            return isinstance(unpack_value(ended.words.value), kinds)
        except Exception as error:  # noqa: BLE001  # unpickling runs the error's own code
            log.debug("what a validation raised cannot be unpickled: %s", error)
    name = ended.exit.error.partition(":")[0]
    return name.rpartition(".")[2] in {kind.__name__ for kind in kinds}


def _metrics_of(ended: Ended) -> dict[str, Any]:
    """Return what a validation returned; raise if it is not a dictionary of metrics."""
    value = None
    if ended.words is not None and ended.words.value is not None:
        try:
            value = unpack_value(ended.words.value)
        except Exception as error:  # unpickling runs the user's code
            raise ConfigError(f"what it returned cannot be unpickled: {error}") from error
    if not isinstance(value, Mapping):
        raise ConfigError(f"it returned {shown(value)}, which is not a dictionary of metrics")
    return plain_metrics(value)
