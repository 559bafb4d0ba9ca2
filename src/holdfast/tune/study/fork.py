"""Forks a study into a new one with another search space; describes forks and extensions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.api.config import RunConfig
from holdfast.checkpoint.checkpoint import location_of
from holdfast.control.record.identity import find_identity
from holdfast.control.study.plan import Resumption
from holdfast.core.quantities import counted
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
    """The study that a fork was made from, and where it was at that time."""

    name: str
    run_id: str | None
    url: str

    @classmethod
    def of(cls, spec: StudySpec) -> Origin:
        """Return the origin of forks of a study."""
        store = spec.store()
        try:
            run_id = find_identity(store)[0].run_id
        except RunMissing:
            run_id = None
        return cls(name=spec.name, run_id=run_id, url=store.url)

    def write(self, store: Store) -> None:
        """Write it to the folder of the new study."""
        store.put(ORIGIN_KEY, seal({"format": FORMAT, **dataclasses.asdict(self)}) + b"\n")


def read_origin(store: Store) -> Origin | None:
    """Return the origin of the study in `store`; None if it is no fork, or that cannot be read."""
    try:
        record = unseal(store.get(ORIGIN_KEY).data.removesuffix(b"\n"))
        return fit(record, Origin)
    except (ObjectMissing, Damaged):
        return None


# ---------------------------------------------------------------------- forking


def forked(
    spec: StudySpec,
    param_space: Mapping[str, Any],
    *,
    num_samples: int | None,
    run: Mapping[str, Any],
    restore_path: str | None,
    has_made_up_name: bool = False,
) -> StudySpec:
    """Return a study like `spec` that searches another space; raise if it cannot work.

    `run` holds the fields of its `RunConfig` that differ.
    """
    if not param_space:
        raise ConfigError(
            "fork() was given an empty param_space, so there is nothing to search",
            hint="extend(num_samples=50) takes more samples of the present space",
        )
    fields = [field.name for field in dataclasses.fields(RunConfig) if field.name != "resume"]
    config = RunConfig(**{name: getattr(spec.run_config, name) for name in fields} | dict(run))
    tune = spec.tune_config
    if num_samples is not None:
        tune = dataclasses.replace(tune, num_samples=num_samples)
    fork = dataclasses.replace(
        spec,
        tune_config=tune,
        run_config=config,
        param_space=param_space,
        name=config.name,
        has_made_up_name=has_made_up_name,
        stored=None,
        restore_path=spec.restore_path if restore_path is None else restore_path,
    )
    old, new = spec.store(), fork.store()
    if new.url == old.url:
        raise ConfigError(
            f"fork() would put the new study at {new.url}, where the old one is",
            hint="give another name or storage_path",
        )
    if not has_made_up_name and config.given.isdisjoint({"resume"}) and has_study(new):
        raise ConfigError(
            f"there is a study at {new.url} already, which a new one would mix with",
            hint=f"{spec.trainable.restore_call(new.url)} goes on with it;"
            " fork(…, name='another') begins a new one",
        )
    fork.search()
    return fork


def start_of(spec: StudySpec, results: ResultGrid) -> str:
    """Return the folder of the newest checkpoint of the best trial; raise if there is none."""
    if spec.store().local is None:
        raise ConfigError(
            f"fork(from_best=True): the checkpoints of {spec.store().url} are not on a disk of"
            " this machine",
            hint="put one in the space, and have the trainable load config['start']:"
            " param_space={'start': results.get_best_result().checkpoint, …}",
        )
    checkpoint = results.get_best_result().checkpoint
    if checkpoint is None:
        raise ConfigError(
            "fork(from_best=True): the best trial has no checkpoint to start from",
            hint="leave out from_best, and every trial starts from scratch",
        )
    checkpoint.verify()
    return location_of(checkpoint)


def fork_plan(origin: Origin, fork: StudySpec, before: StudySpec, results: ResultGrid) -> str:
    """Return what a forked study will do, in a few lines."""
    old = keys_of(before.param_space) if before.stored is None else sorted(before.stored.keys)
    new = keys_of(fork.param_space)
    changes = [f"{key} is new" for key in new if key not in old]
    changes += [f"{key} is gone" for key in old if key not in new]
    total = fork.search().total
    is_endless = total is None or fork.tune_config.num_samples == -1
    lines = [
        f"{fork.name!r} is a new study, with the settings of {origin.name!r}.",
        f"  kept     {len(results)} trials of {origin.name!r}, unchanged",
        f"  space    {', '.join(new)}" + (f" ({'; '.join(changes)})" if changes else ""),
        f"  new      {'trials without end' if is_endless else f'{total} trials'}",
    ]
    if fork.restore_path is not None:
        lines.append(f"  start    every trial from {without_secrets(fork.restore_path)}")
    return "\n".join(lines)


def extension_plan(
    results: ResultGrid, resumption: Resumption, num_samples: int | None, stop: object
) -> str:
    """Return what an extended study will do, in a few lines."""
    trials = counted(len(results), "trial")
    lines = [f"This study has {trials}, of which {results.num_errors} failed."]
    if stop is not None:
        lines.append(f"  go on    {results.num_terminated} finished, until {stop!r}")
    else:
        lines.append(f"  kept     {results.num_terminated} finished")
    if results.num_errors:
        fate = "resuming" if resumption.errored else "not tried again"
        if resumption.errored_from_scratch:
            fate = "starting over"
        lines.append(f"  failed   {results.num_errors}, {fate}")
    if num_samples is not None:
        samples = counted(num_samples, "more sample")
        lines.append(f"  new      {samples}, {resumption.num_samples} in total")
    return "\n".join(lines)
