"""The specification of a study: what to run, what to search, how, and where it is stored."""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.api.checks import is_whole
from holdfast.api.config import RunConfig
from holdfast.api.plain_data import CannotBeMade, from_plain, opened_as
from holdfast.api.scaling import ScalingConfig, searched_fields
from holdfast.core.names import shown
from holdfast.core.study.rules import Rules
from holdfast.errors import ConfigError
from holdfast.storage.base import Store
from holdfast.storage.foreign.arrow import absolute
from holdfast.storage.locate import child, open_store
from holdfast.tune.callback import Callback
from holdfast.tune.schedulers import FIFOScheduler, TrialScheduler, create_scheduler
from holdfast.tune.search import create_searcher
from holdfast.tune.search.basic_variant import BasicVariantGenerator
from holdfast.tune.search.domains import Categorical
from holdfast.tune.search.generator import SearchPlan
from holdfast.tune.search.objects import Objects, must_have_same_keys
from holdfast.tune.search.plain import name_of
from holdfast.tune.search.stored_space import space_from_data
from holdfast.tune.search.wrapping import innermost
from holdfast.tune.stopper import CombinedStopper, Stopper, TimeoutStopper, stopper_of
from holdfast.tune.study.stored_spec import (
    PER_TRIAL,
    CannotRestoreStudy,
    StoredStudy,
    configs_of,
    rules_of,
)
from holdfast.tune.trainables.kinds import Runnable
from holdfast.tune.tune_config import TuneConfig

_RUN, _SCALING = "run_config", "scaling_config"  # what a search space can hold for a trainer


@dataclass(frozen=True, kw_only=True)
class StudySpec:
    """A study as its user specified it.

    Attributes:
        has_made_up_name: Whether `name` is a suggestion, to be changed if it is taken.
        stored: Its record, if the study resumes; the record wins over the configs of a script that
            has changed since.
        restore_path: A checkpoint that trials start from while they have none of their own.
        export_formats: The formats in which trials export their models when they end.
        loggers: What writes results to files; None for the default ones.
    """

    trainable: Runnable
    tune_config: TuneConfig
    run_config: RunConfig
    param_space: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    has_made_up_name: bool = False
    stored: StoredStudy | None = None
    resources: Any = None
    restore_path: str | None = None
    export_formats: tuple[str, ...] = ()
    loggers: Sequence[Callback] | None = None

    def __post_init__(self) -> None:
        space = checked_space(self.param_space, is_trainer=self.trainable.is_trainer)
        object.__setattr__(self, "param_space", space)

    def store(self) -> Store:
        """Return the study's own store."""
        config = self.run_config
        return child(open_store(config.storage_path, config.storage_filesystem), self.name)

    # ------------------------------------------------------------------ search and judges

    def search(self) -> SearchPlan:
        """Return what the study will try; raise if that cannot work, or cannot be stored."""
        config = self.tune_config
        search_alg = _fresh(config.search_alg)
        if isinstance(search_alg, str):
            search_alg = create_searcher(search_alg)
        scheduler = config.scheduler
        learns = search_alg is not None and not isinstance(
            innermost(search_alg), BasicVariantGenerator
        )
        if learns and isinstance(scheduler, TrialScheduler) and not scheduler.accepts_searcher:
            raise ConfigError(
                f"{type(scheduler).__name__} changes configs itself and cannot be combined with"
                " search_alg",
                hint="leave out search_alg, or take another scheduler",
            )
        space, objects = self._space()
        return SearchPlan(
            search_alg,
            space,
            num_samples=config.num_samples,
            metric=config.metric if learns else None,
            mode=config.mode if learns else None,
            max_concurrent=config.max_concurrent_trials if learns else None,
            objects=objects,
        )

    def _space(self) -> tuple[Mapping[str, Any], Objects | None]:
        """Return the search space and its new objects; if the study resumes, the recorded space."""
        if self.stored is None:
            return self.param_space, None
        objects = None
        if self.param_space:
            must_have_same_keys(self.stored.keys, self.param_space)
            _, objects = Objects.of(dict(self.param_space))
        return space_from_data(self.stored.space, objects or Objects()), objects

    def scheduler(self) -> TrialScheduler:
        """Return a fresh scheduler; raise if it does not fit the study."""
        config = self.tune_config
        scheduler = _fresh(config.scheduler)
        if isinstance(scheduler, str):
            scheduler = create_scheduler(scheduler)
        if scheduler is None:
            scheduler = FIFOScheduler()
        if not isinstance(scheduler, TrialScheduler):
            raise ConfigError(
                f"scheduler={shown(scheduler)} is not a scheduler",
                hint="an object of a class that derives from tune.schedulers.TrialScheduler",
            )
        if scheduler.requires_checkpoints and not self.trainable.can_go_on:
            raise ConfigError(
                f"{type(scheduler).__name__} pauses trials, and {self.trainable.name} cannot be"
                " saved and resumed",
                hint="write save_checkpoint and load_checkpoint, or take an ASHAScheduler",
            )
        is_accepted = scheduler.set_search_properties(config.metric, config.mode)
        if not is_accepted and (config.metric or config.mode):
            raise ConfigError(
                f"metric and mode are given to {type(scheduler).__name__} and to TuneConfig",
                hint="give them in one place",
            )
        scheduler.check_ready()
        if self.stored is None:
            scheduler.check_space(self.param_space)
        scheduler.get_state()  # raises now, not at the first crash, if it cannot be stored
        return scheduler

    def rules(self) -> Rules:
        """Return the rules for failures and ends of trials."""
        return rules_of(
            self.run_config.failure_config,
            self.tune_config.metric,
            saves_at_end=self.trainable.saves_at_end(self.run_config.checkpoint_config),
            exports_at_end=bool(self.export_formats),
        )

    def stopper(self) -> Stopper:
        """Return what ends trials, or the study."""
        return stopper_for(_fresh(self.run_config.stop), self.tune_config.budget_s)


