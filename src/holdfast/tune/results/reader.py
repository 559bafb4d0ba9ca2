"""Reads the results of a study from its journal and archive; writes nothing, runs no user code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

from holdfast.api.config import CheckpointConfig, retention_of
from holdfast.api.deprecated import warn_user
from holdfast.api.plain_data import CannotBeMade
from holdfast.checkpoint import Checkpoint
from holdfast.control.study.archive import ARCHIVE
from holdfast.core.checkpoint.retention import Retention, ranked
from holdfast.core.study.trial import Status, Trial
from holdfast.storage.base import Store
from holdfast.storage.locate import child
from holdfast.tune.result import CONFIG, EXPERIMENT_TAG
from holdfast.tune.result_grid import ResultGrid
from holdfast.tune.results.study_view import inspect_study
from holdfast.tune.results.summary import StoredTrial
from holdfast.tune.results.trial_folder import stored_trials
from holdfast.tune.study.launch import Launch
from holdfast.tune.study.spec import StudySpec
from holdfast.tune.study.stored_spec import StoredStudy, has_study, recorded_config
from holdfast.worker.job import unpack_value

_NAMES_MAX = 5
T_co = TypeVar("T_co", covariant=True)


class LazyList(Sequence[T_co]):
    """The list that `make` returns; `make` is called once, when the list is first read."""

    def __init__(self, make: Callable[[], Sequence[T_co]]) -> None:
        self._make: Callable[[], Sequence[T_co]] | None = make
        self._made: Sequence[T_co] = ()

    def _items(self) -> Sequence[T_co]:
        if self._make is not None:
            self._made, self._make = self._make(), None
        return self._made

    def __len__(self) -> int:
        return len(self._items())

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T_co]: ...
    def __getitem__(self, index: int | slice) -> T_co | Sequence[T_co]:
        return self._items()[index]

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self._items()),)


def results_of(
    launch: Launch, errors: Mapping[str, bytes | None], *, interrupted: bool
) -> ResultGrid:
    """Return the results of a study that this process has just driven."""
    spec = launch.spec
    retention = retention_of(spec.run_config.checkpoint_config)

    def read() -> list[StoredTrial]:
        damage: dict[str, list[str]] = {}
        trials = [
            summary(
                trial,
                launch.run.store,
                retention,
                error=_unpickled_error(errors.get(trial.trial_id)),
                config=launch.reported_config(trial),
            )
            for trial in launch.all_trials(damage)
        ]
        return _with_unarchived(trials, launch.run.store, damage)

    return ResultGrid.of_trials(
        LazyList(read),
        launch.run.store,
        metric=spec.tune_config.metric,
        mode=spec.tune_config.mode,
        filesystem=spec.run_config.storage_filesystem,
        interrupted=interrupted,
    )


def read_results(store: Store, spec: StudySpec, filesystem: Any = None) -> ResultGrid:
    """Return the results of a study so far; safe while another process drives it."""
    retention = retention_of(spec.run_config.checkpoint_config)
    study = inspect_study(store)
    trials = [summary(trial, store, retention) for trial in study.trials]
    return ResultGrid.of_trials(
        _with_unarchived(trials, store, study.damage),
        store,
        metric=spec.tune_config.metric,
        mode=spec.tune_config.mode,
        filesystem=filesystem,
        interrupted=study.is_interrupted,
    )


def summary(
    trial: Trial,
    store: Store,
    retention: Retention,
    *,
    error: Exception | None = None,
    config: dict[str, Any] | None = None,
) -> StoredTrial:
    """Return a trial as plain values.

    `config` is what it was called with, if that is not just what the record holds. The last result
    holds it too, as the rows of result.json do.
    """
    config = trial.reported_as.config if config is None else config
    identity = {CONFIG: config, EXPERIMENT_TAG: trial.reported_as.tag}
    home = child(store, trial.folder)
    order = [candidate.number for candidate in ranked(retention, trial.checkpoints.candidates())]
    entries = trial.checkpoints.kept
    checkpoints: Sequence[tuple[Checkpoint, dict[str, Any]]] = [
        (Checkpoint.in_run(home, entries[number].directory), dict(entries[number].metrics))
        for number in order
    ]
    newest = None if not order else checkpoints[order.index(max(order))][0]
    has_failed = trial.status is Status.ERROR
    return StoredTrial(
        trial_id=trial.trial_id,
        status=trial.status,
        config=config,
        last_result={**trial.last_result, **identity} if trial.last_result else {},
        statistics=trial.statistics,
        folder=trial.folder,
        error=(error or trial.error) if has_failed else None,
        checkpoints=checkpoints,
        checkpoint=newest,
        evaluated_params=trial.reported_as.params,
        experiment_tag=trial.reported_as.tag,
        name=str(trial),
        path=home.url,
        local_path=None if store.local is None else f"{store.local.root}/{trial.folder}",
        trainable_name=trial.trainable_name,
        num_failures=sum(trial.run.losses.values()),
        start_time=trial.started_at,
    )


def known_trials(store: Store) -> tuple[list[StoredTrial], bool]:
    """Return the trials of the study in a folder, and whether it was interrupted.

    If the record of the study is gone, the trials are read from their own folders.
    """
    if not has_study(store):
        return stored_trials(store), False
    study = inspect_study(store)
    retention = _retention(study.stored)
    trials = [summary(trial, store, retention) for trial in study.trials]
    return _with_unarchived(trials, store, study.damage), study.is_interrupted


def _with_unarchived(
    trials: list[StoredTrial], store: Store, damage: Mapping[str, list[str]]
) -> list[StoredTrial]:
    """Return `trials` and those lost from a damaged archive, which are read from their folders."""
    parts = {key: problems for key, problems in damage.items() if key.startswith(f"{ARCHIVE}/")}
    if not parts:
        return trials
    lost = stored_trials(store, {trial.folder for trial in trials})
    details = "; ".join(f"{key}: {', '.join(problems)}" for key, problems in parts.items())
    names = ", ".join(trial.folder for trial in lost[:_NAMES_MAX]) or "none"
    rest = f" and {len(lost) - _NAMES_MAX} more" if len(lost) > _NAMES_MAX else ""
    warn_user(
        f"the trial archive of the study at {store.url} is damaged ({details}). The results of"
        f" trials missing from it are read from their folders: {names}{rest}"
    )
    return [*trials, *lost]


def _retention(stored: StoredStudy | None) -> Retention:
    """Return which checkpoints a study keeps; the default if its record cannot tell."""
    fields = {} if stored is None else stored.run_config
    try:
        return retention_of(recorded_config(fields, "checkpoint_config", CheckpointConfig))
    except CannotBeMade:
        return retention_of(CheckpointConfig())


def _unpickled_error(pickled: bytes | None) -> Exception | None:
    """Return what a trial raised, None if it cannot be unpickled here."""
    if pickled is None:
        return None
    try:
        value = unpack_value(pickled)
    except Exception:  # noqa: BLE001  # unpickling runs the user's own code
        return None
    return value if isinstance(value, Exception) else None
