"""A trial while its process runs, as the study talks with it: results, saves, verdicts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.checkpoint import Checkpoint
from holdfast.checkpoint.commit import Slot
from holdfast.clock import Clock
from holdfast.control.record.checkpoints import Checkpoints
from holdfast.control.record.litter import find_litter, remove_litter, warn_of_strays
from holdfast.control.study.commit_pool import Aside
from holdfast.control.study.donors import find_whole
from holdfast.core.checkpoint.manifest import FileEntry, Manifest, Part
from holdfast.core.checkpoint.record import Event, Kept
from holdfast.core.run.outcomes import Died, Evicted, Finished, Hung, WorkerExit
from holdfast.core.run.validation import Verdict
from holdfast.core.study.events import (
    DonorReplaced,
    StudyEvent,
    TrialCheckpointChanged,
    TrialReported,
)
from holdfast.core.study.judges import as_judged
from holdfast.core.study.trial import Trial
from holdfast.errors import HoldfastError, LeaseLost
from holdfast.storage import locate
from holdfast.storage.base import Store
from holdfast.wire import (
    Asked,
    Began,
    Committed,
    Delivered,
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

SHOULD_CHECKPOINT = "should_checkpoint"  # in a result: whoever looks at it may ask for a save


class Scribe(Protocol):
    """Writes down what happens in a study.

    Attributes:
        has_lost_records: Whether what was written down before is damaged, so that a commit it does
            not tell of may be one that was forgotten.
    """

    @property
    def has_lost_records(self) -> bool: ...

    def happen(self, event: StudyEvent) -> None:
        """Have the study take in an event that will be durable soon."""
        ...

    def settle(self) -> None:
        """Return once everything so far is durable."""
        ...

    def check(self) -> None:
        """Raise `LeaseLost` if somebody else writes now."""
        ...


class TrialCheckpoints(Checkpoints):
    """The checkpoints of one trial; what becomes of them is in the study's journal."""

    def __init__(
        self, trial: Trial, store: Store, run_id: str, epoch: int, scribe: Scribe, clock: Clock
    ) -> None:
        super().__init__(store, run_id, epoch, trial.checkpoints, clock)
        self._trial, self._scribe = trial, scribe
        self._has_said = False  # which checkpoints are neither used nor removed

    def _record(self, events: Iterable[Event]) -> None:
        self._record_soon(events)
        self._scribe.settle()

    def _record_soon(self, events: Iterable[Event]) -> None:
        for what, facts in events:
            self._scribe.happen(TrialCheckpointChanged(self._trial.trial_id, what, facts))

    def _settle(self) -> None:
        self._scribe.settle()

    def note_commit(self, manifest: Manifest) -> None:
        """Write down that a checkpoint was written."""
        self._record_soon([("checkpoint_committed", Kept.of(manifest).to_data())])

    def beginning(
        self, study: Store, first: Checkpoint | None
    ) -> tuple[Checkpoint | None, int, Mapping[str, Any]]:
        """Return what to carry on from, how many steps count by then, and the result it is of.

        `first` is what a trial begins with that has nothing of its own.
        """
        self._step_back(study)
        donor = self._trial.donor
        if donor is not None:
            store = locate.child(study, donor.folder)
            return Checkpoint.in_run(store, donor.directory), donor.step, donor.result
        newest = self.newest_good(home=study)
        if newest is None:
            if first is not None:
                first.verify()
            return first, 0, {}
        return Checkpoint.in_run(self.store, newest.directory), newest.step or 0, newest.metrics

    def _step_back(self, study: Store) -> None:
        """Have the trial take over a whole checkpoint of the other one, or stay as it was."""
        trial = self._trial
        if trial.donor is None:
            return
        directory, result, problems = find_whole(study, self.run_id, trial.donor)
        if not problems:
            return
        log.warning(
            "%s was to go on from %s/%s, which is damaged: %s; it %s",
            trial, trial.donor.folder, trial.donor.directory, "; ".join(problems[:3]),
            f"goes on from {directory} instead" if directory else
            "goes on with its own weights" + (" and config" if trial.former else ""),
        )  # fmt: skip
        stays = directory is None
        self._scribe.happen(DonorReplaced(trial.trial_id, directory, result, stays=stays))
        self._scribe.settle()

    def sweep(self, *, looks: bool, needed: Collection[str] = ()) -> None:
        """Remove what was begun and never became a checkpoint; only while the trial has no process.

        With `looks`, also if nothing is known of such a thing: a driver may have died before the
        record of it was durable, or a process over what it had not delivered yet. What is in the
        folders `needed` stays, even if it was retired: another trial is to go on from it.
        """
        unfinished = {**self.record.begun, **self.record.retired}
        numbers = sorted(n for n, directory in unfinished.items() if directory not in needed)
        if looks or numbers:
            litter = find_litter(
                self.store, self.run_id, self.record, is_damaged=self._scribe.has_lost_records
            )
            self._scribe.check()  # or it may be the work of another driver by now
            remove_litter(self, [one for one in litter if one.key not in needed])
        if looks and not self._has_said:
            self._has_said = True
            warn_of_strays(self.store, self.run_id, self.record)
        if numbers:
            self._record_soon([("litter_swept", {"numbers": numbers})])


