"""The context of a worker whose function runs: its job, its reports, its meetings with other ranks.

User code runs in the main thread; another thread listens to the driver.
"""

from __future__ import annotations

import itertools
import logging
import os
import tempfile
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.checkpoint import Checkpoint
from holdfast.checkpoint.checkpoint import trust
from holdfast.errors import HoldfastBug, HoldfastError, StoreError
from holdfast.storage.base import Store
from holdfast.storage.locate import reopen
from holdfast.storage.retry import begin_run, within
from holdfast.wire import (
    Asked,
    Listed,
    Meeting,
    Message,
    Met,
    Noticed,
    SaveWanted,
    SawNotice,
)
from holdfast.worker.conversation import Conversation
from holdfast.worker.job import Job
from holdfast.worker.reporting import Reporter

log = logging.getLogger(__name__)

REACH_S = 120.0  # how long to try to reach storage


class MeetingFailed(HoldfastError):
    """Not all ranks came to a meeting that this one waits in."""

    code = "HF222"


class _View(msgspec.Struct, frozen=True):
    """What a rank has heard from the driver that all ranks must act on together."""

    notice: Noticed | None
    save_wanted: bool


class WorkerContext:
    """One worker while its function runs."""

    def __init__(self, job: Job, conversation: Conversation) -> None:
        self.job, self.place = job, job.place
        self._store: Store | None = None
        self._opening = threading.Lock()
        self.conversation = conversation
        self.reporter = Reporter(
            self.conversation,
            lambda: self.store,
            run_id=job.run_id,
            attempt=job.attempt,
            rank=job.place.rank,
            has_peers=job.place.world_size > 1,
            reports_before=job.reports_before,
            newest=None if job.checkpoint is None else trust(job.checkpoint),
        )
        self._meetings = 0
        self._questions = itertools.count(1)  # threads may ask at the same time
        self._notice: Noticed | None = None
        self._save_wanted = False
        self._saw_notice = False
        self.endings: list[Callable[[], None]] = []
        self.pending_save: tempfile.TemporaryDirectory[str] | None = (
            None  # what the next report is to save
        )

    def at_end(self, ending: Callable[[], None]) -> None:
        """Call `ending` after the function, in a process that lives on after it."""
        self.endings.append(ending)

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint of the run, as far as this rank has heard."""
        return self.reporter.newest

    @property
    def store(self) -> Store:
        """The run's store, opened by this process when it is first needed."""
        with self._opening:
            if self._store is None:
                self._store = reopen(self.job.store)
                begin_run(self._store, self._at_stake)
            return self._store

    def _at_stake(self) -> str:
        newest = self.reporter.newest
        durable = "nothing is saved yet"
        if newest is not None:
            durable = f"nothing after {os.path.basename(newest.path)} is durable"
        return f"rank {self.place.rank} waits with its checkpoint; {durable}"

    def must_reach_storage(self) -> None:
        """Raise `StoreError` if this machine does not see the run's storage."""
        landmark, home = self.job.landmark, self.job.home
        if landmark is None:
            return
        store = self.store if home is None else reopen(home)
        # With a limit, because this machine may not be able to reach it at all.
        if within(store, REACH_S).stat(landmark) is None:
            raise StoreError(
                f"rank {self.place.rank} on {self.place.node} does not see the run at"
                f" {store.url}, which its driver has created",
                hint="use a storage path that all machines share, such as S3 or NFS",
            )

    def hear(self, message: Message) -> None:
        """Handle a message of the driver that answers no question; in the listening thread."""
        match message:
            case Noticed():
                self._notice = message
            case SaveWanted():
                self._save_wanted = True
            case _:
                log.warning("unexpected message from the driver: %r", message)

    # ------------------------------------------------------------------ together

    def meet(self, data: bytes | None = None) -> bytes | None:
        """Wait until all ranks have called this, and return the data of rank 0."""
        met = self._meet(data if self.place.rank == 0 else None)
        return met.data if met.rank == 0 else None

    def _meet(self, data: bytes | None) -> Met:
        self._meetings += 1
        self.conversation.say(Meeting(self._meetings, data))
        met = self.conversation.answer("meeting", self._meetings)
        if not isinstance(met, Met):
            raise HoldfastBug(f"{met!r} is no answer to a meeting")
        if met.error is not None:
            raise MeetingFailed(met.error)
        return met

    def notice(self) -> Noticed | None:
        """Return the notice that nodes are about to leave; the same on every rank that asks.

        The ranks meet for it and use what the lowest rank has heard, so that all decide alike in
        the same step.
        """
        notice = self._common_view().notice
        if notice is not None and not self._saw_notice:
            self._saw_notice = True
            self.conversation.say(SawNotice())
        return notice

    def is_save_wanted(self) -> bool:
        """Whether the driver wants a checkpoint now; the same on every rank that asks."""
        view = self._common_view()
        return view.save_wanted or view.notice is not None

    def _common_view(self) -> _View:
        mine = _View(self._notice, self._save_wanted)
        if self.place.world_size == 1:
            return mine
        met = self._meet(msgspec.msgpack.encode(mine))
        return mine if met.data is None else msgspec.msgpack.decode(met.data, type=_View)

    def checkpoints(
        self, *, validated: bool, timeout_s: float | None
    ) -> list[tuple[Checkpoint, dict[str, Any], str]]:
        """Return all checkpoints, once the driver has processed this rank's reports.

        With `validated`, also wait until all of them are validated. After `timeout_s` they are
        returned as they are then.
        """
        first = Asked(next(self._questions), self.reporter.count, validated)
        listed = self._list(first, timeout_s)
        if listed is None:
            again = Asked(next(self._questions), 0, validated=False, instead_of=first.index)
            listed = self._list(again, None)
        assert listed is not None, "without a limit there is always an answer"
        return [
            (Checkpoint.in_run(self.store, directory), metrics, status)
            for directory, metrics, status in listed.checkpoints
        ]

    def _list(self, asked: Asked, timeout_s: float | None) -> Listed | None:
        self.conversation.say(asked)
        listed = self.conversation.answer("list", asked.index, timeout_s)
        assert listed is None or isinstance(listed, Listed)
        return listed


_current: WorkerContext | None = None


def enter(context: WorkerContext | None) -> None:
    """Make `context` the one that user code in this process uses."""
    global _current  # noqa: PLW0603  # there is one function per process
    _current = context


def current() -> WorkerContext | None:
    """Return this process's context, None outside a worker."""
    return _current
