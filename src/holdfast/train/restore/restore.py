"""A trainer made again from a run's folder: what `restore` and `can_restore` of older eras do."""

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
from holdfast.train.arguments import must_be
from holdfast.train.restore.pickled import problem_with, unpickled
from holdfast.train.restore.record import StoredTrainer, read_trainer
from holdfast.train.restore.references import CannotRestore, find_function, problem_with_function

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunPlace:
    """A run's folder as the pair that a run is known by.

    Attributes:
        storage_path: What is around the folder, with the query that a URI may have.
        name: The folder's own name.
    """

    storage_path: str
    name: str
    filesystem: object | None = None

    def store(self) -> Store:
        return run_store(self.storage_path, self.name, self.filesystem)


def run_place(path: str | os.PathLike[str], filesystem: object | None = None) -> RunPlace:
    """Return which run is kept at `path`: a folder, or a URI with or without a query."""
    text = os.fspath(path)
    if not isinstance(text, str):
        raise ConfigError(f"the path {shown(path)} must be text, not bytes")
    uri = uris.split(text)
    if uri is None and filesystem is None:
        text = os.path.abspath(uris.from_home(text))
    place, mark, query = text, "", ""
    if uri is not None and uri.scheme not in ("file", "memory"):
        place, mark, query = text.partition("?")
    inner = text if uri is None else uri.path
    name = inner.rstrip("/").rpartition("/")[2]
    if not name:
        raise ConfigError(
            f"{uris.shown_location(text)} cannot be the folder of a run:"
            " that is {storage_path}/{name}",
            hint="give the path that Result.path had, or that the first launch told",
        )
    around = place.rstrip("/").removesuffix(name)
    if around.strip("/") and not around.rstrip("/").endswith(":"):  # file:/// has no less slashes
        around = around.rstrip("/")
    if uri is not None and uri.scheme == "file":
        name = urllib.parse.unquote(name)
    return RunPlace(around + mark + query, name, filesystem)


# ---------------------------------------------------------------------- whether


def can_restore(path: str | os.PathLike[str], filesystem: object | None = None) -> bool:
    """Whether a trainer can be made again from `path`, and would run; nothing is changed.

    Raises `StoreBusy` or `StoreDenied` if nobody can tell, since storage does not answer or does
    not let us look.
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
        _must_be_of_train(store, view.identity.kind)
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
    return None if config["kind"] == "plain" else str(config.get("why", "it was not kept"))


def _must_be_of_train(store: Store, kind: str) -> None:
    if kind != "train":
        raise CannotRestore(
            f"{store.url} is a study, not a training run", hint="use holdfast.tune.Tuner.restore"
        )


# ---------------------------------------------------------------------- how

_WOULD_WARN = ("metadata", "resume_from_checkpoint")  # although nobody has written them now


def restored(
    kind: type[Any] | None,
    path: str | os.PathLike[str],
    filesystem: object | None,
    again: Mapping[str, Any],
) -> Any:
    """Return the trainer of the run at `path`, ready to carry on with it.

    It is one of the class `kind`, which is warned of if another made the run; None is that one.
    What is given `again` wins over what was kept, unless it is None.
    """
    place = run_place(path, filesystem)
    store = place.store()
    stored = _record_in(store)
    given = {name: value for name, value in again.items() if value is not None}
    _must_be_same_datasets(stored.datasets, given.get("datasets") or {})
    kind = _class_of(kind, stored)
    own = _kept_arguments(stored, store, place, given)
    later = {name: own.pop(name) for name in _WOULD_WARN if name in own}
    # A class takes what its constructor names; what another class was given does not concern it.
    taken = _parameters(kind)
    passed = {name: one for name, one in own.items() if taken is None or name in taken}
    trainer = kind(**given | passed)
    for name in ("run_config", "scaling_config"):
        later[name] = own.get(name, given.get(name))  # also of a class that does not ask for it
    for name, value in later.items():
        setattr(trainer, name, value)
    return trainer


def _record_in(store: Store) -> StoredTrainer:
    try:
        kind = look(store).identity.kind
    except RunMissing as missing:
        raise CannotRestore(missing.message, hint=missing.hint) from None
    _must_be_of_train(store, kind)
    return read_trainer(store)


def _class_of(kind: type[Any] | None, stored: StoredTrainer) -> type[Any]:
    if kind is not None:
        if (name := f"{kind.__module__}:{kind.__qualname__}") != stored.trainer:
            warn_user(f"the run was made by {stored.trainer}, and {name} restores it")
        return kind
    from holdfast.train.trainer import BaseTrainer

    try:
        found: Any = recorded_thing(stored.trainer, Trust.RUNNING)
        if not isinstance(found, type) or not issubclass(found, BaseTrainer):
            raise NameRefused(f"{stored.trainer} is not a trainer")
    except NameRefused as error:
        raise CannotRestore(
            f"the run was made by {stored.trainer}, which cannot be imported: {error}",
            hint="call restore of the class itself",
        ) from error
    return found


def _kept_arguments(
    stored: StoredTrainer, store: Store, place: RunPlace, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments that come from the record, and are not given again."""
    own = {
        name: _value(name, one, place)
        for name, one in stored.arguments.items()
        if name not in given
    }
    own["run_config"] = _run_config(stored, place, given.get("run_config"))
    if "scaling_config" not in given:
        fields = _value("scaling_config", stored.scaling_config, place)
        own["scaling_config"] = ScalingConfig(**fields)
    if "train_loop_per_worker" not in given and stored.function["kind"] != "none":
        own["train_loop_per_worker"] = find_function(store, stored.function)
    if "train_loop_config" not in given and stored.config is not None:
        own["train_loop_config"] = _config(store, stored.config, place)
    missing = [name for name in stored.not_kept if name.partition(".")[0] not in _covered(given)]
    if missing:
        warn_user(
            f"not everything the run was launched with was kept: {', '.join(missing)};"
            " what is not passed to restore again has no effect"
        )
    return own


