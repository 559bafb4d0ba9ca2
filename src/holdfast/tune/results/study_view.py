"""Reads a study without its lease: no writes, safe beside a live driver.

No user code is imported or run. What cannot be read is reported as damage; the rest is returned.
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
from holdfast.tune.stopper import Stopper
from holdfast.tune.study.spec import split_study_path, stopper_for
from holdfast.tune.study.stored_spec import (
    CannotRestoreStudy,
    StoredStudy,
    configs_of,
    has_study,
    read_study,
    rules_of_stored,
)
from holdfast.tune.tune_config import TuneConfig

_DEPTH_MAX = 8
_JUDGE_FIELDS = frozenset({"scheduler", "metric", "mode", "time_budget_s", "stop"})


@dataclass(frozen=True, slots=True)
class StudyInspection:
    """The state of a study, read without holding it.

    Attributes:
        run: What a study has in common with every run: its identity, lease and journal.
        stored: Its specification, None if that cannot be read.
        trials: All trials that can be read, in the order in which they were made. Those that ran
            under a driver that is gone are pending, and cut off.
        counts: How many trials there are of each status, unreadable ones included.
        planned: How many trials there will be, None if that is not known.
        is_over: Whether no trial runs and none will be added.
        damage: Problems by key, besides those in `run`.
        unsure: Why the last decisions may be shown wrongly, None if they are certain.
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
        """The state of the study in one or two words."""
        if self.run.is_live:
            return "running"
        if self.is_interrupted:
            return "interrupted"
        return "failed trials" if self.counts.get(Status.ERROR) else "done"

    @property
    def is_interrupted(self) -> bool:
        """Whether it is not over, and no process drives it."""
        return not (self.is_over or self.run.is_live)

    @property
    def metric(self) -> tuple[str | None, str | None]:
        """The metric and mode that trials are judged by; None for what was not given.

        Taken from the TuneConfig, else from the scheduler or the searcher. Given a mode alone, the
        metric is the number that trials return.
        """
        config = {} if self.stored is None else self.stored.tune_config
        judges = (_arguments(config.get(field)) for field in ("scheduler", "search_alg"))
        for values in (config, *judges):
            metric, mode = values.get("metric"), values.get("mode")
            if isinstance(metric, str):
                return metric, mode if isinstance(mode, str) else None
        mode = config.get("mode")
        return (DEFAULT_METRIC, mode) if isinstance(mode, str) else (None, None)

    def best(self) -> Best | None:
        """Return the best trial by its last result, None if trials cannot be compared."""
        return best_of(self.trials, *self.metric)

    def judge(self, field: str) -> str | None:
        """Return the "scheduler" or "search_alg" as source text, None for the default one."""
        if self.stored is None:
            return "not known"
        if f"TuneConfig.{field}" in self.stored.not_kept:
            return "your own, which must be given again"
        judge = self.stored.tune_config.get(field)
        return None if judge is None else judge if isinstance(judge, str) else _as_source(judge)

    def trial(self, name: str) -> Trial:
        """Return the trial with that id, name or folder; raise an error that names some."""
        for trial in self.trials:
            if name in (trial.trial_id, str(trial), trial.folder):
                return trial
        names = ", ".join(str(trial) for trial in self.trials[:5]) or "none"
        rest = ", …" if len(self.trials) > 5 else ""
        raise ConfigError(
            f"study {self.run.identity.name!r} has no trial {name!r}; there are {names}{rest}",
            hint=f"holdfast show {self.run.store.url}",
        )

    def view_of(self, trial: Trial) -> RunView:
        """Return a trial as a run, with commits that are not in the journal yet."""
        view = self._view(trial.folder, str(trial), record_of(trial.checkpoints.to_events()))
        return dataclasses.replace(view, is_live=view.is_live and not trial.is_finished())

    def unclaimed_folders(self) -> Iterator[RunView]:
        """Yield folders with checkpoints of the study that belong to no trial that can be read.

        Their other contents are unknown, so they count as in use.
        """
        trial_folders = {trial.folder for trial in self.trials}
        for folder in self.run.store.folders():
            if folder in trial_folders or folder.startswith("."):
                continue
            view = self._view(folder, folder, RunRecord())
            if view.record.kept or view.unreadable:
                yield dataclasses.replace(view, is_live=True)

    def _view(self, folder: str, name: str, record: RunRecord) -> RunView:
        store, run = child(self.run.store, folder), self.run
        unreadable = {}
        recorded = {entry.directory for entry in record.kept.values()}
        for directory, manifest in read_manifests(store, recorded):
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
    """Whether a study, or a part of one, is in `store`."""
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
    parent, folder = split_study_path(path)
    try:
        store = open_store(parent)
        return (store, folder) if folder and is_study(store) else None
    except StoreBusy:
        raise
    except HoldfastError:
        return None  # the parent is no store, or we may not read it


# ---------------------------------------------------------------------- reading


