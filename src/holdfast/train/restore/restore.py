"""Rebuilds a trainer from a run's folder, for the deprecated `restore` and `can_restore`."""

from __future__ import annotations

import inspect
import logging
import os
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from holdfast.api.config import RunConfig, ScalingConfig
from holdfast.api.deprecated import warn_user
from holdfast.api.plain_data import CannotBeMade, from_plain
from holdfast.api.recorded_names import NameRefused, Trust, recorded_thing
from holdfast.control.record.identity import run_store
from holdfast.control.record.run_view import look
from holdfast.core.names import shown
from holdfast.errors import ConfigError, HoldfastError, RunMissing, StoreBusy, StoreDenied
from holdfast.storage import uris
from holdfast.storage.base import Store
from holdfast.train.arguments import must_be_instance
from holdfast.train.restore.pickled import problem_with, unpickled
from holdfast.train.restore.record import StoredTrainer, read_trainer
from holdfast.train.restore.references import CannotRestore, find_function, problem_with_function

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunPlace:
    """A run's folder, as the arguments of a `RunConfig`.

    Attributes:
        storage_path: The parent of the folder, with the query that a URI may have.
        name: The name of the folder.
    """

    storage_path: str
    name: str
    filesystem: object | None = None

    def store(self) -> Store:
        return run_store(self.storage_path, self.name, self.filesystem)


def run_place(path: str | os.PathLike[str], filesystem: object | None = None) -> RunPlace:
    """Return the place of the run at `path`: a folder, or a URI with or without a query."""
    text = os.fspath(path)
    if not isinstance(text, str):
        raise ConfigError(f"the path {shown(path)} must be a string, not bytes")
    uri = uris.split(text)
    if uri is None and filesystem is None:
        text = os.path.abspath(uris.from_home(text))
    location, mark, query = text, "", ""
    if uri is not None and uri.scheme not in ("file", "memory"):
        location, mark, query = text.partition("?")
    inner = text if uri is None else uri.path
    name = inner.rstrip("/").rpartition("/")[2]
    if not name:
        raise ConfigError(
            f"{uris.shown_location(text)} cannot be the folder of a run:"
            " that is {storage_path}/{name}",
            hint="pass Result.path, or the path that the first launch printed",
        )
    parent = location.rstrip("/").removesuffix(name)
    if parent.strip("/") and not parent.rstrip("/").endswith(":"):  # file:/// keeps its slashes
        parent = parent.rstrip("/")
    if uri is not None and uri.scheme == "file":
        name = urllib.parse.unquote(name)
    return RunPlace(parent + mark + query, name, filesystem)


# ---------------------------------------------------------------------- can_restore


def can_restore(path: str | os.PathLike[str], filesystem: object | None = None) -> bool:
    """Whether a working trainer can be rebuilt from `path`; changes nothing.

    Raises `StoreBusy` or `StoreDenied` if storage does not answer or refuses to.
    """
    try:
        store = run_place(path, filesystem).store()
        view = look(store)
    except (StoreBusy, StoreDenied):
        raise
    except (HoldfastError, OSError, TypeError, ValueError) as error:
        if not isinstance(error, RunMissing):
            log.warning("%s cannot be restored: %s", uris.shown_location(path), error)
        return False
    try:
        _must_be_training_run(store, view.identity.kind)
        problem = _problem_with(store, read_trainer(store))
    except (StoreBusy, StoreDenied):
        raise
    except HoldfastError as error:
        problem = str(error)
    if problem is not None:
        log.warning("%s cannot be restored: %s", store.url, problem)
    return problem is None


def _problem_with(store: Store, stored: StoredTrainer) -> str | None:
    if problem := problem_with_function(store, stored.function):
        return problem
    config = stored.config or {"kind": "plain"}
    if config["kind"] == "pickled":
        return problem_with(store, config)
    return None if config["kind"] == "plain" else str(config.get("why", "it was not stored"))


def _must_be_training_run(store: Store, kind: str) -> None:
    if kind != "train":
        raise CannotRestore(
            f"{store.url} is a study, not a training run", hint="use holdfast.tune.Tuner.restore"
        )


# ---------------------------------------------------------------------- restore

_WOULD_WARN = ("metadata", "resume_from_checkpoint")  # arguments that this call did not give


def restored_trainer(
    kind: type[Any] | None,
    path: str | os.PathLike[str],
    filesystem: object | None,
    arguments: Mapping[str, Any],
) -> Any:
    """Return the trainer of the run at `path`, ready to resume it.

    It has the class `kind`, with a warning if the run was made by another class, or for None the
    recorded class. `arguments` that are not None replace recorded ones.
    """
    place = run_place(path, filesystem)
    store = place.store()
    stored = _record_in(store)
    given = {name: value for name, value in arguments.items() if value is not None}
    _must_be_same_datasets(stored.datasets, given.get("datasets") or {})
    kind = _class_of(kind, stored)
    recorded = _recorded_arguments(stored, store, place, given)
    attributes = {name: recorded.pop(name) for name in _WOULD_WARN if name in recorded}
    # Another class may have other parameters than the one that made the run.
    accepted = _parameters(kind)
    passed = {
        name: value for name, value in recorded.items() if accepted is None or name in accepted
    }
    trainer = kind(**given | passed)
    for name in ("run_config", "scaling_config"):  # even if its constructor does not take them
        attributes[name] = recorded.get(name, given.get(name))
    for name, value in attributes.items():
        setattr(trainer, name, value)
    return trainer


