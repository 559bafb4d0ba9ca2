"""A study as somebody sees it who only looks on: no lease, no writes, safe beside a live driver.

No code of the user's is imported or run. What cannot be read is told, and the rest is shown.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.api.recorded_names import Trust
from holdfast.checkpoint.manifests import read_manifests
from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.control.record.identity import RUN_KEY, STUDY_KEY, RunIdentity, read_identity
from holdfast.control.record.run_view import STRANGE, RunView, look_with_records
from holdfast.control.study.reader import NoJudge, all_trials, rebuild
from holdfast.control.study.tail import StudyTail
from holdfast.core.checkpoint.record import Kept, RunRecord, record_of
from holdfast.core.names import shown
from holdfast.core.run.history import RunHistory
from holdfast.core.study.events import TrialReported
from holdfast.core.study.judges import Judges
from holdfast.core.study.machine import Study
from holdfast.core.study.rules import Rules
from holdfast.core.study.trial import Status, Trial
from holdfast.errors import (
    ConfigError,
    Damaged,
    HoldfastError,
    RunMissing,
    StoreBusy,
    StoreDenied,
)
from holdfast.storage.base import Store
from holdfast.storage.locate import child, open_store
from holdfast.tune.outputs.tables import Best, best_of, counts_of
from holdfast.tune.result import DEFAULT_METRIC
from holdfast.tune.schedulers import FIFOScheduler, TrialScheduler, create_scheduler
from holdfast.tune.stopper import CombinedStopper, Stopper, TimeoutStopper, stopper_of
from holdfast.tune.study.spec import place_of
from holdfast.tune.study.stored_spec import (
    CannotRestoreStudy,
    StoredStudy,
    configs_of,
    has_study,
    read_study,
    rules_of_stored,
)
from holdfast.tune.tune_config import TuneConfig

_DEPTH_MAX = 8  # of what is shown
_ASKED = frozenset({"scheduler", "metric", "mode", "time_budget_s", "stop"})


@dataclass(frozen=True, slots=True)
class StudyLook:
    """What can be known of a study without holding it.

    Attributes:
        run: What a study has in common with every run: who it is, its lease, its journal.
        stored: How it was begun, None if that cannot be read.
        trials: All trials that can be read, in the order in which they were made. Those that ran
            under a driver that is gone are pending, and cut off.
        counts: How many trials there are of each status, unreadable ones included.
        planned: How many trials there will be, None if that is not known.
        is_over: Whether every trial that will ever be is over.
        damage: What is not as it was written, by key, besides what `run` tells.
        unsure: Why the last decisions may not be known, None if they are.
    """

    run: RunView
    stored: StoredStudy | None
    trials: list[Trial]
    counts: Mapping[str, int]
    planned: int | None
    is_over: bool
    damage: Mapping[str, list[str]] = field(default_factory=dict)
    unsure: str | None = None

    @property
    def status(self) -> str:
        """How the study goes or has come out."""
        if self.run.is_live:
            return "running"
        if self.is_interrupted:
            return "interrupted"
        return "failed trials" if self.counts.get(Status.ERROR) else "done"

    @property
    def is_interrupted(self) -> bool:
        """Whether it is not over, and nobody drives it."""
        return not (self.is_over or self.run.is_live)

    @property
    def metric(self) -> tuple[str | None, str | None]:
        """What trials are judged by, and whether its max or min is best; None for what nobody said.

        Said in the TuneConfig, or else to the scheduler or the searcher. If a mode is all that was
        said, it is the number that trials return.
        """
        said = {} if self.stored is None else self.stored.tune_config
        for values in (said, _arguments(said.get("scheduler")), _arguments(said.get("search_alg"))):
            metric, mode = values.get("metric"), values.get("mode")
            if isinstance(metric, str):
                return metric, mode if isinstance(mode, str) else None
        mode = said.get("mode")
        return (DEFAULT_METRIC, mode) if isinstance(mode, str) else (None, None)

    def best(self) -> Best | None:
        """Return the best trial by its last result, None if nobody can tell."""
        return best_of(self.trials, *self.metric)

    def judge(self, what: str) -> str | None:
        """Return in words which "scheduler" or "search_alg" there is, None for the usual one."""
        if self.stored is None:
            return "not known"
        if f"TuneConfig.{what}" in self.stored.not_kept:
            return "one of your own, to be given again"
        said = self.stored.tune_config.get(what)
        return None if said is None else said if isinstance(said, str) else _in_words(said)

    def trial(self, name: str) -> Trial:
        """Return the trial with that id, name or folder; raise an error that names some."""
        for trial in self.trials:
            if name in (trial.trial_id, str(trial), trial.folder):
                return trial
        known = ", ".join(str(trial) for trial in self.trials[:5]) or "none"
        more = ", …" if len(self.trials) > 5 else ""
        raise ConfigError(
            f"study {self.run.identity.name!r} has no trial {name!r}; there are {known}{more}",
            hint=f"holdfast show {self.run.store.url}",
        )

    def view_of(self, trial: Trial) -> RunView:
        """Return a trial as the run that it is, with commits that the journal does not know yet."""
        view = self._view(trial.folder, str(trial), record_of(trial.checkpoints.to_events()))
        return dataclasses.replace(view, is_live=view.is_live and not trial.is_finished())

    def unknown(self) -> Iterator[RunView]:
        """Yield folders with checkpoints of the study that belong to no trial that can be read.

        Nobody knows what else is in them, so they count as in use.
        """
        known = {trial.folder for trial in self.trials}
        for folder in self.run.store.folders():
            if folder in known or folder.startswith("."):
                continue
            view = self._view(folder, folder, RunRecord())
            if view.record.kept or view.unreadable:
                yield dataclasses.replace(view, is_live=True)

    def _view(self, folder: str, name: str, record: RunRecord) -> RunView:
        store, run = child(self.run.store, folder), self.run
        unreadable = {}
        known = {kept.directory for kept in record.kept.values()}
        for directory, manifest in read_manifests(store, known):
            if isinstance(manifest, Damaged):
                unreadable[directory] = manifest.message
            elif manifest.run_id != run.identity.run_id:
                continue
            elif run.journal_damage or record.is_current(manifest):
                record.apply("checkpoint_committed", Kept.of(manifest).to_data())
        identity = RunIdentity(run.identity.run_id, name, "trial", run.identity.created)
        return RunView(
            store, identity, None, record, run.lease, run.is_live, [], unreadable, RunHistory()
        )


# ---------------------------------------------------------------------- finding


def is_study(store: Store) -> bool:
    """Whether a study is in `store`, also one of which only a part is left."""
    try:
        if read_identity(store).kind == "tune":
            return True
    except (RunMissing, Damaged):
        pass
    return has_study(store)


def study_above(path: str | os.PathLike[str]) -> tuple[Store, str] | None:
    """Return the study that `path` is a folder of, and the folder's name; None if there is none."""
    if open_store(path).stat(RUN_KEY) is not None:
        return None  # a run of its own
    parent, folder = place_of(path)
    try:
        store = open_store(parent)
        return (store, folder) if folder and is_study(store) else None
    except StoreBusy:
        raise
    except HoldfastError:
        return None  # what is above cannot be a study, or is none of our business