def stopper_for(stop: Any, budget_s: float | None) -> Stopper:
    """Return the stopper for `RunConfig.stop` and a time budget, if there is one."""
    stopper = stopper_of(stop)
    return stopper if budget_s is None else CombinedStopper(stopper, TimeoutStopper(budget_s))


def _fresh(judge: Any) -> Any:
    """Return a copy, so that one study does not start with what another has learned."""
    try:
        return copy.deepcopy(judge)
    except Exception:  # noqa: BLE001  # a user's own object may not support it
        return judge


# ---------------------------------------------------------------------- search space


def space_of(param_space: Any) -> dict[str, Any]:
    """Return a search space as a dictionary; raise if it cannot be one."""
    if param_space is None:
        return {}
    if not isinstance(param_space, Mapping) and hasattr(param_space, "to_dict"):
        param_space = param_space.to_dict()
    if not isinstance(param_space, Mapping):
        raise ConfigError(
            f"param_space={shown(param_space)} is not a dictionary",
            hint="param_space={'lr': tune.loguniform(1e-4, 1e-1)}",
        )
    return dict(param_space)


def checked_space(space: Mapping[str, Any], *, is_trainer: bool) -> dict[str, Any]:
    """Return a search space in which a `ScalingConfig` with domains is a dictionary of its fields.

    So its fields are searched and stored like all other values. Only trainers build a
    `ScalingConfig` from what was drawn; anywhere else its domains would never be drawn, so it is
    refused. So is a `run_config` for a trainer, because the study decides where runs are stored.
    """
    checked = dict(space)
    if is_trainer:
        if _RUN in space:
            raise ConfigError(
                f"param_space has run_config={shown(space[_RUN])}: the run of a trial is stored in"
                " the trial's folder, and its other settings are the same for all trials",
                hint="Tuner(trainer, run_config=…) for the study, or the trainer's own run_config",
            )
        scaling = space.get(_SCALING)
        if isinstance(scaling, ScalingConfig) and searched_fields(scaling):
            checked[_SCALING] = {
                field.name: value
                for field in dataclasses.fields(scaling)
                if (value := getattr(scaling, field.name)) != field.default
            }
    _must_be_drawn(checked, ())
    return checked


