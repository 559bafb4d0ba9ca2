"""Those who are told what happens in a run and have no say in it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.checkpoint import Checkpoint
from holdfast.core.run.outcomes import WorkerExit

log = logging.getLogger(__name__)


class Observer:
    """Is told what happens, in the driver's process and in the order it happens.

    Each method does nothing here, so that an observer names only what it wants to hear of. What one
    raises is logged and changes nothing.
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


class Observers:
    """Passes everything on to all, and survives what they raise."""

    def __init__(self, observers: Sequence[object] = ()) -> None:
        self._observers = observers
        self._listeners: dict[str, list[Callable[..., object]]] = {}  # to what can be told

    def __bool__(self) -> bool:
        return bool(self._observers)

    def agree(self, what: str) -> bool:
        """Whether every observer says so when its method `what` is called."""
        return all(self.collect(what))

    def collect(self, what: str) -> list[Any]:
        """Return what the method `what` of every observer returns, None of one that fails."""
        found: list[Any] = []
        for observer in self._observers:
            try:
                found.append(getattr(observer, what)())
            except Exception:
                found.append(None)
                log.exception("%s failed at %s; the run goes on", type(observer).__name__, what)
        return found

    def tell(self, what: str, *facts: Any, **more: Any) -> None:
        """Call the method `what` of every observer."""
        if (listeners := self._listeners.get(what)) is None:
            listeners = [getattr(one, what) for one in self._observers if _listens(one, what)]
            self._listeners[what] = listeners
        for listener in listeners:
            try:
                listener(*facts, **more)
            except Exception:
                name = type(getattr(listener, "__self__", listener)).__name__
                log.exception("%s failed at %s; the run goes on", name, what)


def _listens(observer: object, what: str) -> bool:
    """Whether an observer does something about it: its method is not that of all observers."""
    kind, base = type(observer), type(observer).__mro__[-2]
    return kind is base or getattr(kind, what, None) is not getattr(base, what, None)
