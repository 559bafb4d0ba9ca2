"""Talks with the workers of one attempt: reports, checkpoints, meetings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.checkpoint import Checkpoint
from holdfast.clock import Clock
from holdfast.control.metrics.writer import MetricRows
from holdfast.control.observers import Observer, Observers
from holdfast.control.record.open_run import OpenRun
from holdfast.control.run.reports import Gathered, Gathering
from holdfast.core.checkpoint.manifest import FileEntry, Manifest, Part, merge
from holdfast.core.placement import Place
from holdfast.core.run.outcomes import Evicted, Finished, Raised, WorkerExit
from holdfast.engine.base import Ended, Engine
from holdfast.errors import HoldfastError, LeaseLost, RanksDisagree
from holdfast.wire import (
    Began,
    Committed,
    Delivered,
    Leaving,
    Meeting,
    Message,
    Met,
    NotDelivered,
    Noticed,
    Placed,
    Refused,
    Reported,
    Resend,
    Resent,
    SaveWanted,
    SawNotice,
    Slotted,
    Waiting,
)

log = logging.getLogger(__name__)

NAMED_AFTER_S = 60.0  # how often to log which rank others wait for


class OnSaved(Protocol):
    """Called when a checkpoint is durable, before its workers are informed."""

    def __call__(self, manifest: Manifest, validation: Mapping[str, Any] | None) -> bool:
        """Return whether to inform the workers; if not, they wait until they are stopped."""
        ...


@dataclass(frozen=True, slots=True)
class OutOfStep:
    """A disagreement of ranks; the checkpoint of the ranks `savers` was refused because of it."""

    savers: frozenset[int]
    why: str

    def as_known(self, ended: WorkerExit) -> WorkerExit:
        """Return how a worker ended: a saver has raised, even if its function caught the error."""
        is_preempted = isinstance(ended, Evicted) and ended.preempted
        if ended.rank in self.savers and isinstance(ended, Finished | Evicted) and not is_preempted:
            error = f"{RanksDisagree.__name__}: {RanksDisagree(self.why)}"
            return Raised(ended.rank, ended.node, error, f"{error}\n")
        return ended


class Group:
    """The workers of one attempt.

    Attributes:
        running: The ranks whose worker has not ended.
        began: The ranks whose function has been called.
        exits: How workers ended, by rank.
        errors: What workers raised, pickled if possible, by rank.
        value: What rank 0 returned, pickled.
        step_reached: The highest count of reports that a rank has made.
        saw_notice: Whether user code has seen a notice that machines leave.
        out_of_step: How the ranks disagree, None if they do not; nothing is saved after that.
    """

    def __init__(
        self,
        attempt: int,
        places: Sequence[Place],
        *,
        run: OpenRun,
        engine: Engine,
        reports_before: int,
        rows: MetricRows,
        observers: Observers[Observer],
        on_saved: OnSaved,
        after_save: Callable[[], None],
        late_after_s: float,
        clock: Clock,
    ) -> None:
        self.attempt, self.places = attempt, places
        self._run, self._engine = run, engine
        self._rows, self._observers = rows, observers
        self._on_saved, self._after_save = on_saved, after_save
        self._late_after_s, self._clock = late_after_s, clock
        ranks = range(len(places))
        self.step_reached = reports_before
        self._gathering = Gathering(ranks, self.step_reached)
        self._meetings: dict[int, dict[int, bytes | None]] = {}
        self._meeting_since: dict[int, float] = {}
        self._named_at: dict[tuple[str, int], float] = {}
        self.running = set(ranks)
        self.began: set[int] = set()
        self.exits: dict[int, WorkerExit] = {}
        self.errors: dict[int, bytes | None] = {}
        self.value: bytes | None = None
        self.saw_notice = False
        self.out_of_step: OutOfStep | None = None

    @property
    def is_over(self) -> bool:
        """Whether every worker has ended."""
        return not self.running

    def ranks_by_node(self) -> dict[str, list[int]]:
        """Return the ranks on each node."""
        ranks: dict[str, list[int]] = {}
        for place in self.places:
            ranks.setdefault(place.node, []).append(place.rank)
        return ranks

    def tell_all(self, message: Noticed | SaveWanted) -> None:
        """Send a message to every worker that still runs."""
        for rank in self.running:
            self._tell(rank, message)

    def _tell(self, rank: int, message: Message) -> None:
        self._engine.send(self.attempt, rank, message)

    # ------------------------------------------------------------------ messages of workers

    def hear(self, rank: int, message: Message, now: float) -> None:
        """Handle a message of a worker."""
        if rank not in self.running:
            return
        match message:
            case Began():
                self.began.add(rank)
            case Reported():
                self._note_report(rank, message, now)
            case Delivered(index, files, folders):
                entries = tuple(FileEntry(*entry) for entry in files)
                self._gathering.delivered(index, Part(rank, entries, tuple(folders)))
            case Placed(index, directory):
                self._gathering.placed(index, rank, directory)
            case Resent(index):
                self._gathering.resent(index, rank)
            case NotDelivered(index, error):
                self._gathering.failed(index, error)
            case Meeting(index, data):
                self._meeting_since.setdefault(index, now)
                self._meetings.setdefault(index, {})[rank] = data
                self._hold_meetings()
            case SawNotice():
                self.saw_notice = True
            case Leaving() | Waiting():
                pass  # the exit follows by itself, and the watchdog has noted the sign of life
            case _:
                log.warning("rank %d sent an unexpected message: %r", rank, message)
        self._follow_up()

    def _follow_up(self) -> None:
        if self.out_of_step is None and (disagreement := self._gathering.disagreement()):
            self._refuse_from(*disagreement)
        for gathered in self._gathering.to_begin():
            self._begin(gathered)
        for gathered in self._gathering.take_settled():
            self._conclude(gathered)
        for step, metrics in self._gathering.take_complete():
            if self._observers:
                self._observers.tell(Observer.reported, step, metrics, self._checkpoint_of(step))

    def _checkpoint_of(self, step: int) -> Checkpoint | None:
        newest = self._run.record.newest()
        if newest is None or newest.step != step:
            return None
        return Checkpoint.in_run(self._run.store, newest.directory)

    def _note_report(self, rank: int, report: Reported, now: float) -> None:
        index = report.index
        self.step_reached = max(self.step_reached, index)
        self._gathering.reported(rank, index, report.metrics, saves=report.saves, line=report.line)
        self._observers.tell(Observer.rank_reported, rank, index, report.metrics)
        if rank == min(self.running):
            self._write_row(index, report.metrics)
        if not report.saves:
            return
        gathered = self._gathering.wants(rank, index, report.directory, now, report.placed)
        if gathered is None:
            error = self._gathering.refusal(index) or ""
            self._tell(rank, Refused(index, error, out_of_step=self.out_of_step is not None))
            return
        if report.validation is not None:
            gathered.validations[rank] = report.validation
        if gathered.slot is not None:
            self._tell_slot(rank, gathered)

    def _write_row(self, step: int, metrics: Mapping[str, Any]) -> None:
        try:
            self._rows.append(step, self.attempt, metrics, self._clock.now())
        except HoldfastError as error:
            log.warning("the metrics of report %d are not stored: %s", step, error)

    def _write_rows_of_next(self, rank: int) -> None:
        """Write what the lowest rank that is left has reported ahead of one that has returned."""
        lowest = min(self.running, default=rank)
        if rank < lowest:
            for step, metrics in self._gathering.ahead(lowest):
                self._write_row(step, metrics)

    def _begin(self, gathered: Gathered) -> None:
        try:
            are_all_placed = gathered.in_place.keys() == gathered.savers  # in the user's folder
            gathered.slot = self._run.begin_checkpoint(
                attempt=self.attempt,
                directory=None if are_all_placed else gathered.name,
                is_shared=gathered.is_shared,
            )
        except LeaseLost:
            raise
        except HoldfastError as error:
            gathered.error = str(error)
        else:
            for rank in gathered.savers:
                self._tell_slot(rank, gathered)

    def _tell_slot(self, rank: int, gathered: Gathered) -> None:
        slot = gathered.slot
        assert slot is not None
        self._tell(
            rank, Slotted(gathered.index, slot.number, slot.directory, slot.epoch, slot.attempt)
        )

    # ------------------------------------------------------------------ checkpoints

    def _refuse_from(self, index: int, why: str) -> None:
        """Refuse the checkpoints of this report and later ones: ranks are not in step."""
        refused = self._gathering.give_up(index, why)
        self.out_of_step = OutOfStep(frozenset(refused[0].savers), why)
        log.error("attempt %d: %s", self.attempt, why)
        for gathered in refused:
            for rank in gathered.savers:
                self._tell(rank, Refused(gathered.index, why, out_of_step=True))
            if gathered.slot is not None:
                self._run.abandon_checkpoint(gathered.slot)

    def _conclude(self, gathered: Gathered) -> None:
        """Commit a checkpoint whose parts are all there, or inform its ranks why not."""
        if gathered.error is None and self._requests_resend(gathered):
            return
        outcome = gathered.error or self._commit(gathered)
        if isinstance(outcome, str):
            for rank in gathered.savers:
                self._tell(rank, Refused(gathered.index, outcome))
            if gathered.slot is not None:
                self._run.abandon_checkpoint(gathered.slot)
            return
        if not self._on_saved(outcome, gathered.validation):
            return
        for rank in gathered.savers:
            self._tell(rank, Committed(gathered.index, outcome.directory))
        self._after_save()

    def _requests_resend(self, gathered: Gathered) -> bool:
        """Ask winners of contests for the files that other ranks overwrote; whether there are any.

        Only on object stores, where all ranks write to the same keys.
        """
        if self._run.store.local is not None or gathered.placed or gathered.was_asked_again:
            return False
        paths: dict[int, list[str]] = {}
        for contest in merge(gathered.parts.values()).contests:
            paths.setdefault(contest.winner, []).append(contest.path)
        asked = paths.keys() & self.running
        if not asked:
            return False
        gathered.was_asked_again = True
        self._gathering.reopen(gathered, asked)
        for rank in asked:
            self._tell(rank, Resend(gathered.index, paths[rank]))
        return True

    def _commit(self, gathered: Gathered) -> Manifest | str:
        """Return the manifest of the durable checkpoint, or what went wrong."""
        assert gathered.slot is not None
        folders = set(gathered.placed.values())
        delivered = [part for rank, part in gathered.parts.items() if rank not in gathered.placed]
        if gathered.placed and delivered:
            folders.add(gathered.slot.directory)
        if len(folders) > 1:
            named = ", ".join(sorted(folders))
            return f"the ranks did not put their parts into one folder: {named}"
        try:
            return self._run.commit_checkpoint(
                gathered.slot,
                delivered,
                world_size=len(self.places),
                step=gathered.index,
                metrics=gathered.metrics,
                placed=next(iter(folders), None),
                placed_by=min(gathered.placed, default=0),
            )
        except LeaseLost:
            raise
        except HoldfastError as failure:
            return str(failure)

    # ------------------------------------------------------------------ meetings

    def _hold_meetings(self) -> None:
        for index in [i for i, data in self._meetings.items() if self.running <= data.keys()]:
            data_by_rank = self._meetings.pop(index)
            self._meeting_since.pop(index, None)
            lowest = min(data_by_rank)
            for rank in self.running:
                self._tell(rank, Met(index, lowest, data_by_rank[lowest]))

    # ------------------------------------------------------------------ time and ends

    def look_at_the_late(self, now: float) -> None:
        """Log the ranks that others wait for, and after a while stop waiting for them."""
        for gathered in self._gathering.waiting():
            missing = self._gathering.missing(gathered.index)
            wait = f"checkpoint of report {gathered.index}"
            if self.is_too_late("checkpoint", gathered.index, gathered.since, missing, wait, now):
                gathered.error = (
                    f"{_ranks(missing)} did not deliver within {self._late_after_s:g} s; every rank"
                    " makes every report, with checkpoint=None if it has nothing to save"
                )
        for index, data_by_rank in list(self._meetings.items()):
            missing = sorted(self.running - data_by_rank.keys())
            since = self._meeting_since[index]
            if self.is_too_late("meeting", index, since, missing, f"meeting {index}", now):
                error = (
                    f"{_ranks(missing)} did not come within {self._late_after_s:g} s; all ranks"
                    " meet, in the same order"
                )
                del self._meetings[index], self._meeting_since[index]
                for rank in data_by_rank:
                    self._tell(rank, Met(index, error=error))
        self._follow_up()

    def is_too_late(
        self, kind: str, index: int, since: float, missing: list[int], wait: str, now: float
    ) -> bool:
        """Whether to give up waiting for ranks; logs them once a minute.

        `wait` is the thing that waits, as the log names it.
        """
        if not missing:
            return False
        last = self._named_at.get((kind, index), since)
        if now - last >= NAMED_AFTER_S:
            self._named_at[kind, index] = now
            waited_s = now - since
            log.warning("the %s has waited %.0f s for %s", wait, waited_s, _ranks(missing))
        return now - since >= self._late_after_s

    def note_end(self, ended: Ended) -> None:
        """Note how a worker ended."""
        rank = ended.exit.rank
        self.exits[rank] = ended.exit
        self.running.discard(rank)
        if isinstance(ended.exit, Finished):
            # Checkpoints wait on for parts of workers that failed, but not of those that returned.
            self._gathering.returned(rank)
            self._write_rows_of_next(rank)
            if rank == 0 and ended.words is not None:
                self.value = ended.words.value
            self._follow_up()
            self._hold_meetings()
        else:
            log.info("%s", ended.exit.describe())
            if ended.words is not None:
                self.errors[rank] = ended.words.value

    def is_finishing_a_save(self) -> bool:
        """Whether a checkpoint waits only for parts that are on their way right now."""
        storing = self.storing()
        return any(
            gathered.slot is not None and gathered.error is None and set(missing) <= storing
            for gathered in self._gathering.waiting()
            if (missing := self._gathering.missing(gathered.index))
        )

    def storing(self) -> set[int]:
        """Return the ranks whose part is on its way to storage; they do nothing else meanwhile."""
        begun = [gathered for gathered in self._gathering.waiting() if gathered.slot is not None]
        savers = {rank for each in begun for rank in each.savers - each.parts.keys()}
        return savers & self.running

    def is_settled(self, index: int) -> bool:
        """Whether every checkpoint up to this report is made or given up; see `behind`."""
        return not self._gathering.is_pending(index)

    def behind(self, index: int) -> list[int]:
        """Return the ranks that may still bring a checkpoint up to this report, by reporting.

        A rank that waits at a meeting cannot before the others come too. One that has died counts:
        its group is about to be stopped, and no answer would be right.
        """
        meeting = {rank for data_by_rank in self._meetings.values() for rank in data_by_rank}
        return sorted(self._gathering.behind(index) - meeting)


def _ranks(ranks: Sequence[int]) -> str:
    listed = ", ".join(map(str, ranks))
    return f"rank {listed}" if len(ranks) == 1 else f"ranks {listed}"
