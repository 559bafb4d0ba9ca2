"""The results of a study, from its journal and archive; nothing is written, nothing is run."""

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
from holdfast.tune.results.study_view import look_at_study
from holdfast.tune.results.summary import StoredTrial
from holdfast.tune.results.trial_folder import stored_trials
from holdfast.tune.study.launch import Launch
from holdfast.tune.study.spec import StudySpec
from holdfast.tune.study.stored_spec import StoredStudy, has_study, kept_config
from holdfast.worker.job import unpack_value

_NAMES_MAX = 5
T_co = TypeVar("T_co", covariant=True)


class LazyList(Sequence[T_co]):
    """The list that `make` returns, which is called once, when the list is first read, or never."""

    def __init__(self, make: Callable[[], Sequence[T_co]]) -> None:
        self._make: Callable[[], Sequence[T_co]] | None = make
        self._made: Sequence[T_co] = ()

    def _all(self) -> Sequence[T_co]:
        if self._make is not None:
            self._made, self._make = self._make(), None
        return self._made

    def __len__(self) -> int:
        return len(self._all())

    @overload
    def __getitem__(self, place: int) -> T_co: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[T_co]: ...
    def __getitem__(self, place: int | slice) -> T_co | Sequence[T_co]:
        return self._all()[place]

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self._all()),)


def results_of(
    launch: Launch, errors: Mapping[str, bytes | None], *, interrupted: bool
) -> ResultGrid:
    """Return what a study has come to, right after it was driven."""
    spec = launch.spec
    retention = retention_of(spec.run_config.checkpoint_config)

    def read() -> list[StoredTrial]:
        damage: dict[str, list[str]] = {}
        found = [
            summary(
                trial,
                launch.run.store,
                retention,
                error=_raised(errors.get(trial.trial_id)),
                config=launch.config_as_known(trial),
            )
            for trial in launch.all_trials(damage)
        ]
        return _with_lost(found, launch.run.store, damage)

    return ResultGrid.of_trials(
        LazyList(read),
        launch.run.store,
        metric=spec.tune_config.metric,
        mode=spec.tune_config.mode,
        filesystem=spec.run_config.storage_filesystem,
        interrupted=interrupted,
    )


def read_results(store: Store, spec: StudySpec, filesystem: Any = None) -> ResultGrid:
    """Return what a study has come to so far, whoever drives it; nothing of it is made or run."""
    retention = retention_of(spec.run_config.checkpoint_config)
    study = look_at_study(store)
    found = [summary(trial, store, retention) for trial in study.trials]
    return ResultGrid.of_trials(
        _with_lost(found, store, study.damage),
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
    """Return a trial for those who look at results.

    `config` is what it was called with, if more is known of that than the record tells. It is in
    the last result, too, as in the rows of result.json.
    """
    config = trial.reported_as.config if config is None else config
    whose = {CONFIG: config, EXPERIMENT_TAG: trial.reported_as.tag}
    home = child(store, trial.folder)
    order = [one.number for one in ranked(retention, trial.checkpoints.candidates())]
    kept = trial.checkpoints.kept
    checkpoints: Sequence[tuple[Checkpoint, dict[str, Any]]] = [
        (Checkpoint.in_run(home, kept[number].directory), dict(kept[number].metrics))
        for number in order
    ]
    newest = None if not order else checkpoints[order.index(max(order))][0]
    failed = trial.status is Status.ERROR
    return StoredTrial(
        trial_id=trial.trial_id,
        status=trial.status,
        config=config,
        last_result={**trial.last_result, **whose} if trial.last_result else {},
        statistics=trial.statistics,
        folder=trial.folder,
        error=(error or trial.error) if failed else None,
        checkpoints=checkpoints,
        checkpoint=newest,
        evaluated_params=trial.reported_as.params,
        experiment_tag=trial.reported_as.tag,
        name=str(trial),
        path=home.url,
        local_path=_local(store, trial.folder),
        trainable_name=trial.trainable_name,
        num_failures=sum(trial.run.losses.values()),
        start_time=trial.started_at,
    )


def known_trials(store: Store) -> tuple[list[StoredTrial], bool]:
    """Return the trials of the study in a folder, and whether it was interrupted; without its code.

    As the study has kept them, or, if there is nothing of a study, as their own folders tell.
    """
    if not has_study(store):
        return stored_trials(store), False
    study = look_at_study(store)
    found = [summary(trial, store, _retention(study.stored)) for trial in study.trials]
    return _with_lost(found, store, study.damage), study.is_interrupted


def _with_lost(
    found: list[StoredTrial], store: Store, damage: Mapping[str, list[str]]
) -> list[StoredTrial]:
    """Return trials with those whose records in the archive are damaged, as their folders tell."""
    parts = {key: problems for key, problems in damage.items() if key.startswith(f"{ARCHIVE}/")}
    if not parts:
        return found
    lost = stored_trials(store, {trial.folder for trial in found})
    told = "; ".join(f"{key}: {', '.join(problems)}" for key, problems in parts.items())
    names = ", ".join(trial.folder for trial in lost[:_NAMES_MAX]) or "none"
    more = f" and {len(lost) - _NAMES_MAX} more" if len(lost) > _NAMES_MAX else ""
    warn_user(
        f"the archive of trials of the study at {store.url} is damaged ({told}). Of trials that are"
        f" in it no more, the results are taken from their folders: {names}{more}"
    )
    return [*found, *lost]


def _retention(stored: StoredStudy | None) -> Retention:
    """Return which checkpoints a study keeps, as far as its record can tell."""
    fields = {} if stored is None else stored.run_config
    try:
        return retention_of(kept_config(fields, "checkpoint_config", CheckpointConfig))
    except CannotBeMade:
        return retention_of(CheckpointConfig())


def _local(store: Store, folder: str) -> str | None:
    return None if store.local is None else f"{store.local.root}/{folder}"


def _raised(pickled: bytes | None) -> Exception | None:
    """Return what a trial raised, if it can be had back."""
    if pickled is None:
        return None
    try:
        value = unpack_value(pickled)
    except Exception:  # noqa: BLE001  # unpickling runs the user's own code
        return None
    return value if isinstance(value, Exception) else None
