"""Checks of a trainable before a study runs it: whether it can be sent, and saved and restored."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from typing import Any, Literal

from holdfast.api.picklable import unpicklable_parts
from holdfast.core.names import shown
from holdfast.core.plain_data import is_json_leaf
from holdfast.objects.refs import unshared
from holdfast.tune.errors import NotRunnable, TuneError
from holdfast.tune.trainable import Beginning, Trainable, make
from holdfast.tune.trainables.class_checkpoints import load
from holdfast.tune.trainables.kinds import runnable

_STEPS = 2


def diagnose_serialization(trainable: Any) -> Literal[True] | set[str]:
    """Return True if a trainable can be sent to the processes of trials, else what in it cannot.

    That is a sentence for each variable, attribute or argument that is to blame.
    """
    if not callable(trainable):
        raise NotRunnable(f"{shown(trainable)} is neither a function nor a Trainable class")
    return unpicklable_parts(trainable) or True


def validate_save_restore(
    trainable_cls: Any, config: Mapping[str, Any] | None = None, num_gpus: float = 0
) -> Literal[True]:
    """Return True if a `Trainable` class goes on where it was saved; raise `TuneError` if not.

    An object of it is trained for two steps and saved; another one is made, restored, and trained
    on. All of it is done in this process, so `num_gpus`, as in Ray, changes nothing. What the
    class itself raises is raised; `NotImplementedError` if it lacks a method.
    """
    del num_gpus
    run = runnable(trainable_cls)
    if run.kind is None:
        raise NotRunnable(
            f"{run.name} is not a Trainable class, and saves itself by what it reports",
            hint="give a class that derives from tune.Trainable",
        )
    given = Beginning(run.kind, dict(config or {}), parameters=unshared(run.parameters))
    first, second = make(given), make(given)
    try:
        _must_go_on(first, second)
    finally:
        first.stop()
        second.stop()
    return True


def _must_go_on(first: Trainable, second: Trainable) -> None:
    """Raise unless `second` is, and goes on as, `first` was saved."""
    name = type(first).__name__
    for _ in range(_STEPS):
        if first.train()["done"]:
            break
    with tempfile.TemporaryDirectory(prefix="holdfast-trainable-") as folder:
        second.restore(first.save(folder))
    before = first.training_iteration
    changes_anyhow = _differences(_state(first), _state(first))  # such as times
    lost = _differences(_state(first), _state(second))
    for path in sorted(lost.keys() - changes_anyhow.keys()):
        was, now = lost[path]
        raise TuneError(
            f"{name} was restored, and its {path} is {shown(now)}, which was {shown(was)} when it"
            " was saved",
            hint="take over in load_checkpoint all that save_checkpoint returns",
        )
    found = second.train()["training_iteration"]
    if found != before + 1:
        raise TuneError(
            f"{name} was restored after iteration {before}, and its next one is {found}",
            hint="leave training_iteration out of what step() returns, or restore it",
        )


def _state(trial: Trainable) -> dict[str, Any]:
    """Return what a trainable saves as a dictionary, by path, as far as it can be compared."""
    with tempfile.TemporaryDirectory(prefix="holdfast-trainable-") as folder:
        trial.save(folder)
        saved = load(folder)
    return dict(_leaves(saved, "")) if isinstance(saved, dict) else {}


def _leaves(value: Any, path: str) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        items = [(f"{path}/{key}" if path else str(key), below) for key, below in value.items()]
    elif isinstance(value, list | tuple):
        items = [(f"{path}/{place}", below) for place, below in enumerate(value)]
    else:
        return [(path, value)] if is_json_leaf(value) else []
    return [leaf for name, below in items for leaf in _leaves(below, name)]


def _differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return what is not the same in both, with both values; NaN is the same as NaN."""
    return {
        path: (one.get(path), other.get(path))
        for path in one.keys() | other.keys()
        if repr(one.get(path)) != repr(other.get(path))
    }