@dataclass(slots=True)
class _Saving:
    """A checkpoint on its way.

    Attributes:
        result: What was reported with it, None if nothing was.
        writing: It, while and after another thread writes it, None before.
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
        is_stopped: Whether we have ended it.
        is_leaving: Whether it is to save itself as soon as it can, because its machine goes.
        is_safe: Whether it has done so.
        saw_notice: Whether the user's code knows that its machine goes.
        hung: How it stood still, if that is why we have ended it.
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
        aside: Aside,
        on_result: Callable[[Trial, dict[str, Any]], None],
        on_saved: Callable[[Trial, Manifest], None],
    ) -> None:
        self.trial, self.attempt, self.checkpoints = trial, attempt, checkpoints
        self.node, self.log, self.is_reused = node, log, is_reused
        self.hung: Hung | None = None
        self._tell, self._scribe, self._aside = tell, scribe, aside
        self._on_result, self._on_saved = on_result, on_saved
        self._saving: _Saving | None = None
        self._questions: list[int] = []  # for the checkpoints there are, of a thread each
        self.began = self.is_stopped = False
        self.is_leaving = self.is_safe = self.saw_notice = False

    def hear(self, message: Message) -> None:
        """Take in what the process says, and answer it."""
        match message:
            case Began():
                self.began = True
            case Reported(index, metrics, saves, directory):
                self._report(index, metrics, directory, saves=saves)
            case Delivered(index, files, folders) if self._is_saving(index):
                part = Part(0, tuple(FileEntry(*one) for one in files), tuple(folders))
                self._write([part], None)
            case Placed(index, directory) if self._is_saving(index):
                self._write([], directory)
            case NotDelivered(index, error) if self._is_saving(index):
                self._not_saved(error, tell=False)
            case Meeting(index, data):  # it is alone
                self._tell(Met(index, 0, data))
            case Asked(index, instead_of=forgotten):
                self._questions = [one for one in self._questions if one != forgotten] + [index]
                self._answer()
            case SawNotice():
                self.saw_notice = True
            case Leaving() | Waiting():
                pass  # how it was is said apart, and that it lives was heard
            case other:
                log.warning("%s said something unexpected: %r", self.trial, other)

    def as_known(self, ended: WorkerExit) -> WorkerExit:
        """Return how it ended, as far as more is known of that than the engine can see."""
        match ended:
            case Evicted() if self.hung is not None:
                return self.hung
            case Died() if self.is_leaving:
                return Evicted(0, self.node)  # it was said to
            case Died() if self.is_reused and not self.began:
                return Evicted(0, self.node)  # it died of what it did before, if of anything
            case Finished() if self.saw_notice and self.trial.reply().action == "CONTINUE":
                # It may have been done just then. Carrying on once more costs little; taking a
                # trial for finished that is not would cost the rest of it.
                return Evicted(0, self.node)
            case _:
                return ended

    @property
    def is_saving(self) -> bool:
        """Whether a checkpoint is on its way."""
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
        saving.writing = self._aside.begin(
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
        """Say which checkpoints there are, oldest first, once none is on its way any more."""
        if self._saving is not None:
            return
        kept = sorted(self.trial.checkpoints.usable(), key=lambda one: one.number)
        listed = [(one.directory, dict(one.metrics), Verdict.NOT_WANTED.value) for one in kept]
        for index in self._questions:
            self._tell(Listed(index, listed))
        self._questions = []

    def _take(self, step: int, result: dict[str, Any]) -> None:
        trial = self.trial
        self._scribe.happen(TrialReported(trial.trial_id, self.attempt, step, result))
        self._on_result(trial, as_judged(trial, result))
        reply = trial.reply()
        save = reply.save or self.is_leaving or bool(result.get(SHOULD_CHECKPOINT))
        self._tell(Judged(step, reply.action, save))


def acknowledge(processes: Iterable[TrialProcess], scribe: Scribe) -> None:
    """Let what these have written count.

    A checkpoint is its manifest, and that is durable. The record of it will be, and if this driver
    dies before, the next one finds a manifest whose number was given out, and takes it in. So does
    one that takes over right now: it has the lease before it looks.
    """
    counting = [process for process in processes if process.note_written()]
    if counting:
        scribe.check()
    for process in counting:
        process.acknowledge()
