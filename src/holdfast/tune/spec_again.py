"""A study as it was begun, made again from what is kept of it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from holdfast.api.checks import is_whole
from holdfast.api.config import RunConfig
from holdfast.api.plain_data import CannotBeMade, from_plain, opened_as
from holdfast.core.names import shown
from holdfast.errors import ConfigError
from holdfast.storage.foreign.arrow import absolute
from holdfast.tune.study.spec import StudySpec
from holdfast.tune.study.stored_spec import PER_TRIAL, CannotRestoreStudy, StoredStudy, configs_of
from holdfast.tune.tune_config import TuneConfig


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
    """Return how many samples a study takes in all if it takes so many more."""
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


def spec_again(
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
