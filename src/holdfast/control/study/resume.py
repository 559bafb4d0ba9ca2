"""Opens a study that an earlier driver left: settles what was cut off, and says who goes on."""

from __future__ import annotations

import logging
from typing import Any

from holdfast.control.record.open_run import OpenRun, unrecorded_commits
from holdfast.control.study.journal import StudyJournal
from holdfast.control.study.plan import StudyPlan
from holdfast.control.study.reader import finished_trials
from holdfast.core.checkpoint.record import Kept
from holdfast.core.names import broken_folder_rule, shown
from holdfast.core.study.events import (
    Again,
    StudyExtended,
    StudyOpened,
    TrialCheckpointChanged,
    TrialReported,
)
from holdfast.core.study.judges import as_judged
from holdfast.core.study.machine import Study
from holdfast.core.study.trial import Status, Trial
from holdfast.engine.base import Engine
from holdfast.errors import ConfigError
from holdfast.storage import locate

log = logging.getLogger(__name__)


def continue_study(
    run: OpenRun, study: Study, journal: StudyJournal, engine: Engine, plan: StudyPlan
) -> list[tuple[Trial, dict[str, Any]]]:
    """Have a study go on from what an earlier driver left.

    Returns results that no observer has seen, because the driver died over them.
    """
    unseen = []
    problems = {trial.trial_id: folder_problem(trial) for trial in study.trials.values()}
    refused = {trial_id: problem for trial_id, problem in problems.items() if problem is not None}
    for trial in list(study.trials.values()):
        is_open = trial.status is Status.RUNNING or run.has_newly_lost_records
        if is_open and trial.trial_id not in refused:
            unseen += _adopt_commits(run, trial, journal)
    going_on = [trial for trial in study.trials.values() if trial.trial_id not in refused]
    # What ran is not running any more, and what another driver may still commit does not count.
    journal.happen(
        StudyOpened(
            rooms=rooms_of(engine),
            resume_unfinished=plan.resumption.unfinished,
            again=_tried_again(run, study, plan),
            needs={trial.trial_id: list(plan.needs_of(trial)) for trial in going_on},
            refused=refused,
            epoch=run.epoch,
        )
    )
    if plan.resumption.num_samples is not None:
        journal.happen(StudyExtended(plan.resumption.num_samples))
    if not study.made:
        journal.write_state()  # scheduler and searcher have drawn the seeds they decide by
    journal.settle()
    run.note_damage()  # last: if this is cut off before, the next driver finds the same again
    return unseen


def _tried_again(run: OpenRun, study: Study, plan: StudyPlan) -> list[Again]:
    """Return the trials that are over and are to run again."""
    how = plan.resumption
    was_stopped = how.unfinished and study.stopping is not None
    retries_failed = how.errored or how.errored_from_scratch
    if not (retries_failed or how.finished or was_stopped):
        return []
    from_scratch = how.errored_from_scratch and not how.errored
    again: list[Again] = []
    damage: dict[str, list[str]] = {}
    for trial in finished_trials(run.store, study, damage):
        is_failed = trial.status is Status.ERROR
        if not (retries_failed if is_failed else how.finished or (was_stopped and trial.cut_off)):
            continue
        try:
            if (problem := folder_problem(trial)) is not None:
                raise ConfigError(problem)
            trial.resources = tuple(plan.needs_of(trial))
        except ConfigError as error:
            log.warning("%s stays as it is: %s", trial, error)
            continue
        again.append(Again(trial.to_data(), from_scratch and is_failed))
    for key, lines in damage.items():
        log.warning("of %s, only what can be read goes on: %s", key, "; ".join(lines))
    return again


def folder_problem(trial: Trial) -> str | None:
    """Return why a trial can have no files, None if it can."""
    rule = broken_folder_rule(trial.folder)
    return (
        rule and f"no folder can be called {shown(trial.folder)}, as that of the trial is: {rule}"
    )


def rooms_of(engine: Engine) -> dict[str, dict[str, float]]:
    """Return what can be reserved, by node; nodes that are about to go offer nothing."""
    return {node.name: dict(node.room) for node in engine.nodes() if node.leaves is None}


def _adopt_commits(
    run: OpenRun, trial: Trial, journal: StudyJournal
) -> list[tuple[Trial, dict[str, Any]]]:
    """Take in checkpoints whose commit the journal does not have; return their results."""
    store = locate.child(run.store, trial.folder)
    commits = unrecorded_commits(
        store, run.identity, trial.checkpoints, records_lost=run.has_newly_lost_records
    )
    for manifest in commits:
        facts = Kept.of(manifest).to_data()
        journal.happen(TrialCheckpointChanged(trial.trial_id, "checkpoint_committed", facts))
    for newest in trial.checkpoints.usable()[: trial.status is Status.RUNNING]:
        if (step := newest.step or 0) > trial.step:
            result = {**newest.metrics, "checkpoint_dir_name": newest.directory}
            journal.happen(TrialReported(trial.trial_id, trial.run.attempts, step, result))
            return [(trial, as_judged(trial, result))]
    return []