def inspect_study(store: Store, clock: Clock = SYSTEM_CLOCK) -> StudyInspection:
    """Return the state of the study in `store`; raise `RunMissing` if there is none."""
    run, records = look_with_records(store, clock)
    tail = StudyTail()
    for record in records:
        tail.apply(record.kind, record.data)
    damage: dict[str, list[str]] = {}
    stored = None
    try:
        stored = read_study(store)
    except CannotRestoreStudy as error:
        if tail.state is not None or tail.events or has_study(store):  # else it has not begun yet
            damage[STUDY_KEY] = [error.message.removeprefix(f"{store.url}/{STUDY_KEY}: ")]
    except StoreDenied:
        # On a local disk only the owner may read this file, while everyone may read the rest.
        if store.local is None:
            raise
    study, unsure = _empty_study(stored)
    has_results = any(kind == TrialReported.kind for kind, _ in tail.events)
    rebuild(study, tail, run.journal_damage)
    if isinstance(study.judges, _ReadOnlyJudges):
        unsure = unsure or study.judges.failure
    for trial in study.trials.values():
        if trial.status is Status.RUNNING and not run.is_live:
            trial.status, trial.cut_off = Status.PENDING, True
    counts = counts_of(study.trials.values())
    for status, count in study.counts.items():
        counts[str(status)] = counts.get(str(status), 0) + count
    return StudyInspection(
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
    """Return how many trials a study will have made, None if that is not known."""
    if study.is_search_over or stored is None or stored.planned is None:
        return study.made if study.is_search_over else None
    return max(stored.planned, study.made)


# ---------------------------------------------------------------------- scheduler and stopper


def _empty_study(stored: StoredStudy | None) -> tuple[Study, str | None]:
    """Return an empty study with the recorded rules, and why its decisions may differ, if they may.

    The searcher is not needed: what it proposed is in the journal.
    """
    no_judge = NoJudge()
    if stored is None:
        why = f"{STUDY_KEY} cannot be read, and with it which scheduler judged the last results"
        return Study(_ReadOnlyJudges(no_judge, no_judge, no_judge), Rules()), why
    tune, run, refused = configs_of(stored, Trust.LOOKING, only=_JUDGE_FIELDS)
    not_run = [
        name
        for name in ("TuneConfig.scheduler", "RunConfig.stop")
        if name in refused or name in stored.not_kept
    ]
    try:
        rules = rules_of_stored(stored)
        stopper = no_judge if "RunConfig.stop" in not_run else _stopper(tune, run)
        scheduler = no_judge if "TuneConfig.scheduler" in not_run else _scheduler(tune)
    except STRANGE as error:
        why = f"the scheduler or stopper of the last results cannot be rebuilt: {error}"
        return Study(_ReadOnlyJudges(no_judge, no_judge, no_judge), Rules()), why
    why = f"{' and '.join(not_run)} is your own code, which is not run to look at a study"
    return Study(_ReadOnlyJudges(no_judge, scheduler, stopper), rules), why if not_run else None


class _ReadOnlyJudges(Judges):
    """Judges that keep the first failure instead of logging it: the driver has logged it."""

    failure: str | None = None

    def tell_failure(self, whom: str, error: Exception, then: str) -> None:
        self.failure = self.failure or f"{whom} of the record failed: {error}"

    def look_for(self, metric: str | None, trial: Trial, result: Mapping[str, Any]) -> None:
        pass  # the driver has warned


def _scheduler(tune: Mapping[str, Any]) -> TrialScheduler:
    scheduler = tune.get("scheduler")
    if isinstance(scheduler, str):
        scheduler = create_scheduler(scheduler)
    if not isinstance(scheduler, TrialScheduler | None):
        raise TypeError(f"{shown(scheduler)} is not a scheduler")
    judge: TrialScheduler = FIFOScheduler() if scheduler is None else scheduler
    metric, mode = tune.get("metric"), tune.get("mode")
    if not isinstance(metric, str | None) or mode not in (None, "min", "max"):
        raise TypeError(f"metric={shown(metric)}, mode={shown(mode)} cannot be judged by")
    judge.set_search_properties(metric, mode)
    judge.check_ready()  # sets the default metric
    return judge


def _stopper(tune: Mapping[str, Any], run: Mapping[str, Any]) -> Stopper:
    budget_s = TuneConfig(time_budget_s=tune.get("time_budget_s")).budget_s
    return stopper_for(run.get("stop"), budget_s)


def _as_source(plain: Any, depth: int = 0) -> str:
    """Return recorded data as the Python expression that its user would have written."""
    if depth > _DEPTH_MAX:
        return "…"
    if isinstance(plain, list):
        return f"[{', '.join(_as_source(value, depth + 1) for value in plain)}]"
    if not isinstance(plain, dict):
        return repr(plain)
    for mark, keywords in (("@made", "kwargs"), ("@dataclass", "fields")):
        call = plain.get(mark)
        if isinstance(call, dict):
            args, kwargs = call.get("args", []), call.get(keywords, {})
            args = args if isinstance(args, list) else []
            arguments = [_as_source(value, depth + 1) for value in args]
            if isinstance(kwargs, dict):
                arguments += [f"{name}={_as_source(kwargs[name], depth + 1)}" for name in kwargs]
            return f"{str(call.get('class')).rpartition(':')[2]}({', '.join(arguments)})"
    items = (f"{name!r}: {_as_source(value, depth + 1)}" for name, value in plain.items())
    return f"{{{', '.join(items)}}}"


def _arguments(plain: Any) -> Mapping[str, Any]:
    """Return the keyword arguments that a recorded scheduler or searcher was made with."""
    call = plain.get("@made") if isinstance(plain, dict) else None
    kwargs = call.get("kwargs") if isinstance(call, dict) else None
    return kwargs if isinstance(kwargs, dict) else {}