def _record_in(store: Store) -> StoredTrainer:
    try:
        kind = look(store).identity.kind
    except RunMissing as missing:
        raise CannotRestore(missing.message, hint=missing.hint) from None
    _must_be_training_run(store, kind)
    return read_trainer(store)


def _class_of(kind: type[Any] | None, stored: StoredTrainer) -> type[Any]:
    if kind is not None:
        if (name := f"{kind.__module__}:{kind.__qualname__}") != stored.trainer:
            warn_user(f"the run was made by {stored.trainer}, and {name} restores it")
        return kind
    from holdfast.train.trainer import BaseTrainer

    try:
        recorded: Any = recorded_thing(stored.trainer, Trust.RUNNING)
        if not isinstance(recorded, type) or not issubclass(recorded, BaseTrainer):
            raise NameRefused(f"{stored.trainer} is not a trainer")
    except NameRefused as error:
        raise CannotRestore(
            f"the run was made by {stored.trainer}, which cannot be imported: {error}",
            hint="call restore of the class itself",
        ) from error
    return recorded


def _recorded_arguments(
    stored: StoredTrainer, store: Store, place: RunPlace, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the recorded arguments that are not given again."""
    recorded = {
        name: _value(name, value, place)
        for name, value in stored.arguments.items()
        if name not in given
    }
    recorded["run_config"] = _run_config(stored, place, given.get("run_config"))
    if "scaling_config" not in given:
        fields = _value("scaling_config", stored.scaling_config, place)
        recorded["scaling_config"] = ScalingConfig(**fields)
    if "train_loop_per_worker" not in given and stored.function["kind"] != "none":
        recorded["train_loop_per_worker"] = find_function(store, stored.function)
    if "train_loop_config" not in given and stored.config is not None:
        recorded["train_loop_config"] = _config(store, stored.config, place)
    missing = [name for name in stored.not_kept if name.partition(".")[0] not in _covered(given)]
    if missing:
        warn_user(
            f"some arguments of the run's launch were not stored: {', '.join(missing)};"
            " pass them to restore again, or they have no effect"
        )
    return recorded


def _covered(given: Mapping[str, Any]) -> set[str]:
    """Return the arguments that are given again, by their names in `not_kept`."""
    configs = {"run_config": "RunConfig", "scaling_config": "ScalingConfig"}
    return {configs.get(name, name) for name in given}


def _run_config(stored: StoredTrainer, place: RunPlace, given: object) -> RunConfig:
    """Return the given or the recorded config, changed to the run's present location."""
    here: dict[str, Any] = {
        "name": place.name,
        "storage_path": place.storage_path,
        "storage_filesystem": place.filesystem,
        "resume": "must",
    }
    if given is not None:
        must_be_instance(given, "run_config", RunConfig)
        assert isinstance(given, RunConfig)
        return replace(given, **here)
    return RunConfig(**_value("run_config", stored.run_config, place), **here)


def _config(store: Store, reference: Mapping[str, Any], place: RunPlace) -> Any:
    hint = "pass it: restore(path, train_loop_config=…)"
    if reference["kind"] == "plain":
        return _value("train_loop_config", reference["value"], place, Trust.RUNNING)
    problem = problem_with(store, reference) if reference["kind"] == "pickled" else reference["why"]
    if problem is not None:
        raise CannotRestore(f"the train_loop_config of the run is lost: {problem}", hint=hint)
    try:
        return unpickled(store, reference)
    except Exception as error:  # unpickling runs the user's code
        raise CannotRestore(
            f"the train_loop_config of the run cannot be unpickled: {error}", hint=hint
        ) from error


def _value(name: str, value: Any, place: RunPlace, trust: Trust = Trust.RESTORING) -> Any:
    try:
        return from_plain(value, beside=place.storage_path, trust=trust)
    except CannotBeMade as error:
        raise CannotRestore(
            f"{name} of the run cannot be rebuilt: {error}",
            hint=f"pass it: restore(path, {name}=…)",
        ) from error


def _parameters(kind: type[Any]) -> set[str] | None:
    """Return the names of a constructor's parameters, None if it takes any `**kwargs`."""
    parameters = inspect.signature(kind).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return {parameter.name for parameter in parameters}


def _must_be_same_datasets(before: list[str], given: Mapping[str, Any]) -> None:
    missing = [name for name in before if name not in given]
    extra = [name for name in given if name not in before]
    if not missing and not extra:
        return
    differences = [
        f"{words} {', '.join(map(repr, names))}"
        for words, names in (("missing", missing), ("not there before", extra))
        if names
    ]
    had = ", ".join(map(repr, before)) or "none"
    raise ConfigError(
        f"a run must be restored with the same datasets ({had}): {'; '.join(differences)}",
        hint=f"restore(path, datasets={{{', '.join(f'{name!r}: …' for name in before)}}})"
        if before
        else "leave out datasets=",
    )
