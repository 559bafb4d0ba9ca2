"""Rebuilds a study from its journal and its archive: one way for drivers and for readers.

A driver refuses a record that it cannot take in, because what it decides rests on all of them.
A reader that only looks passes such a record over, and shows the rest with what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from holdfast.control.record.run_view import STRANGE
from holdfast.control.record.shapes import taken_for_damage
from holdfast.control.study.archive import archived_trials
from holdfast.control.study.tail import StudyTail
from holdfast.core.study.events import (
    STATE,
    StudyEvent,
    TrialReported,
    TrialsArchived,
    TrialStarted,
    from_data,
)
from holdfast.core.study.judges import as_judged
from holdfast.core.study.machine import Study
from holdfast.core.study.trial import Trial, Variant, Verdict
from holdfast.storage.base import Store


class Recalled(NamedTuple):
    """What happened since the last state of a study, by the ids of trials.

    Attributes:
        rows: Results and what they were made with, without those that were superseded since.
        archived: Trials that were archived since: their rows may be in no file yet.
    """

    rows: dict[str, list[tuple[int, dict[str, Any], Variant]]]
    archived: dict[str, Trial]

    def trials(self, study: Study) -> dict[str, Trial]:
        """Return the trials that there are rows of, as they are now."""
        trials = self.archived | study.finished | study.trials
        return {trial_id: trials[trial_id] for trial_id in self.rows if trial_id in trials}


def rebuild(study: Study, tail: StudyTail, problems: list[str] | None = None) -> Recalled:
    """Make an empty study what its journal says; `tail` is empty afterwards.

    With `problems`, a record that cannot be taken in is noted there and passed over; without, it
    raises `Damaged`.
    """
    recalled = Recalled({}, {})
    if tail.state is not None:
        try:
            with taken_for_damage("the study", STATE, tail.state):
                study.set_state(tail.state)
        except STRANGE as error:
            if problems is None:
                raise
            problems.append(f"its last state cannot be taken in: {_cause(error)}")
    for kind, data in tail.events:
        try:
            with taken_for_damage("the study", kind, data):
                _take(study, recalled, from_data(kind, data))
        except STRANGE as error:
            if problems is None:
                raise
            problems.append(f"a record ({kind}) cannot follow those before it: {_cause(error)}")
    tail.forget()
    study.delays.clear()
    study.ended.clear()
    return recalled


def _cause(error: Exception) -> BaseException:
    return error.__cause__ or error


def _take(study: Study, recalled: Recalled, event: StudyEvent) -> None:
    rows, archived = recalled
    if isinstance(event, TrialsArchived):
        over = study.finished
        archived.update({trial_id: over[trial_id] for trial_id in event.ids if trial_id in over})
    study.take(event, again=True)
    if isinstance(event, TrialReported):
        trial_id, row = event.trial_id, dict(event.result)
        live = study.trials.get(trial_id)
        trial = live or study.finished.get(trial_id) or archived.get(trial_id)
        if trial is not None:  # else its records are lost
            row = row if live is None else as_judged(live, row)
            rows.setdefault(trial_id, []).append((event.step, row, trial.reported_as))
    elif isinstance(event, TrialStarted) and event.trial_id in rows:
        rows[event.trial_id] = [row for row in rows[event.trial_id] if row[0] <= event.after_step]


def finished_trials(
    store: Store, study: Study, damage: dict[str, list[str]] | None = None
) -> Iterator[Trial]:
    """Yield all trials that are over, as the newest record of each has them.

    Damage of the archive is passed over, and noted in `damage` by its key.
    """
    seen = set(study.finished) | set(study.trials)
    yield from study.finished.values()
    damage = {} if damage is None else damage
    for trial in archived_trials(store, study.archives, damage, study.trial_type):
        if trial.trial_id not in seen:
            seen.add(trial.trial_id)
            yield trial


def all_trials(store: Store, study: Study, damage: dict[str, list[str]]) -> list[Trial]:
    """Return all trials of a study in the order in which they were made, as `finished_trials`."""
    trials = [*study.trials.values(), *finished_trials(store, study, damage)]
    return sorted(trials, key=lambda trial: trial.number)


class NoJudge:
    """Scheduler, searcher and stopper that decide nothing, where only the journal counts."""

    trials_ahead = 0

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        del trial_id, result
        return False

    def stop_all(self) -> bool:
        return False

    def choose_trial_to_run(self, view: object) -> None:
        del view

    def on_trial_result(self, view: object, trial: Trial, result: dict[str, Any]) -> str:
        del view, trial, result
        return Verdict.CONTINUE

    def on_trial_add(self, view: object, trial: Trial) -> None: ...
    def on_trial_error(self, view: object, trial: Trial) -> None: ...
    def on_trial_complete(self, view: object, trial: Trial, result: dict[str, Any]) -> None: ...
    def on_trial_remove(self, view: object, trial: Trial) -> None: ...
    def on_trial_pause(self, view: object, trial: Trial) -> None: ...
    def recall(self, trial: Trial) -> None: ...
    def recall_end(self) -> None: ...
    def on_revive(self, trial_id: str) -> None: ...
    def on_result(self, trial_id: str, result: dict[str, Any]) -> None: ...
    def on_complete(
        self, trial_id: str, result: dict[str, Any] | None, *, error: bool = False
    ) -> None: ...
    def on_pause(self, trial_id: str) -> None: ...
    def on_unpause(self, trial_id: str) -> None: ...
    def extend(self, num_samples: int) -> None: ...

    def get_state(self) -> dict[str, Any]:
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None: ...
