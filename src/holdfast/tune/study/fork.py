"""A new study made of one that was begun: all as it was, but for what is searched."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.api.config import RunConfig
from holdfast.checkpoint.checkpoint import location_of
from holdfast.control.record.identity import find_identity
from holdfast.errors import ConfigError, Damaged, ObjectMissing, RunMissing
from holdfast.storage.base import Store
from holdfast.storage.records import fit, seal, unseal
from holdfast.storage.uris import without_secrets
from holdfast.tune.result_grid import ResultGrid
from holdfast.tune.search.objects import keys_of
from holdfast.tune.study.spec import StudySpec
from holdfast.tune.study.stored_spec import has_study

ORIGIN_KEY = ".holdfast/origin.json"
FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Which study another one was made of; where it was then, which need not be where it is."""

    name: str
    run_id: str | None
    url: str

    @classmethod
    def of(cls, spec: StudySpec) -> Origin:
        """Return what can be said of a study that was begun."""
        store = spec.store()
        try:
            run_id = find_identity(store)[0].run_id
        except RunMissing:
            run_id = None
        return cls(name=spec.name, run_id=run_id, url=store.url)

    def write(self, store: Store) -> None:
        """Put it to rest in the folder of the new study."""
        store.put(ORIGIN_KEY, seal({"format": FORMAT, **dataclasses.asdict(self)}) + b"\n")


def read_origin(store: Store) -> Origin | None:
    """Return what the study in `store` was made of, None if of nothing, or nobody can tell."""
    try:
        record = unseal(store.get(ORIGIN_KEY).data.removesuffix(b"\n"))
        return fit(record, Origin)
    except (ObjectMissing, Damaged):
        return None


# ---------------------------------------------------------------------- making one


def forked(
    spec: StudySpec,
    param_space: Mapping[str, Any],
    *,
    num_samples: int | None,
    run: Mapping[str, Any],
    restore_path: str | None,
    has_made_up_name: bool = False,
) -> StudySpec:
    """Return a study like `spec` that searches another space; what cannot work is told now.

    `run` says what of its `RunConfig` is not as it was.
    """
    if not param_space:
        raise ConfigError(
            "fork() was given an empty param_space, so there is nothing to search",
            hint="extend(num_samples=50) takes more samples of the space there is",
        )
    before = {one.name: getattr(spec.run_config, one.name) for one in _KEPT}
    config = RunConfig(**{**before, **run})
    tune = spec.tune_config
    if num_samples is not None:
        tune = dataclasses.replace(tune, num_samples=num_samples)
    made = dataclasses.replace(
        spec,
        tune_config=tune,
        run_config=config,
        param_space=param_space,
        name=config.name,
        has_made_up_name=has_made_up_name,
        stored=None,
        restore_path=spec.restore_path if restore_path is None else restore_path,
    )
    old, new = spec.store(), made.store()
    if new.url == old.url:
        raise ConfigError(
            f"fork() was told to put the new study at {new.url}, where the old one is",
            hint="give another name or storage_path",
        )
    if not has_made_up_name and config.given.isdisjoint({"resume"}) and has_study(new):
        raise ConfigError(
            f"there is a study at {new.url} already, which a new one would mix with",
            hint=f"{spec.trainable.restore_call(new.url)} goes on with it;"
            " fork(…, name='another') begins a new one",
        )
    made.search()
    return made


_KEPT = tuple(one for one in dataclasses.fields(RunConfig) if one.name != "resume")


def start_of(spec: StudySpec, results: ResultGrid) -> str:
    """Return the folder of the newest checkpoint of the best trial; raise if there is none."""
    if spec.store().local is None:
        raise ConfigError(
            f"fork(from_best=True): the checkpoints of {spec.store().url} are on no disk of this"
            " machine",
            hint="give one in the space, and have the trainable load config['start']:"
            " param_space={'start': results.get_best_result().checkpoint, …}",
        )
    checkpoint = results.get_best_result().checkpoint
    if checkpoint is None:
        raise ConfigError(
            "fork(from_best=True): the best trial has no checkpoint to begin with",
            hint="leave out from_best, and every trial begins anew",
        )
    checkpoint.verify()
    return location_of(checkpoint)


def fork_plan(origin: Origin, made: StudySpec, before: StudySpec, results: ResultGrid) -> str:
    """Return what a forked study will do, in a few lines."""
    old = keys_of(before.param_space) if before.stored is None else sorted(before.stored.keys)
    new = keys_of(made.param_space)
    changes = [f"{key} is new" for key in new if key not in old]
    changes += [f"{key} is gone" for key in old if key not in new]
    samples = made.tune_config.num_samples
    total = made.search().total
    many = "no end of trials" if total is None or samples == -1 else f"{total} trials"
    lines = [
        f"{made.name!r} is a new study, with the settings of {origin.name!r}.",
        f"  stay     {len(results)} trials of {origin.name!r}, where and as they are",
        f"  space    {', '.join(new)}" + (f" ({'; '.join(changes)})" if changes else ""),
        f"  new      {many}",
    ]
    if made.restore_path is not None:
        lines.append(f"  start    every trial from {without_secrets(made.restore_path)}")
    return "\n".join(lines)
