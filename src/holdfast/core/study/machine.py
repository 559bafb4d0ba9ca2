"""The state machine of a study: given the same events in the same order, it decides the same.

The trials, the scheduler, the searcher and the stopper are one machine. An event is journaled, then
taken in here. What is to be done follows from the state of the study, never from a message, so no
decision is lost with a driver. After a crash the last state is read from the journal, and the
events since are taken in again.

A step of a trial is judged once. If it is done again after a loss, the first decision holds, and is
carried out if that had not been done.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, assert_never

from holdfast.core.run.budget import STARTS_ALIKE_MAX, Budget
from holdfast.core.run.machine import (
    Active,
    CheckpointCommitted,
    Event,
    GroupEnded,
    GroupNotStarted,
    GroupPaused,
    Over,
    StartGroup,
    UsualCourse,
    advance,
    has_run,
    renewed,
)
from holdfast.core.run.outcomes import Evicted, Finished
from holdfast.core.study.events import (
    DonorReplaced,
    RoomsChanged,
    SearchEnded,
    StateTaken,
    StudyEvent,
    StudyExtended,
    StudyOpened,
    StudyStopped,
    TrialAdded,
    TrialCheckpointChanged,
    TrialExited,
    TrialNotStarted,
    TrialReported,
    TrialsArchived,
    TrialStarted,
)
from holdfast.core.study.folder_names import FolderNames
from holdfast.core.study.judges import Judges
from holdfast.core.study.reservations import Bundles, Room, reserve, total
from holdfast.core.study.rules import Rules
from holdfast.core.study.state import become, state_of
from holdfast.core.study.trial import Decision, Intent, Status, Trial, Verdict

log = logging.getLogger(__name__)


class Study:
    """The trials of a study, with its scheduler, searcher and stopper; also a `StudyView`.

    Args:
        trial_type: The class of its trials.

    Attributes:
        trials: Trials that are not over, by id, in the order in which they were made.
        finished: Trials that are over and not archived yet, by id.
        ended: Trials that have ended since the driver last took this list. Not part of the state.
        counts: How many trials are over, by status, archived ones included.
        made: How many trials were made.
        delays: How many seconds trials that were lost are to wait, by id. The driver removes a
            trial when they have passed; until then it does not start. Not part of the state.
        is_search_over: Whether no more trials will be made.
        stopping: Why all trials are to end, None if they are not.
        archives: The parts of the archive: a key and the number of trials each.
        folders: Folders of trials whose names the user's function has chosen.
    """

    def __init__(self, judges: Judges, rules: Rules, trial_type: type[Trial] = Trial) -> None:
        self.judges, self.rules, self.trial_type = judges, rules, trial_type
        self.trials: dict[str, Trial] = {}
        self.finished: dict[str, Trial] = {}
        self.ended: list[Trial] = []
        self.counts: dict[str, int] = {}
        self.made, self.is_search_over = 0, False
        self.delays: dict[str, float] = {}
        self.stopping: str | None = None
        self.archives: list[tuple[str, int]] = []
        self.folders = FolderNames()
        self.room = Room(
            lambda: [(trial.resources, trial.places) for trial in self.trials.values()]
        )
        self.last_resources: Bundles = ()
        self._usual = UsualCourse(rules.budget, rules.backoff_max_s)

    @property
    def is_over(self) -> bool:
        """Whether every trial that will ever be is over."""
        return not self.trials and (self.is_search_over or self.stopping is not None)

    def donated_by(self, trial: Trial) -> set[str]:
        """Return the checkpoints of a trial that other trials are to go on from."""
        takers = (*self.trials.values(), *self.finished.values())
        donors = (taker.donor for taker in takers if taker.donor is not None)
        return {donor.directory for donor in donors if donor.folder == trial.folder}

    # ------------------------------------------------------------------ events

    def take(self, event: StudyEvent, *, again: bool = False) -> None:
        """Take in an event; `again` if it is read from the journal.

        An event of a trial or an attempt that is over changes nothing.
        """
        match event:
            case TrialReported():
                self._reported(event)
            case TrialCheckpointChanged(trial_id, what, facts):
                self._checkpoint_changed(trial_id, what, facts)
            case TrialStarted():
                self._started(event)
            case TrialExited():
                self._exited(event)
            case TrialAdded():
                self._added(event, again=again)
            case TrialNotStarted():
                self._not_started(event)
            case DonorReplaced():
                self._donor_replaced(event)
            case StudyOpened():
                self._opened(event)
            case StudyExtended(num_samples):
                self._extended(num_samples)
            case StudyStopped(reason):
                self._stopped(reason)
            case SearchEnded():
                self._search_ended(again=again)
            case RoomsChanged(rooms):
                self.room.become(rooms)
            case TrialsArchived(key, ids):
                self._archived(key, ids)
            case StateTaken():
                pass  # it marks a moment of the journal
            case _:
                assert_never(event)

    def _at_attempt(self, trial_id: str, attempt: int) -> Trial | None:
        """Return a trial if it is not over and `attempt` is its newest."""
        trial = self.trials.get(trial_id)
        return trial if trial is not None and trial.run.attempts == attempt else None

    def _opened(self, event: StudyOpened) -> None:
        """Take in that a driver has begun; all that ran under another is gone."""
        self.room.become(event.rooms)
        self.stopping = None
        for trial in list(self.trials.values()):
            trial.resources = tuple(event.needs.get(trial.trial_id, trial.resources))
            if reason := event.refused.get(trial.trial_id):
                self._fail(trial, reason)
                continue
            if not event.resume_unfinished:
                self._end(trial, Status.TERMINATED)
                continue
            self._put(trial, ())
            self._renew(trial)
            if trial.status is Status.RUNNING and not self._settle(trial):
                trial.status, trial.cut_off = Status.PENDING, True
        for again in event.again:
            self._try_again(self.trial_type.from_data(again.trial), from_scratch=again.from_scratch)
        for trial in self.trials.values():
            trial.checkpoints.open(event.epoch)

    def _renew(self, trial: Trial) -> None:
        """Give a trial a full budget: with a launch the user asks to try again."""
        trial.run = renewed(trial.run, self.rules.budget, self.rules.backoff_max_s)

    def _try_again(self, trial: Trial, *, from_scratch: bool) -> None:
        """Bring back a trial that was over."""
        self.finished.pop(trial.trial_id, None)
        self.counts[trial.status] -= 1
        trial.revive(from_scratch=from_scratch)
        self._renew(trial)
        self.trials[trial.trial_id] = trial
        self.judges.revived(self, trial)

    def _added(self, event: TrialAdded, *, again: bool) -> None:
        trial = self.trial_type.added(event)
        if again:
            self.judges.recall(trial)
        self.last_resources, trial.run = trial.resources, self._usual.waiting
        self.made += 1
        if event.is_folder_chosen:
            self.folders.add(trial.folder)
        self.trials[trial.trial_id] = trial
        self.judges.added(self, trial)
        if event.refused:
            self._fail(trial, event.refused)

    def _search_ended(self, *, again: bool) -> None:
        self.is_search_over = True
        if again:
            self.judges.recall_end()

    def _extended(self, num_samples: int | None) -> None:
        if num_samples:
            self.judges.search.extend(num_samples)
            self.is_search_over = False
        self.stopping = None

    def _stopped(self, reason: str, *, cuts: bool = False) -> None:
        self.stopping = reason
        for trial in list(self.trials.values()):
            trial.cut_off = cuts and trial.decision.verdict is not Verdict.STOP
            if trial.status is Status.RUNNING:
                trial.want(Intent.END)
            else:
                self._end(trial, Status.TERMINATED)

    def _archived(self, key: str, ids: Sequence[str]) -> None:
        for trial_id in ids:
            self.finished.pop(trial_id, None)
        self.archives.append((key, len(ids)))

    # ------------------------------------------------------------------ one trial

    def _started(self, event: TrialStarted) -> None:
        if (trial := self.trials.get(event.trial_id)) is None:
            return
        was_paused = trial.status is Status.PAUSED
        trial.run = self._usual.started(trial.run)
        if trial.run.attempts != (attempt := event.attempt):  # the journal was damaged between
            trial.run = replace(trial.run, phase=Active(attempt), attempts=attempt)
        trial.status = Status.RUNNING
        self._put(trial, tuple(event.places))
        trial.step = event.after_step
        trial.started_at = event.time if trial.started_at is None else trial.started_at
        trial.cut_off = False
        trial.has_no_process()  # of before
        self.delays.pop(trial.trial_id, None)
        if was_paused:
            self.judges.unpaused(trial)

    def _not_started(self, event: TrialNotStarted) -> None:
        if (trial := self.trials.get(event.trial_id)) is not None:
            self._lost(trial, GroupNotStarted(event.attempt, event.reason), event.reason)

    def _reported(self, event: TrialReported) -> None:
        if (trial := self._at_attempt(event.trial_id, event.attempt)) is None:
            return
        step, result = event.step, dict(event.result)
        trial.observe(step, result)
        if trial.donor is not None and trial.has_given_up(trial.run.attempts):
            # It is to go on from another trial, and its process did not know that yet.
            trial.donor = trial.donor._replace(step=max(step, trial.decision.step))
            return
        trial.former = None
        if step <= trial.decision.step:
            return  # it is done again after a loss
        trial.decision = Decision(step)
        self.judges.look_for(self.rules.metric, trial, result)
        verdict = self.judges.judge(self, trial, result)
        if trial.resize_to is not None and verdict is Verdict.CONTINUE:
            verdict = Verdict.PAUSE  # also if its process is lost: it pauses at this step again
        trial.decision = Decision(step, verdict)

    def _checkpoint_changed(self, trial_id: str, what: str, facts: Mapping[str, Any]) -> None:
        if (over := self.finished.get(trial_id)) is not None:
            over.checkpoints.apply(what, facts)
            return
        if (trial := self.trials.get(trial_id)) is None:
            return
        trial.checkpoints.apply(what, facts)
        if what == "checkpoint_committed":
            committed = CheckpointCommitted(facts["attempt"], facts["number"])
            trial.run = advance(trial.run, committed).run
            trial.has_saved()
            if not trial.has_given_up(facts["attempt"]):
                trial.donor = None  # unless an attempt before the exploit saved this

    def _donor_replaced(self, event: DonorReplaced) -> None:
        trial = self.trials.get(event.trial_id)
        if trial is None or trial.donor is None:
            return
        donor, trial.donor = trial.donor, None
        if event.directory:
            # Older records have no result: the one that the trial had stays.
            result = donor.result if event.result is None else dict(event.result)
            trial.donor = donor._replace(directory=event.directory, result=result)
        elif event.stays:
            trial.stay()

    def _exited(self, event: TrialExited) -> None:
        if (trial := self._at_attempt(event.trial_id, event.attempt)) is None:
            return
        ended, how = event.exit, event.how
        self._put(trial, ())
        if isinstance(ended, Finished) and how != "paused":
            trial.cut_off = trial.cut_off and how != "done"
            self._end(trial, Status.TERMINATED)
        elif isinstance(ended, Finished) or self._settle(trial):
            if not trial.is_finished():
                self._paused(trial)
        elif isinstance(ended, Evicted):
            trial.run = advance(trial.run, GroupPaused(event.attempt)).run
            trial.status = Status.PENDING
        else:
            self._lost(trial, GroupEnded(event.attempt, (ended,)), ended.describe())

    def _settle(self, trial: Trial) -> bool:
        """Carry out the decision about a trial whose process is gone, if it has done its part."""
        match trial.reply().verdict:
            case Verdict.STOP if trial.intent is Intent.END or not self.rules.miss_something_of(
                trial
            ):
                self._end(trial, Status.TERMINATED)
            case Verdict.PAUSE if trial.can_wait():
                self._paused(trial)
            case _:
                return False
        return True

    def _paused(self, trial: Trial) -> None:
        trial.run = advance(trial.run, GroupPaused(trial.run.attempts)).run
        trial.status, trial.decision = Status.PAUSED, Decision(trial.decision.step)
        trial.has_no_process()
        trial.take_size(self.room.nodes)
        self.judges.paused(self, trial)

    def _lost(self, trial: Trial, event: Event, error: str) -> None:
        if isinstance(event, GroupNotStarted):
            trial.run = replace(trial.run, budget=self._budget_for_starts(trial))
        step = advance(trial.run, event)
        trial.run = step.run
        self._put(trial, ())
        if isinstance(trial.run.phase, Over):
            self._fail(trial, error)
            return
        trial.status = Status.PENDING
        for action in step.actions:
            if isinstance(action, StartGroup) and action.after_s:
                self.delays[trial.trial_id] = action.after_s

    def _budget_for_starts(self, trial: Trial) -> Budget:
        """Return the budget of a trial that did not start: patient if others do."""
        others_start = bool(self.counts.get(Status.TERMINATED)) or any(
            other.status is Status.RUNNING or has_run(other.run)
            for other in self.trials.values()
            if other is not trial
        )
        alike = None if others_start else STARTS_ALIKE_MAX
        return replace(self.rules.budget, starts_alike=alike)

    def _fail(self, trial: Trial, error: str) -> None:
        trial.error = error
        self._end(trial, Status.ERROR)
        if self.rules.fail_fast:
            self._stopped(f"trial {trial} failed, and fail_fast is set", cuts=True)

    def _end(self, trial: Trial, status: Status) -> None:
        had_process = trial.status is Status.RUNNING
        trial.cut_off = trial.cut_off and self.stopping is not None
        trial.status = status
        self._put(trial, ())
        trial.run = self._usual.ended(trial.run)
        self.judges.ended(self, trial, had_process=had_process, failed=status is Status.ERROR)
        self.counts[status] = self.counts.get(status, 0) + 1
        self.trials.pop(trial.trial_id, None)
        self.delays.pop(trial.trial_id, None)
        self.finished[trial.trial_id] = trial
        self.ended.append(trial)

    # ------------------------------------------------------------------ what comes next

    def next_to_start(self) -> Trial | None:
        """Return a trial that should run now and has room, None if there is none."""
        if self.stopping is not None:
            return None
        cut_off = (trial for trial in self.trials.values() if trial.cut_off)
        chosen = next(cut_off, None) or self.judges.choose(self)
        if chosen is None or chosen.status not in (Status.PENDING, Status.PAUSED):
            return None
        return chosen if self.has_resources_for_trial(chosen) else None

    def next_anyhow(self) -> Trial | None:
        """Return a trial that the scheduler has not chosen, if the study would hang otherwise."""
        is_busy = any(trial.status is Status.RUNNING for trial in self.trials.values())
        if self.stopping is not None or is_busy or self.delays:
            return None
        return self.judges.choose_anyhow(self)

    def place(self, trial: Trial) -> tuple[str, ...] | None:
        """Return the nodes for what a trial reserves, None if it does not fit now."""
        return self.room.place(trial.resources)

    def _put(self, trial: Trial, places: tuple[str, ...]) -> None:
        """Have a trial occupy these nodes, and no others."""
        trial.places = places
        self.room.changed()

    def lacks_trials(self) -> bool:
        """Whether the scheduler wants more trials to choose from, whether or not there is room."""
        ahead: int = getattr(self.judges.scheduler, "trials_ahead", 0)
        return ahead > 0 and self._may_be_more() and self._waiting_to_start() < ahead

    def wants_more(self) -> bool:
        """Whether another trial should be made: none waits to start, and there is room for one.

        Not sooner, unless the scheduler wants it: the searcher should know as many results as it
        can. How much room a trial takes is guessed from the last one; while nothing is reserved,
        waiting would not make more room.
        """
        if not self._may_be_more() or self._waiting_to_start():
            return self.lacks_trials()
        if self.lacks_trials() or not any(trial.places for trial in self.trials.values()):
            return True
        return self.room.place(self.last_resources) is not None

    def _may_be_more(self) -> bool:
        return not self.is_search_over and self.stopping is None

    def _waiting_to_start(self) -> int:
        pending = (trial for trial in self.trials.values() if trial.status is Status.PENDING)
        return sum(1 for trial in pending if trial.trial_id not in self.delays)

    # ------------------------------------------------------------------ as a view

    def get_trials(self) -> list[Trial]:
        return list(self.trials.values())

    def get_live_trials(self) -> list[Trial]:  # as Ray calls it
        return self.get_trials()

    def get_trial(self, trial_id: str) -> Trial | None:
        return self.trials.get(trial_id)

    def has_resources_for_trial(self, trial: Trial) -> bool:
        return trial.trial_id not in self.delays and self.place(trial) is not None

    def free_resources(self) -> dict[str, float]:
        return total(self.room.free())

    def stop_trial(self, trial: Trial) -> None:
        if trial.status is Status.RUNNING:
            trial.want(Intent.END)
            return
        self.judges.dismissed(trial)  # the scheduler asked for it
        self._end(trial, Status.TERMINATED)

    def pause_trial(self, trial: Trial, *, should_checkpoint: bool = True) -> None:
        if trial.status is Status.RUNNING:
            trial.want(Intent.PAUSE if should_checkpoint else Intent.HALT)

    def save_trial(self, trial: Trial) -> None:
        trial.want_save()

    def exploit(self, trial: Trial, donor: Trial, config: dict[str, Any], tag: str) -> bool:
        return trial.become(donor, config, tag)

    def resize(self, trial: Trial, resources: Bundles) -> None:
        if reserve(self.room.nodes, resources) is None:
            log.warning("%s stays as it is: there is no room for %s", trial, list(resources))
            return
        trial.resize(resources, self.room.nodes)

    # ------------------------------------------------------------------ at rest

    def get_state(self) -> dict[str, Any]:
        """Return the whole state, as plain data."""
        return state_of(self)

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take over a state that `get_state` returned."""
        become(self, state)
