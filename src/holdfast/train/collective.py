"""Ranks waiting for each other, without a framework."""

from __future__ import annotations

import pickle
from typing import TypeVar

import cloudpickle

from holdfast.worker.context import WorkerContext, current

T = TypeVar("T")


def barrier() -> None:
    """Return once every rank has come here."""
    _inside("barrier").meet()


def broadcast_from_rank_zero(data: T) -> T:
    """Return what rank 0 passed, on every rank; functions and classes of the script are fine."""
    context = _inside("broadcast_from_rank_zero")
    brought = context.meet(cloudpickle.dumps(data) if context.place.rank == 0 else None)
    if brought is None:
        raise RuntimeError("rank 0 has returned already and has nothing to broadcast")
    received: T = pickle.loads(brought)  # noqa: S301  # from our own rank 0, over private sockets
    return received


def _inside(name: str) -> WorkerContext:
    context = current()
    if context is None:
        raise RuntimeError(f"holdfast.train.collective.{name}() works only in a training function")
    return context
