"""A barrier and a broadcast among ranks, without a framework."""

from __future__ import annotations

import pickle
from typing import TypeVar

import cloudpickle

from holdfast.train.functions import worker_context

T = TypeVar("T")


def barrier() -> None:
    """Return once every rank has called this."""
    worker_context("collective.barrier").meet()


def broadcast_from_rank_zero(data: T) -> T:
    """Return, on every rank, what rank 0 passed; functions and classes of the script work too."""
    context = worker_context("collective.broadcast_from_rank_zero")
    pickled = context.meet(cloudpickle.dumps(data) if context.place.rank == 0 else None)
    if pickled is None:
        raise RuntimeError("rank 0 has returned already and has nothing to broadcast")
    received: T = pickle.loads(pickled)  # noqa: S301  # from our own rank 0, over private sockets
    return received
