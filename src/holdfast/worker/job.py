"""What a worker is given to do. It crosses a socket as a pickle and never rests on a disk."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.checkpoint import Checkpoint

if TYPE_CHECKING:
    from holdfast.worker.context import WorkerContext


@dataclass(frozen=True, slots=True)
class Place:
    """Where a worker stands in its group."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Everything a worker must know.

    Attributes:
        function: The user's training function.
        config: What it is called with, None to call it with nothing.
        store: The run's store as plain data, from `holdfast.storage.locate.describe`.
        checkpoint: Where to carry on from, None to begin.
        reports_before: How many reports the run had made by then; counting goes on from there.
        setups: Called in order before the function; they prepare a framework.
    """

    function: Callable[..., Any]
    config: Mapping[str, Any] | None
    place: Place
    run_name: str
    attempt: int
    store: Mapping[str, Any]
    checkpoint: Checkpoint | None = None
    reports_before: int = 0
    setups: Sequence[Callable[[WorkerContext], None]] = field(default_factory=tuple)


def unpack(data: bytes) -> Job:
    """Return the job that a driver has packed."""
    job = pickle.loads(data)  # noqa: S301  # from our own driver, over a private socket
    assert isinstance(job, Job)
    return job