def _must_be_drawn(value: Any, path: tuple[Any, ...]) -> None:
    """Raise if a `ScalingConfig` holds domains, where no search looks for them."""
    if isinstance(value, ScalingConfig) and searched_fields(value):
        raise ConfigError(
            f"param_space has {shown(value)} at {name_of(path)}: fields of a ScalingConfig are"
            " drawn only for a trainer, as param_space['scaling_config']",
            hint="search for the numbers, and build the ScalingConfig from them in the trainable",
        )
    if isinstance(value, Categorical):
        value = value.categories
    if isinstance(value, Mapping):
        for key, item in value.items():
            _must_be_drawn(item, (*path, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _must_be_drawn(item, (*path, index))


# ---------------------------------------------------------------------- resuming and extending


def split_study_path(path: str | os.PathLike[str], filesystem: Any = None) -> tuple[str, str]:
    """Return the storage path and the name of the study whose folder is `path`.

    The query of a URI, which says how to open the store, stays with the storage path.
    """
    text = os.fspath(path)
    if "://" in text:
        folder, mark, query = text.partition("?")
        parent, _, name = folder.rstrip("/").rpartition("/")
        return f"{parent}{mark}{query}", name
    if filesystem is None:
        text = absolute(text)
    parent, name = os.path.split(text.rstrip("/"))
    return parent, name


def samples_in_all(before: int, added: Any) -> int:
    """Return how many samples a study takes in total, with `added` more."""
    if not is_whole(added) or added < 1:
        raise ConfigError(
            f"extend(num_samples={shown(added)}): must be the number of samples to add, at least 1",
            hint="extend(num_samples=50) takes 50 samples more",
        )
    if before == -1:
        raise ConfigError(
            "the study was begun with num_samples=-1: its samples have no end already",
            hint="Tuner.restore(path, trainable).fit() goes on with it",
        )
    return int(before + added)


def restored_spec(
    study: StoredStudy,
    location: tuple[str, str],
    filesystem: Any,
    trainable: Any,
    param_space: Mapping[str, Any] | None,
) -> StudySpec:
    """Return a study as it was begun; `location` is its storage path and name now.

    Without what could not be stored, or cannot be rebuilt: see `with_given`.
    """
    tune, run, _ = configs_of(study)
    storage_path, name = location
    config = RunConfig(name=name, storage_path=storage_path, storage_filesystem=filesystem, **run)
    return StudySpec(
        trainable=trainable,
        tune_config=TuneConfig(**tune),
        run_config=config,
        param_space=space_of(param_space),
        name=name,
        stored=study,
        **_per_trial(study, storage_path),
    )


def _per_trial(study: StoredStudy, storage_path: str) -> dict[str, Any]:
    try:
        values = {
            name: from_plain(study.per_trial[name]) for name in PER_TRIAL & study.per_trial.keys()
        }
    except CannotBeMade as error:
        raise CannotRestoreStudy(
            f"a setting of all trials of the study cannot be rebuilt from its record: {error}",
            hint="give it again: tune.run(…, resume=True) with the arguments it was begun with",
        ) from error
    if isinstance(values.get("restore_path"), str):
        # Credentials of its store are not recorded; those of the study's own store may fit.
        values["restore_path"] = opened_as(values["restore_path"], storage_path)
    return values


def with_given(
    spec: StudySpec,
    study: StoredStudy,
    tune_config: TuneConfig | None,
    run_config: RunConfig | None,
) -> StudySpec:
    """Return a spec in which the configs given now fill in what could not be stored."""
    given = {"TuneConfig": tune_config, "RunConfig": run_config}
    missing = []
    *_, refused = configs_of(study)
    for setting in [*study.not_kept, *refused]:
        kind, _, name = setting.partition(".")
        source = given[kind]
        if source is None or getattr(source, name) == getattr(type(source)(), name):
            reason = f" ({refused[setting]})" if setting in refused else ""
            missing.append(f"{setting}{reason}")
            continue
        field = "tune_config" if kind == "TuneConfig" else "run_config"
        changed = dataclasses.replace(getattr(spec, field), **{name: getattr(source, name)})
        spec = dataclasses.replace(spec, **{field: changed})
    if missing:
        raise CannotRestoreStudy(
            "the study has settings that could not be stored, or cannot be rebuilt:"
            f" {', '.join(missing)}",
            hint="give them again: Tuner.restore(path, trainable,"
            " tune_config=TuneConfig(…), run_config=RunConfig(…))",
        )
    if run_config is not None:
        current = {
            name: getattr(run_config, name)
            for name in ("callbacks", "progress_reporter", "worker_runtime_env")
        }
        if run_config.verbose is not None:
            current["verbose"] = run_config.verbose
        if run_config.preemption_notices is not None:  # depends on the machine of the driver
            current["preemption_notices"] = run_config.preemption_notices
        changed = dataclasses.replace(spec.run_config, **current)
        spec = dataclasses.replace(spec, run_config=changed)
    return spec