# ---------------------------------------------------------------------- reading


def look_at_study(store: Store, clock: Clock = SYSTEM_CLOCK) -> StudyLook:
    """Return what there is to know of the study in `store`; raise `RunMissing` if there is none."""
    run, records = look_with_records(store, clock)
    tail = StudyTail()
    for record in records:
        tail.apply(record.kind, record.data)
    damage: dict[str, list[str]] = {}
    stored = None
    try:
        stored = read_study(store)
    except CannotRestoreStudy as error:
        if tail.state is not None or tail.events or has_study(store):  # or it was not begun yet
            damage[STUDY_KEY] = [error.message.removeprefix(f"{store.url}/{STUDY_KEY}: ")]
    except StoreDenied:
        # It is another user's, who alone may read how it was begun; the rest is for all to see.
        if store.local is None:
            raise
    study, unsure = _as_begun(stored)
    has_results = any(kind == TrialReported.kind for kind, _ in tail.events)
    rebuild(study, tail, run.journal_damage)
    if isinstance(study.judges, _QuietJudges):
        unsure = unsure or study.judges.failure
    for trial in study.trials.values():
        if trial.status is Status.RUNNING and not run.is_live:
            trial.status, trial.cut_off = Status.PENDING, True
    counts = counts_of(study.trials.values())
    for status, count in study.counts.items():
        counts[str(status)] = counts.get(str(status), 0) + count
    return StudyLook(
        run=run,
        stored=stored,
        trials=all_trials(store, study, damage),
        counts={status: count for status, count in counts.items() if count},
        planned=_planned(study, stored),
        is_over=study.is_over,
        damage=damage,
        unsure=unsure if has_results else None,
    )


