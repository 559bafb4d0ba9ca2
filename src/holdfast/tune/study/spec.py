"""A study as its user says it: what to run, what to search, how, and where it is kept."""

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
from holdfast.tune.search.generator import SearchPlan
from holdfast.tune.search.objects import Objects, must_have_same_keys
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
from holdfast.tune.trainables.trainer_space import checked_space
from holdfast.tune.tune_config import TuneConfig


@dataclass(frozen=True, kw_only=True)
class StudySpec:
    """A study as its user says it.

    Attributes:
        has_made_up_name: Whether `name` is only what it would be called, unless that is taken.
        stored: What was kept of it, if it is to go on; then that counts, not the configs of a
            script that has changed since.
        restore_path: A checkpoint that trials begin with while they have none of their own.
        export_formats: What trials write their models as when they end.
        loggers: What writes results to files; None for those there are by default.
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

    # ------------------------------------------------------------------ who judges

    def search(self) -> SearchPlan:
        """Return what the study will try; what cannot work, or be kept, is told now."""
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
                f"{type(scheduler).__name__} changes configs itself and goes with no search_alg",
                hint="leave out search_alg, or take another scheduler",
            )
        space, again = self._space()
        return SearchPlan(
            search_alg,
            space,
            num_samples=config.num_samples,
            metric=config.metric if learns else None,
            mode=config.mode if learns else None,
            max_concurrent=config.max_concurrent_trials if learns else None,
            objects=again,
        )

    def _space(self) -> tuple[Mapping[str, Any], Objects | None]:
        """Return the search space: of a study that goes on, the one it was begun with."""
        if self.stored is None:
            return self.param_space, None
        again = None
        if self.param_space:
            must_have_same_keys(self.stored.keys, self.param_space)
            _, again = Objects.of(dict(self.param_space))
        return space_from_data(self.stored.space, again or Objects()), again

    def scheduler(self) -> TrialScheduler:
        """Return who judges trials while they run."""
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
                " saved and go on from there",
                hint="write save_checkpoint and load_checkpoint, or take an ASHAScheduler",
            )
        is_taken = scheduler.set_search_properties(config.metric, config.mode)
        if not is_taken and (config.metric or config.mode):
            raise ConfigError(
                f"metric and mode are given to {type(scheduler).__name__} and to TuneConfig",
                hint="give them in one place",
            )
        scheduler.check_ready()
        if self.stored is None:
            scheduler.check_space(self.param_space)
        scheduler.get_state()  # what cannot be kept is told now, not after the crash
        return scheduler

    def rules(self) -> Rules:
        """Return what is said about losses and ends, in the words of the layers below."""
        return rules_of(
            self.run_config.failure_config,
            self.tune_config.metric,
            saves_at_end=self.trainable.saves_at_end(self.run_config.checkpoint_config),
            exports_at_end=bool(self.export_formats),
        )

    def stopper(self) -> Stopper:
        """Return who says when a trial, or the study, has run for long enough."""
        found = stopper_of(_fresh(self.run_config.stop))
        budget_s = self.tune_config.budget_s
        return found if budget_s is None else CombinedStopper(found, TimeoutStopper(budget_s))


def _fresh(judge: Any) -> Any:
    """Return a copy, so that what one study teaches it does not go into another."""
    try:
        return copy.deepcopy(judge)
    except Exception:  # noqa: BLE001  # a user's own object may not be made for it
        return judge


# ---------------------------------------------------------------------- from its record


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


def place_of(path: str | os.PathLike[str], filesystem: Any = None) -> tuple[str, str]:
    """Return the storage path and the name of the study whose folder is `path`.

    What opens a store, behind a question mark, stays with the storage path.
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


def samples_in_all(before: int, more: Any) -> int:
    """Return how many samples a study takes in total if it takes `more` besides."""
    if not is_whole(more) or more < 1:
        raise ConfigError(
            f"extend(num_samples={shown(more)}): it is how many to take besides, at least 1",
            hint="extend(num_samples=50) takes 50 samples more",
        )
    if before == -1:
        raise ConfigError(
            "the study was begun with num_samples=-1: there is no end of its samples already",
            hint="Tuner.restore(path, trainable).fit() goes on with it",
        )
    return int(before + more)


def restored_spec(
    study: StoredStudy,
    place: tuple[str, str],
    filesystem: Any,
    trainable: Any,
    param_space: Mapping[str, Any] | None,
) -> StudySpec:
    """Return a study as it was begun, at the place where it is now: storage path and name.

    Without what could not be kept, or cannot be made again: see `with_given`.
    """
    tune, run, _ = configs_of(study)
    parent, name = place
    config = RunConfig(name=name, storage_path=parent, storage_filesystem=filesystem, **run)
    return StudySpec(
        trainable=trainable,
        tune_config=TuneConfig(**tune),
        run_config=config,
        param_space=space_of(param_space),
        name=name,
        stored=study,
        **_per_trial(study, parent),
    )


def _per_trial(study: StoredStudy, storage_path: str) -> dict[str, Any]:
    try:
        kept = {
            name: from_plain(study.per_trial[name]) for name in PER_TRIAL & study.per_trial.keys()
        }
    except CannotBeMade as error:
        raise CannotRestoreStudy(
            f"what every trial of the study is given cannot be made again: {error}",
            hint="give it again: tune.run(…, resume=True) with the arguments it was begun with",
        ) from error
    if isinstance(kept.get("restore_path"), str):
        # What opens its store was not written down; the study's own may do.
        kept["restore_path"] = opened_as(kept["restore_path"], storage_path)
    return kept


def with_given(
    spec: StudySpec,
    study: StoredStudy,
    tune_config: TuneConfig | None,
    run_config: RunConfig | None,
) -> StudySpec:
    """Return a spec with what could not be kept taken from what is given now."""
    given = {"TuneConfig": tune_config, "RunConfig": run_config}
    missing = []
    *_, refused = configs_of(study)
    for what in [*study.not_kept, *refused]:
        kind, _, name = what.partition(".")
        source = given[kind]
        if source is None or getattr(source, name) == getattr(type(source)(), name):
            missing.append(what if what not in refused else f"{what} ({refused[what]})")
            continue
        field = "tune_config" if kind == "TuneConfig" else "run_config"
        changed = dataclasses.replace(getattr(spec, field), **{name: getattr(source, name)})
        spec = dataclasses.replace(spec, **{field: changed})
    if missing:
        raise CannotRestoreStudy(
            f"the study has parts that could not be kept, or cannot be made again:"
            f" {', '.join(missing)}",
            hint="give them again: Tuner.restore(path, trainable,"
            " tune_config=TuneConfig(…), run_config=RunConfig(…))",
        )
    if run_config is not None:
        again = {
            name: getattr(run_config, name)
            for name in ("callbacks", "progress_reporter", "worker_runtime_env")
        }
        if run_config.verbose is not None:
            again["verbose"] = run_config.verbose
        if run_config.preemption_notices is not None:  # it is a matter of where the driver is
            again["preemption_notices"] = run_config.preemption_notices
        changed = dataclasses.replace(spec.run_config, **again)
        spec = dataclasses.replace(spec, run_config=changed)
    return spec
