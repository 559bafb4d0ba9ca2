"""Observers of a run: they are told what happens, and have no say in it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from holdfast.checkpoint import Checkpoint
from holdfast.core.run.outcomes import WorkerExit

log = logging.getLogger(__name__)

Facts = ParamSpec("Facts")
Kind = TypeVar("Kind")


class Observer:
    """Is told what happens in a training run, in the driver's process, in the order it happens.

    Subclasses override what they want to hear of. What they raise is logged and changes nothing.
    """

    def group_started(self, attempt: int, world_size: int, step: int | None) -> None:
        """The workers of an attempt run; they carry on from `step`, or begin."""

    def rank_reported(self, rank: int, step: int, metrics: Mapping[str, Any]) -> None:
        """A rank has made the report `step`; others may not have, and may never."""

    def reported(
        self, step: int, metrics: Mapping[int, Mapping[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        """All ranks have made the report `step`; the checkpoint, if any, is durable."""

    def group_lost(
        self,
        attempt: int,
        exits: Sequence[WorkerExit],
        errors: Mapping[int, bytes | None],
        card: str,
        *,
        is_last: bool,
    ) -> None:
        """The workers of an attempt are gone, and not because they were done.

        `errors` are what they raised, pickled, by rank; `card` is one screen for people; `is_last`
        says that no other attempt follows.
        """


class Observers(Generic[Kind]):
    """Tells several observers of one kind what happens, and survives what they raise."""

    def __init__(self, observers: Sequence[Kind] = ()) -> None:
        self._observers = observers
        self._listeners: dict[Callable[..., None], list[Callable[..., None]]] = {}

    def __bool__(self) -> bool:
        return bool(self._observers)

    def tell(
        self,
        event: Callable[Concatenate[Kind, Facts], None],
        *facts: Facts.args,
        **more: Facts.kwargs,
    ) -> None:
        """Call a method of every observer; `event` is the method as the base class has it."""
        if (listeners := self._listeners.get(event)) is None:
            listeners = self._listeners[event] = self._overriding(event)
        for listener in listeners:
            try:
                listener(*facts, **more)
            except Exception:
                name = type(getattr(listener, "__self__", listener)).__name__
                log.exception("%s failed at %s; the run goes on", name, event.__name__)

    def _overriding(self, event: Callable[..., None]) -> list[Callable[..., None]]:
        name = event.__name__
        return [
            getattr(observer, name)
            for observer in self._observers
            if getattr(type(observer), name) is not event
        ]
