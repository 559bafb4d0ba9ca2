"""The process of a trial, as the study talks with it: results, saves, verdicts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from holdfast.checkpoint.commit import Slot
from holdfast.clock import Clock
from holdfast.control.study.commit_pool import CommitPool
from holdfast.control.study.trial_checkpoints import Scribe, TrialCheckpoints
from holdfast.core.checkpoint.manifest import FileEntry, Manifest, Part
from holdfast.core.run.outcomes import Died, Evicted, Finished, Hung, WorkerExit
from holdfast.core.run.validation import ValidationStatus
from holdfast.core.study.events import (
    TrialReported,
)
from holdfast.core.study.judges import as_judged
from holdfast.core.study.trial import Trial, Verdict
from holdfast.engine.base import Ended, Engine
from holdfast.errors import HoldfastError, LeaseLost
from holdfast.wire import (
    Asked,
    Began,
    Committed,
    Delivered,
    Dismissed,
    Judged,
    Leaving,
    Listed,
    Meeting,
    Message,
    Met,
    NotDelivered,
    Placed,
    Refused,
    Reported,
    SawNotice,
    Slotted,
    Waiting,
)

log = logging.getLogger(__name__)

EXIT_WORK_S = 40.0  # a little more than a worker takes for its exit work
SHOULD_CHECKPOINT = "should_checkpoint"  # set in a result, it asks for a save


@dataclass(slots=True)
class _Saving:
    """A checkpoint that is being saved.

    Attributes:
        result: What was reported with it, None if nothing was.
        writing: Its commit in another thread, None before that has begun.
    """

    index: int
    slot: Slot
    result: dict[str, Any] | None
    writing: Future[Manifest] | None = None


class TrialProcess:
    """One attempt of a trial.

    Attributes:
        began: Whether the user's code has been called.
        is_reused: Whether the process has done another trial before.
        is_stopped: Whether the driver has stopped it.
        is_leaving: Whether it is to save itself as soon as it can, because its machine goes.
        is_safe: Whether it has done so.
        saw_notice: Whether the user's code knows that its machine goes.
        hung: How it hung, if it was stopped for that.
    """

    def __init__(
        self,
        trial: Trial,
        attempt: int,
        checkpoints: TrialCheckpoints,
        *,
        node: str,
        log: str,
        is_reused: bool,
        tell: Callable[[Message], None],
        scribe: Scribe,
        commits: CommitPool,
        on_result: Callable[[Trial, dict[str, Any]], None],
        on_saved: Callable[[Trial, Manifest], None],
    ) -> None:
        self.trial, self.attempt, self.checkpoints = trial, attempt, checkpoints
        self.node, self.log, self.is_reused = node, log, is_reused
        self.hung: Hung | None = None
        self._tell, self._scribe, self._commits = tell, scribe, commits
        self._on_result, self._on_saved = on_result, on_saved
        self._saving: _Saving | None = None
        self._questions: list[int] = []  # for the checkpoints there are, of a thread each
        self.began = self.is_stopped = False
        self.is_leaving = self.is_safe = self.saw_notice = False

    def hear(self, message: Message) -> None:
        """Take in a message of the process, and answer it."""
        match message:
            case Began():
                self.began = True
            case Reported(index, metrics, saves, directory):
                self._report(index, metrics, directory, saves=saves)
            case Delivered(index, files, folders) if self._is_saving(index):
                part = Part(0, tuple(FileEntry(*entry) for entry in files), tuple(folders))
                self._write([part], None)
            case Placed(index, directory) if self._is_saving(index):
                self._write([], directory)
            case NotDelivered(index, error) if self._is_saving(index):
                self._not_saved(error, tell=False)
            case Meeting(index, data):  # it is alone
                self._tell(Met(index, 0, data))
            case Asked(index, instead_of=forgotten):
                open_questions = [asked for asked in self._questions if asked != forgotten]
                self._questions = [*open_questions, index]
                self._answer()
            case SawNotice():
                self.saw_notice = True
            case Leaving() | Waiting():
                pass  # the engine says how it ends, and the watchdog has heard that it lives
            case other:
                log.warning("%s sent an unexpected message: %r", self.trial, other)

    def as_known(self, ended: WorkerExit) -> WorkerExit:
        """Return how it ended, with what the driver knows and the engine does not."""
        match ended:
            case Evicted() if self.hung is not None:
                return self.hung
            case Died() if self.is_leaving:
                return Evicted(0, self.node)  # its machine was announced to go
            case Died() if self.is_reused and not self.began:
                return Evicted(0, self.node)  # the trial before is to blame, if any
            case Finished() if self.saw_notice and self._goes_on():
                # It may have been done just then. Carrying on once more costs little; taking a
                # trial for finished that is not would cost the rest of it.
                return Evicted(0, self.node)
            case _:
                return ended

    def _goes_on(self) -> bool:
        return self.trial.reply().verdict is Verdict.CONTINUE

    @property
    def is_saving(self) -> bool:
        """Whether a checkpoint is being saved."""
        return self._saving is not None

    def _is_saving(self, index: int) -> bool:
        saving = self._saving
        return saving is not None and saving.index == index and saving.writing is None

    def _report(
        self, index: int, metrics: dict[str, Any], directory: str | None, *, saves: bool
    ) -> None:
        is_new = index > self.trial.step
        result = metrics if is_new else None
        if not saves:
            if result is not None:
                self._take(index, result)
            return
        try:
            slot = self.checkpoints.begin_checkpoint(attempt=self.attempt, directory=directory)
        except LeaseLost:
            raise
        except HoldfastError as error:
            self._tell(Refused(index, str(error)))
            if result is not None:
                self._take(index, result)
            return
        self._saving = _Saving(index, slot, result)
        self._tell(Slotted(index, slot.number, slot.directory, slot.epoch, slot.attempt))

    def _write(self, parts: list[Part], placed: str | None) -> None:
        saving = self._saving
        assert saving is not None
        metrics = self.trial.last_result if saving.result is None else saving.result
        saving.writing = self._commits.begin(
            lambda: self.checkpoints.write_checkpoint(
                saving.slot, parts, step=saving.index, metrics=metrics, placed=placed
            )
        )

    @property
    def writing(self) -> Future[Manifest] | None:
        """The checkpoint that is being written, or was; None if none is."""
        return None if self._saving is None else self._saving.writing

    def note_written(self) -> bool:
        """Take in that the checkpoint was written, once it is; return whether it counts."""
        assert self.writing is not None
        try:
            self.checkpoints.note_commit(self.writing.result())
        except LeaseLost:
            raise
        except HoldfastError as error:
            self._not_saved(str(error), tell=True)
            return False
        return True

    def acknowledge(self) -> None:
        """Say that the checkpoint is durable, and let its result count."""
        saving, self._saving = self._saving, None
        assert saving is not None and saving.writing is not None
        manifest = saving.writing.result()
        self.is_safe = self.is_leaving
        self._tell(Committed(saving.index, manifest.directory))
        if saving.result is not None:
            self._take(saving.index, saving.result | {"checkpoint_dir_name": manifest.directory})
        self._on_saved(self.trial, manifest)
        self._answer()

    def _not_saved(self, error: str, *, tell: bool) -> None:
        """The report was made all the same; its process raises, and may go on."""
        saving, self._saving = self._saving, None
        assert saving is not None
        if tell:
            self._tell(Refused(saving.index, error))
        self.checkpoints.abandon_checkpoint(saving.slot)
        if saving.result is not None:
            self._take(saving.index, saving.result)
        self._answer()

    def _answer(self) -> None:
        """Answer which checkpoints there are, oldest first, once none is being saved."""
        if self._saving is not None:
            return
        usable = sorted(self.trial.checkpoints.usable(), key=lambda checkpoint: checkpoint.number)
        status = ValidationStatus.NOT_WANTED.value
        listed = [(saved.directory, dict(saved.metrics), status) for saved in usable]
        for index in self._questions:
            self._tell(Listed(index, listed))
        self._questions = []

    def _take(self, step: int, result: dict[str, Any]) -> None:
        trial = self.trial
        self._scribe.happen(TrialReported(trial.trial_id, self.attempt, step, result))
        self._on_result(trial, as_judged(trial, result))
        reply = trial.reply()
        save = reply.save or self.is_leaving or bool(result.get(SHOULD_CHECKPOINT))
        self._tell(Judged(step, reply.verdict, save))


def acknowledge(processes: Iterable[TrialProcess], scribe: Scribe) -> None:
    """Acknowledge the checkpoints that these processes have written.

    A checkpoint is its manifest, which is durable. Its record will be soon; if this driver dies
    before, the next one finds a manifest whose number was given out, and takes it in. So does one
    that takes over right now: it has the lease before it looks.
    """
    counting = [process for process in processes if process.note_written()]
    if counting:
        scribe.check()
    for process in counting:
        process.acknowledge()


def end_processes(
    engine: Engine, clock: Clock, busy: Collection[int], idle: Collection[int], *, is_over: bool
) -> None:
    """End the processes of a study, by their launches, and return once there are none.

    Those of a study that is over have time for what was left to the end of their process, such as
    a tracker's last upload; the others, and who takes too long, are stopped.
    """
    for launch in (*busy, *(() if is_over else idle)):
        engine.stop_group(launch)
    left = set(idle) if is_over else set()
    for launch in left:
        engine.send(launch, 0, Dismissed())
    deadline = clock.monotonic() + EXIT_WORK_S
    while left and (patience_s := deadline - clock.monotonic()) > 0:
        event = engine.next_event(patience_s)
        if isinstance(event, Ended):
            left.discard(event.group)
    for launch in left:
        engine.stop_group(launch)
