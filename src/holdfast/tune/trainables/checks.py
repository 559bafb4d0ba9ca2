"""Checks whether a trainable can be pickled, and whether it can be saved and restored."""

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
    """Return True if a trainable can be sent to the processes of trials, else why not.

    That is a sentence for each variable, attribute or argument that cannot be pickled.
    """
    if not callable(trainable):
        raise NotRunnable(f"{shown(trainable)} is neither a function nor a Trainable class")
    return unpicklable_parts(trainable) or True


def validate_save_restore(
    trainable_cls: Any, config: Mapping[str, Any] | None = None, num_gpus: float = 0
) -> Literal[True]:
    """Return True if a `Trainable` class continues where it was saved; raise `TuneError` if not.

    An object of it is trained for two steps and saved; another one is made, restored, and trained
    on. All of it happens in this process, so `num_gpus`, which Ray has, changes nothing. Errors of
    the class itself are raised as they are; `NotImplementedError` if it lacks a method.
    """
    del num_gpus
    run = runnable(trainable_cls)
    if run.kind is None:
        raise NotRunnable(
            f"{run.name} is not a Trainable class: a function saves its checkpoints itself",
            hint="give a class that derives from tune.Trainable",
        )
    beginning = Beginning(run.kind, dict(config or {}), parameters=unshared(run.parameters))
    first, second = make(beginning), make(beginning)
    try:
        _must_continue(first, second)
    finally:
        first.stop()
        second.stop()
    return True


def _must_continue(first: Trainable, second: Trainable) -> None:
    """Train and save `first`, restore `second` from that, and raise unless it continues."""
    name = type(first).__name__
    for _ in range(_STEPS):
        if first.train()["done"]:
            break
    with tempfile.TemporaryDirectory(prefix="holdfast-trainable-") as folder:
        second.restore(first.save(folder))
    before = first.training_iteration
    volatile = _differences(_state(first), _state(first))  # such as times
    lost = _differences(_state(first), _state(second))
    for path in sorted(lost.keys() - volatile.keys()):
        was, now = lost[path]
        raise TuneError(
            f"{name} was restored, and its {path} is {shown(now)}, which was {shown(was)} when it"
            " was saved",
            hint="restore in load_checkpoint everything that save_checkpoint returns",
        )
    after = second.train()["training_iteration"]
    if after != before + 1:
        raise TuneError(
            f"{name} was restored after iteration {before}, and its next one is {after}",
            hint="leave training_iteration out of what step() returns, or restore it",
        )


def _state(trial: Trainable) -> dict[str, Any]:
    """Return the comparable values of the dictionary that a trainable saves, by path."""
    with tempfile.TemporaryDirectory(prefix="holdfast-trainable-") as folder:
        trial.save(folder)
        saved = load(folder)
    return dict(_leaves(saved, "")) if isinstance(saved, dict) else {}


def _leaves(value: Any, path: str) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        items = [(f"{path}/{key}" if path else str(key), item) for key, item in value.items()]
    elif isinstance(value, list | tuple):
        items = [(f"{path}/{index}", item) for index, item in enumerate(value)]
    else:
        return [(path, value)] if is_json_leaf(value) else []
    return [leaf for name, item in items for leaf in _leaves(item, name)]


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return both values of every path where they differ; NaN equals NaN."""
    return {
        path: (old.get(path), new.get(path))
        for path in old.keys() | new.keys()
        if repr(old.get(path)) != repr(new.get(path))
    }