def _covered(given: Mapping[str, Any]) -> set[str]:
    """Return what `not_kept` calls the things that are given again."""
    configs = {"run_config": "RunConfig", "scaling_config": "ScalingConfig"}
    return {configs.get(name, name) for name in given}


def _run_config(stored: StoredTrainer, place: RunPlace, given: object) -> RunConfig:
    """Return the config that was given again or kept, of the run as it is found now."""
    here: dict[str, Any] = {
        "name": place.name,
        "storage_path": place.storage_path,
        "storage_filesystem": place.filesystem,
        "resume": "must",
    }
    if given is not None:
        must_be(given, "run_config", RunConfig)
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
    except Exception as error:  # the code of what is unpickled may raise anything
        raise CannotRestore(
            f"the train_loop_config of the run cannot be unpickled: {error}", hint=hint
        ) from error


def _value(name: str, value: Any, place: RunPlace, trust: Trust = Trust.RESTORING) -> Any:
    try:
        return from_plain(value, beside=place.storage_path, trust=trust)
    except CannotBeMade as error:
        raise CannotRestore(
            f"{name} of the run cannot be made again: {error}",
            hint=f"pass it: restore(path, {name}=…)",
        ) from error


def _parameters(kind: type[Any]) -> set[str] | None:
    """Return what a constructor takes by name, None if it takes anything."""
    parameters = inspect.signature(kind).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return {parameter.name for parameter in parameters}


def _must_be_same_datasets(before: list[str], given: Mapping[str, Any]) -> None:
    missing = [name for name in before if name not in given]
    extra = [name for name in given if name not in before]
    if not missing and not extra:
        return
    said = [
        f"{words} {', '.join(map(repr, names))}"
        for words, names in (("missing", missing), ("not there before", extra))
        if names
    ]
    had = ", ".join(map(repr, before)) or "none"
    raise ConfigError(
        f"a run is restored with the same datasets that it had ({had}): {'; '.join(said)}",
        hint=f"restore(path, datasets={{{', '.join(f'{name!r}: …' for name in before)}}})"
        if before
        else "leave out datasets=",
    )