def _planned(study: Study, stored: StoredStudy | None) -> int | None:
    """Return how many trials a study will have made, None if nobody knows."""
    if study.is_search_over or stored is None or stored.planned is None:
        return study.made if study.is_search_over else None
    return max(stored.planned, study.made)


# ---------------------------------------------------------------------- who judges


def _as_begun(stored: StoredStudy | None) -> tuple[Study, str | None]:
    """Return an empty study with its own rules, and why it may decide otherwise, if it may.

    The searcher is not needed: what it proposed is in the journal.
    """
    nobody = NoJudge()
    if stored is None:
        why = f"{STUDY_KEY} cannot be read, so nobody knows who judged the last results"
        return Study(_QuietJudges(nobody, nobody, nobody), Rules()), why
    tune, run, refused = configs_of(stored, Trust.LOOKING, only=_ASKED)
    not_asked = [
        name
        for name in ("TuneConfig.scheduler", "RunConfig.stop")
        if name in refused or name in stored.not_kept
    ]
    try:
        rules = rules_of_stored(stored)
        stopper = nobody if "RunConfig.stop" in not_asked else _stopper(tune, run)
        scheduler = nobody if "TuneConfig.scheduler" in not_asked else _scheduler(tune)
    except STRANGE as error:
        why = f"those who judged the last results cannot be made again: {error}"
        return Study(_QuietJudges(nobody, nobody, nobody), Rules()), why
    why = f"{' and '.join(not_asked)} is your own, and is not asked by those who look on"
    return Study(_QuietJudges(nobody, scheduler, stopper), rules), why if not_asked else None


class _QuietJudges(Judges):
    """Those who judge, for who only looks on: what one of them raises is kept, not logged."""

    failure: str | None = None

    def tell_failure(self, whom: str, error: Exception, then: str) -> None:
        self.failure = self.failure or f"{whom} of the record failed: {error}"

    def look_for(self, metric: str | None, trial: Trial, result: Mapping[str, Any]) -> None:
        pass  # whoever drove the study was told


def _scheduler(tune: Mapping[str, Any]) -> TrialScheduler:
    scheduler = tune.get("scheduler")
    if isinstance(scheduler, str):
        scheduler = create_scheduler(scheduler)
    if not isinstance(scheduler, TrialScheduler | None):
        raise TypeError(f"{shown(scheduler)} is not a scheduler")
    found: TrialScheduler = FIFOScheduler() if scheduler is None else scheduler
    metric, mode = tune.get("metric"), tune.get("mode")
    if not isinstance(metric, str | None) or mode not in (None, "min", "max"):
        raise TypeError(f"nothing is judged by metric={shown(metric)}, mode={shown(mode)}")
    found.set_search_properties(metric, mode)
    found.check_ready()  # which says by what it judges, if nobody has
    return found


def _stopper(tune: Mapping[str, Any], run: Mapping[str, Any]) -> Stopper:
    budget_s = TuneConfig(time_budget_s=tune.get("time_budget_s")).budget_s
    found = stopper_of(run.get("stop"))
    return found if budget_s is None else CombinedStopper(found, TimeoutStopper(budget_s))


def _in_words(plain: Any, depth: int = 0) -> str:
    """Return what a record says that an object was made by, as its user would have written it."""
    if depth > _DEPTH_MAX:
        return "…"
    if isinstance(plain, list):
        return f"[{', '.join(_in_words(value, depth + 1) for value in plain)}]"
    if not isinstance(plain, dict):
        return repr(plain)
    for mark, named in (("@made", "kwargs"), ("@dataclass", "fields")):
        call = plain.get(mark)
        if isinstance(call, dict):
            args, kwargs = call.get("args", []), call.get(named, {})
            args = args if isinstance(args, list) else []
            given = [_in_words(value, depth + 1) for value in args]
            if isinstance(kwargs, dict):
                given += [f"{name}={_in_words(kwargs[name], depth + 1)}" for name in kwargs]
            return f"{str(call.get('class')).rpartition(':')[2]}({', '.join(given)})"
    said = (f"{name!r}: {_in_words(value, depth + 1)}" for name, value in plain.items())
    return f"{{{', '.join(said)}}}"


def _arguments(plain: Any) -> Mapping[str, Any]:
    """Return by what a scheduler or searcher was made, as far as it was said by name."""
    made = plain.get("@made") if isinstance(plain, dict) else None
    given = made.get("kwargs") if isinstance(made, dict) else None
    return given if isinstance(given, dict) else {}
