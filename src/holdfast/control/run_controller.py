"""The loop that drives a run: remember, believe, act, tell.

It decides nothing: `core.run_machine` does. It gathers what ranks deliver, commits, and lets the
engine start and stop groups.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from holdfast.checkpoint import Checkpoint
from holdfast.control.gathering import Gathered, Gathering
from holdfast.control.open_run import OpenRun
from holdfast.control.upkeep import sweep
from holdfast.core.budget import Budget
from holdfast.core.manifest import FileEntry, Manifest, Part
from holdfast.core.outcomes import Finished, WorkerExit, describe
from holdfast.core.retention import Retention
from holdfast.core.run_history import KIND, RunHistory, data_of
from holdfast.core.run_machine import (
    Action,
    Active,
    DriverStarted,
    Event,
    GroupEnded,
    GroupNotStarted,
    Over,
    StartGroup,
    StopGroup,
    advance,
)
from holdfast.engine.base import Ended, Engine, EngineError, Said, WorkerSpec
from holdfast.errors import HoldfastError, LeaseLost
from holdfast.storage import locate
from holdfast.wire import (
    Assigned,
    Committed,
    Delivered,
    Meeting,
    Met,
    NotDelivered,
    Refused,
    Reported,
    Slotted,
)
from holdfast.worker.context import WorkerContext
from holdfast.worker.job import Job, Place

log = logging.getLogger(__name__)

TICK_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run is to do, as the launch that drives it says; nothing of it is kept."""

    function: Callable[..., Any]
    config: Mapping[str, Any] | None
    setups: Sequence[Callable[[WorkerContext], None]] = ()
    workers: int
    budget: Budget
    retention: Retention
    log_folder: str
    backoff_max_s: float = 30.0
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run came out, for the one who launched it.

    Attributes:
        value: What rank 0 returned, pickled, if it succeeded.
        words: The errors of ranks that raised, pickled where they could be, by rank.
    """

    over: Over
    value: bytes | None
    errors: Mapping[int, bytes | None]
    newest: Manifest | None
    attempts: int


class RunController:
    """Drives one run to its end on one engine."""

    def __init__(self, run: OpenRun, history: RunHistory, engine: Engine, plan: Plan) -> None:
        self._open_run, self._history, self._engine, self._plan = run, history, engine, plan
        self._gathering = Gathering(())
        self._meetings: dict[int, dict[int, bytes | None]] = {}
        self._exits: dict[int, WorkerExit] = {}
        self._running: set[int] = set()
        self._value: bytes | None = None
        self._errors: dict[int, bytes | None] = {}
        self._newest: Manifest | None = None

    def drive(self) -> Outcome:
        """Run until the run is over, carrying on from whatever the journal says."""
        sweep(self._open_run)
        self._happen(DriverStarted(self._plan.budget, self._plan.backoff_max_s))
        while not isinstance(self._history.run.phase, Over):
            if self._open_run.lost is not None:
                self._give_up(self._open_run.lost)
            event = self._engine.next_event(TICK_S)
            if isinstance(event, Said):
                self._hear(event)
            elif isinstance(event, Ended):
                self._note_end(event)
        run = self._history.run
        assert isinstance(run.phase, Over)
        return Outcome(run.phase, self._value, self._errors, self._newest, run.attempts)

    # ------------------------------------------------------------------ remember, believe, act

    def _happen(self, event: Event) -> None:
        actions = advance(self._history.run, event).actions
        self._open_run.note(KIND, data_of(event))  # which also makes the history believe it
        for action in actions:
            self._perform(action)

    def _perform(self, action: Action) -> None:
        match action:
            case StartGroup(attempt, after_s):
                if after_s:
                    log.warning("waiting %.1f s before attempt %d", after_s, attempt)
                    time.sleep(after_s)
                self._start(attempt)
            case StopGroup(attempt):
                self._engine.stop_group(attempt)

    def _give_up(self, lost: LeaseLost) -> None:
        """Another driver has the run: stop writing, leave the record to it."""
        for attempt in {self._history.run.attempts}:
            self._engine.stop_group(attempt)
        raise lost

    def _start(self, attempt: int) -> None:
        self._newest = self._open_run.newest_good()
        checkpoint = None
        if self._newest is not None:
            checkpoint = Checkpoint.in_run(self._open_run.store, self._newest.directory)
        ranks = range(self._plan.workers)
        self._gathering, self._meetings, self._exits = Gathering(ranks, self._reports()), {}, {}
        self._running, self._errors, self._value = set(ranks), {}, None
        specs = [
            WorkerSpec(
                rank=place.rank,
                node=place.node,
                log=f"{self._plan.log_folder}/attempt-{attempt}/rank-{place.rank}.log",
                first=Assigned(self._packed(place, attempt, checkpoint)),
                environment=self._plan.environment,
            )
            for place in places(self._plan.workers, self._engine.nodes())
        ]
        try:
            self._engine.start_group(attempt, specs)
        except EngineError as error:
            self._happen(GroupNotStarted(attempt, error.message))

    def _reports(self) -> int:
        """Return how many reports the run had made when its newest checkpoint was saved."""
        return self._newest.step or 0 if self._newest is not None else 0

    def _packed(self, place: Place, attempt: int, checkpoint: Checkpoint | None) -> bytes:
        job = Job(
            function=self._plan.function,
            config=self._plan.config,
            setups=tuple(self._plan.setups),
            place=place,
            run_name=self._open_run.identity.name,
            attempt=attempt,
            store=locate.describe(self._open_run.store),
            checkpoint=checkpoint,
            reports_before=self._reports(),
        )
        packed: bytes = cloudpickle.dumps(job)
        return packed

    # ------------------------------------------------------------------ what workers say

    def _hear(self, said: Said) -> None:
        if said.attempt != self._history.run.attempts or said.rank not in self._running:
            return  # of an attempt that is over
        match said.message:
            case Reported(index, metrics, saves, directory):
                self._note_report(said.rank, index, metrics, saves=saves, directory=directory)
            case Delivered(index, files, folders):
                entries = tuple(FileEntry(*entry) for entry in files)
                self._gathering.delivered(index, Part(said.rank, entries, tuple(folders)))
            case NotDelivered(index, error):
                self._gathering.failed(index, error)
            case Meeting(index, data):
                self._meetings.setdefault(index, {})[said.rank] = data
                self._hold_meetings()
            case other:
                log.warning("rank %d said something unexpected: %r", said.rank, other)
        self._commit_settled()

    def _note_report(
        self,
        rank: int,
        index: int,
        metrics: Mapping[str, Any],
        *,
        saves: bool,
        directory: str | None,
    ) -> None:
        attempt = self._history.run.attempts
        if saves and not self._gathering.is_open(index):
            self._begin(index, directory)
        if saves and (refusal := self._gathering.refusal(index)) is not None:
            self._engine.send(attempt, rank, Refused(index, refusal))
            saves = False
        self._gathering.reported(rank, index, metrics, saves=saves)
        if saves:
            slot = self._gathering.slot(index)
            given = Slotted(index, slot.number, slot.directory, slot.epoch, slot.attempt)
            self._engine.send(attempt, rank, given)

    def _begin(self, index: int, directory: str | None) -> None:
        if self._gathering.refusal(index) is not None:
            return  # a rank has failed at it: the part of another is not a checkpoint
        try:
            slot = self._open_run.begin_checkpoint(
                attempt=self._history.run.attempts, directory=directory
            )
        except LeaseLost:
            raise
        except HoldfastError as error:
            self._gathering.refuse(index, str(error))
        else:
            self._gathering.begin(index, slot)

    def _commit_settled(self) -> None:
        for gathered in self._gathering.take_settled():
            self._commit(gathered)

    def _commit(self, gathered: Gathered) -> None:
        attempt = self._history.run.attempts
        error = gathered.error
        if error is None:
            try:
                self._newest = self._open_run.commit_checkpoint(
                    gathered.slot,
                    gathered.parts.values(),
                    world_size=self._plan.workers,
                    step=gathered.index,
                    metrics=gathered.metrics,
                )
            except LeaseLost:
                raise
            except HoldfastError as failure:
                error = str(failure)
        for rank in gathered.savers:
            answer = (
                Refused(gathered.index, error)
                if error is not None
                else Committed(gathered.index, gathered.slot.directory)
            )
            self._engine.send(attempt, rank, answer)
        if error is None:
            self._open_run.retain(self._plan.retention)

    def _hold_meetings(self) -> None:
        for index in [i for i, came in self._meetings.items() if self._running <= came.keys()]:
            came = self._meetings.pop(index)
            for rank in self._running:
                self._engine.send(self._history.run.attempts, rank, Met(index, came.get(0)))

    # ------------------------------------------------------------------ how workers end

    def _note_end(self, ended: Ended) -> None:
        if ended.attempt != self._history.run.attempts:
            return
        rank = ended.exit.rank
        self._exits[rank] = ended.exit
        self._running.discard(rank)
        if isinstance(ended.exit, Finished):
            # Of the others, and of these only, checkpoints go on waiting for their part.
            self._gathering.returned(rank)
            if rank == 0 and ended.words is not None:
                self._value = ended.words.value
            self._commit_settled()
            self._hold_meetings()
        else:
            log.warning("%s", describe(ended.exit))
            if ended.words is not None:
                self._errors[rank] = ended.words.value
            if isinstance(self._history.run.phase, Active):
                self._engine.stop_group(ended.attempt)
        if len(self._exits) == self._plan.workers:
            exits = tuple(self._exits[rank] for rank in sorted(self._exits))
            self._happen(GroupEnded(ended.attempt, exits))


def places(workers: int, nodes: Sequence[str]) -> list[Place]:
    """Return where every rank stands: neighbours share a node, and it is the same every time."""
    node_of = [nodes[rank * len(nodes) // max(workers, len(nodes))] for rank in range(workers)]
    used = list(dict.fromkeys(node_of))
    return [
        Place(
            rank=rank,
            world_size=workers,
            local_rank=node_of[:rank].count(node),
            local_world_size=node_of.count(node),
            node_rank=used.index(node),
            node=node,
        )
        for rank, node in enumerate(node_of)
    ]
