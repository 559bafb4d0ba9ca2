"""The plan that a trainer passes to the controller of a run, and the outcome it gets back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.checkpoint import Checkpoint
from holdfast.checkpoint.fetch import CopyKeeper
from holdfast.control.host.log_folders import log_at
from holdfast.control.run.validation import Validator
from holdfast.core.checkpoint.record import Kept
from holdfast.core.checkpoint.retention import Retention
from holdfast.core.placement import Demand
from holdfast.core.run.budget import Budget
from holdfast.core.run.machine import Over
from holdfast.worker.context import WorkerContext

NO_DEMAND = Demand(each={})


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run is to do in this launch; it is not stored.

    Attributes:
        config: What the function is called with, None to call it without arguments.
        setups: Called in each worker before the function; they prepare a framework.
        workers: How many there should be; `workers_min` is how few are enough.
        first_checkpoint: What to begin with while the run has no checkpoint of its own.
        shards: Returns the parts of the datasets for each rank, given the number of workers.
        hang_timeout_s: After how long without progress a group counts as hung; None learns it.
        late_after_s: How long ranks wait for one that does not do its part of something.
        notice_s: How long a machine is expected to stay after a notice without a deadline.
        resize_after_s: How long to go on with fewer workers before looking for room again.
        copies: Keeps a local copy of the checkpoint that workers began with, for those that start
            again; None if checkpoints are on a disk that workers see.
    """

    function: Callable[..., Any]
    config: Mapping[str, Any] | None
    setups: Sequence[Callable[[WorkerContext], None]] = ()
    workers: int
    workers_min: int | None = None
    demand: Demand = NO_DEMAND
    budget: Budget
    retention: Retention
    log_folder: str
    backoff_max_s: float = 30.0
    environment: Mapping[str, str] = field(default_factory=dict)
    first_checkpoint: Checkpoint | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    shards: Callable[[int], Sequence[Mapping[str, Any]]] | None = None
    hang_timeout_s: float | None = None
    late_after_s: float = 1800.0
    notice_s: float = 25.0
    resize_after_s: float = 60.0
    validator: Validator | None = None
    copies: CopyKeeper | None = None

    @property
    def fewest(self) -> int:
        """How few workers are enough."""
        return self.workers if self.workers_min is None else self.workers_min

    def log_path(self, attempt: int, rank: int) -> str:
        """Return the path of the file that a worker prints to."""
        return log_at(self.log_folder, f"attempt-{attempt}", f"rank-{rank}.log")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run came out, for its trainer.

    Attributes:
        value: What rank 0 returned, pickled, if it succeeded.
        errors: What ranks of the last attempt raised, pickled if possible, by rank.
        card: The failure card of the last lost attempt; empty if none was lost.
    """

    over: Over
    value: bytes | None
    errors: Mapping[int, bytes | None]
    newest: Kept | None
    attempts: int
    card: str = ""
