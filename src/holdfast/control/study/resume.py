"""A study goes on: what was decided before is taken in, and what was left is taken up."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, NamedTuple

from holdfast.control.record.open_run import OpenRun, unrecorded_commits
from holdfast.control.record.shapes import taken_for_damage
from holdfast.control.study.journal import StudyJournal
from holdfast.control.study.plan import StudyPlan
from holdfast.control.study.tail import StudyTail, archived_trials
from holdfast.core.checkpoint.record import Kept
from holdfast.core.names import broken_folder_rule, shown
from holdfast.core.study.events import (
    STATE,
    Again,
    StudyEvent,
    StudyExtended,
    StudyOpened,
    TrialCheckpointChanged,
    TrialReported,
    TrialsArchived,
    TrialStarted,
    from_data,
)
from holdfast.core.study.judges import as_judged
from holdfast.core.study.machine import Study
from holdfast.core.study.trial import Status, Trial, Variant
from holdfast.engine.base import Engine
from holdfast.errors import ConfigError
from holdfast.storage import locate

log = logging.getLogger(__name__)


class Recalled(NamedTuple):
    """What was told since the last state of a study, by the ids of trials.

    Attributes:
        rows: Results, without those that were superseded since, and what they were made with.
        archived: Trials that were put to rest since: what was told of them may be in no file yet.
    """

    rows: dict[str, list[tuple[int, dict[str, Any], Variant]]]
    archived: dict[str, Trial]

    def trials(self, study: Study) -> dict[str, Trial]:
        """Return the trials that rows were told of, as they are now."""
        known = self.archived | study.finished | study.trials
        return {trial_id: known[trial_id] for trial_id in self.rows if trial_id in known}


def recall(study: Study, tail: StudyTail) -> Recalled:
    """Make a study what its journal says; return what was told since its last state.

    Raises `Damaged` for a record that cannot be one of ours.
    """
    recalled = Recalled({}, {})
    if tail.state is not None:
        with taken_for_damage("the study", STATE, tail.state):
            study.set_state(tail.state)
    for kind, data in tail.events:
        with taken_for_damage("the study", kind, data):
            _recall_event(study, recalled, from_data(kind, data))
    tail.forget()
    study.delays.clear()
    study.ended.clear()
    return recalled


def _recall_event(study: Study, recalled: Recalled, event: StudyEvent) -> None:
    rows, archived = recalled
    if isinstance(event, TrialsArchived):
        over = study.finished
        archived.update({one: over[one] for one in event.ids if one in over})
    study.take(event, again=True)
    if isinstance(event, TrialReported):
        trial_id, row = event.trial_id, dict(event.result)
        live = study.trials.get(trial_id)
        trial = live or study.finished.get(trial_id) or archived.get(trial_id)
        if trial is not None:  # else nothing more is known of it
            row = row if live is None else as_judged(live, row)
            rows.setdefault(trial_id, []).append((event.step, row, trial.reported_as))
    elif isinstance(event, TrialStarted) and (told := rows.get(event.trial_id)):
        rows[event.trial_id] = [row for row in told if row[0] <= event.after_step]


def continue_study(
    run: OpenRun, study: Study, journal: StudyJournal, engine: Engine, plan: StudyPlan
) -> list[tuple[Trial, dict[str, Any]]]:
    """Have a driver's study go on with what an earlier driver left.

    Returns results that nobody was told of yet, because their driver died over them.
    """
    untold = []
    problems = {one.trial_id: folder_problem(one) for one in study.trials.values()}
    refused = {trial_id: problem for trial_id, problem in problems.items() if problem is not None}
    for trial in list(study.trials.values()):
        is_open = trial.status is Status.RUNNING or run.has_newly_lost_records
        if is_open and trial.trial_id not in refused:
            untold += _take_in_what_was_cut_off(run, trial, journal)
    again: list[Again] = []
    going_on = [one for one in study.trials.values() if one.trial_id not in refused]
    needs = {one.trial_id: list(plan.needs_of(one)) for one in going_on}
    how = plan.resumption
    was_stopped = how.unfinished and study.stopping is not None
    if how.errored or how.errored_from_scratch or how.finished or was_stopped:
        from_scratch = how.errored_from_scratch and not how.errored
        damage: dict[str, list[str]] = {}
        for trial in finished_trials(run, study, damage):
            is_failed = trial.status is Status.ERROR
            is_left = how.finished or (was_stopped and trial.cut_off)
            if (how.errored or how.errored_from_scratch) if is_failed else is_left:
                try:
                    _must_have_folder(trial)
                    trial.resources = tuple(plan.needs_of(trial))
                except ConfigError as error:
                    log.warning("%s stays as it is: %s", trial, error)
                    continue
                again.append(Again(trial.to_data(), from_scratch and is_failed))
        for key, told in damage.items():
            log.warning("of %s, only what can be read goes on: %s", key, "; ".join(told))
    # What ran is not running any more, and what another driver may still commit does not count.
    journal.happen(
        StudyOpened(
            rooms=rooms_of(engine),
            resume_unfinished=how.unfinished,
            again=again,
            needs=needs,
            refused=refused,
            epoch=run.epoch,
        )
    )
    if how.num_samples is not None:
        journal.happen(StudyExtended(how.num_samples))
    if not study.made:
        journal.write_state()  # those who judge have drawn what they will decide by
    journal.settle()
    run.note_damage()  # last: who is cut off before it finds the same again
    return untold


def folder_problem(trial: Trial) -> str | None:
    """Return why a trial can have no files, None if it can."""
    rule = broken_folder_rule(trial.folder)
    return (
        rule and f"no folder can be called {shown(trial.folder)}, as that of the trial is: {rule}"
    )


def _must_have_folder(trial: Trial) -> None:
    if (problem := folder_problem(trial)) is not None:
        raise ConfigError(problem)


def rooms_of(engine: Engine) -> dict[str, dict[str, float]]:
    """Return what there is to be reserved, by node."""
    return {node.name: dict(node.room) for node in engine.nodes() if node.leaves is None}


def _take_in_what_was_cut_off(
    run: OpenRun, trial: Trial, journal: StudyJournal
) -> list[tuple[Trial, dict[str, Any]]]:
    """Take in checkpoints that are at rest without the journal knowing; return their results."""
    store = locate.child(run.store, trial.folder)
    commits = unrecorded_commits(
        store, run.identity, trial.checkpoints, records_lost=run.has_newly_lost_records
    )
    for manifest in commits:
        facts = Kept.of(manifest).to_data()
        journal.happen(TrialCheckpointChanged(trial.trial_id, "checkpoint_committed", facts))
    for kept in trial.checkpoints.usable()[: trial.status is Status.RUNNING]:
        if (kept.step or 0) > trial.step:
            result = {**kept.metrics, "checkpoint_dir_name": kept.directory}
            step = kept.step or 0
            journal.happen(TrialReported(trial.trial_id, trial.run.attempts, step, result))
            return [(trial, as_judged(trial, result))]
    return []


def finished_trials(
    run: OpenRun, study: Study, damage: dict[str, list[str]] | None = None
) -> Iterator[Trial]:
    """Yield all trials that are over, as they were last: a later record of one counts.

    What is damaged in the archive is passed over, and noted in `damage` by its key.
    """
    seen = set(study.finished) | set(study.trials)
    yield from study.finished.values()
    for trial in archived_trials(run.store, study.archives, {} if damage is None else damage):
        if trial.trial_id not in seen:
            seen.add(trial.trial_id)
            yield trial
