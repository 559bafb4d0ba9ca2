"""A worker's side of the conversation with its driver: reports, checkpoints, meetings.

User code runs in the main thread; another one listens. Whatever waits for the driver ends when the
driver is gone, because then the process ends.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from typing import Any, TypeVar

from holdfast.checkpoint import Checkpoint
from holdfast.checkpoint.commit import Slot, deliver
from holdfast.errors import ConfigError, HoldfastError, StoreError
from holdfast.storage.base import Store
from holdfast.storage.locate import reopen
from holdfast.wire import (
    Channel,
    Committed,
    Delivered,
    Meeting,
    Message,
    Met,
    NotDelivered,
    Noticed,
    Refused,
    Reported,
    Slotted,
)
from holdfast.worker.job import Job
from holdfast.worker.metrics import plain_metrics

log = logging.getLogger(__name__)

M = TypeVar("M", bound=Message)
DRIVER_IS_GONE = 70  # the exit code of a worker whose driver vanished


class WorkerContext:
    """One worker while its function runs."""

    def __init__(self, channel: Channel, job: Job) -> None:
        self.job, self.place = job, job.place
        self._channel = channel
        self._store: Store | None = None
        self._changed = threading.Condition()
        self._answers: dict[tuple[str, int], Message] = {}
        self._report_index = job.reports_before
        self._meeting_index = 0
        self.checkpoint = job.checkpoint
        self.notice: Noticed | None = None

    @property
    def store(self) -> Store:
        """The run's store; opened when it is first needed, by this process."""
        if self._store is None:
            self._store = reopen(self.job.store)
        return self._store

    def must_reach_storage(self) -> None:
        """Raise a clear error if this machine does not see the run's storage."""
        if self.store.stat(".holdfast/run.json") is None:
            raise StoreError(
                f"rank {self.place.rank} on {self.place.node} does not see the run at"
                f" {self.store.url}, which its driver has made",
                hint="use a storage path that all machines share, such as S3 or NFS",
            )

    # ------------------------------------------------------------------ listening

    def listen(self, already: list[Message]) -> None:
        """Take in what the driver says from now on, beginning with what has come already."""
        threading.Thread(
            target=self._listen, args=(already,), name="holdfast-listener", daemon=True
        ).start()

    def _listen(self, messages: list[Message]) -> None:
        while True:
            for message in messages:
                self._take_in(message)
            messages = self._channel.wait()
            if self._channel.is_closed and not messages:
                os._exit(DRIVER_IS_GONE)

    def _take_in(self, message: Message) -> None:
        with self._changed:
            match message:
                case Noticed():
                    self.notice = message
                case Slotted(index) | Committed(index) | Met(index):
                    self._answers[type(message).__name__, index] = message
                case Refused(index):
                    self._answers[Slotted.__name__, index] = message
                    self._answers[Committed.__name__, index] = message
                case _:
                    log.warning("the driver said something unexpected: %r", message)
            self._changed.notify_all()

    def _answer(self, kind: type[M], index: int) -> M:
        """Return the driver's answer, or raise its refusal."""
        key = kind.__name__, index
        self._channel.flush(None)  # else the question may still be here, behind many reports
        with self._changed:
            while key not in self._answers:
                self._changed.wait()
            answer = self._answers.pop(key)
        if isinstance(answer, Refused):
            self._answers.pop((Committed.__name__, index), None)
            raise HoldfastError(answer.error, code="HF201")
        assert isinstance(answer, kind)
        return answer

    # ------------------------------------------------------------------ reporting

    def report(
        self,
        metrics: Mapping[str, Any],
        checkpoint: Checkpoint | None = None,
        directory: str | None = None,
    ) -> None:
        """Pass on metrics; with a checkpoint, return once it is committed.

        Metrics alone cost a few microseconds and wait for nobody. A checkpoint is committed when
        every rank that still runs has made its report with the same count; what a rank saves is
        its part of it. A failed save raises and leaves everything usable.
        """
        plain = plain_metrics(metrics)
        if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
            raise ConfigError(
                f"checkpoint={checkpoint!r} is not a Checkpoint",
                hint="use Checkpoint.from_directory(folder)",
            )
        self._report_index += 1
        index = self._report_index
        self._channel.send(Reported(index, plain, checkpoint is not None, directory))
        if checkpoint is not None:
            self.checkpoint = self._save(index, checkpoint)

    def _save(self, index: int, checkpoint: Checkpoint) -> Checkpoint:
        given = self._answer(Slotted, index)
        slot = Slot(given.number, given.directory, given.epoch, given.attempt)
        try:
            with checkpoint.as_directory() as folder:
                part = deliver(self.store, slot, self.place.rank, folder)
            files = [(entry.path, entry.size, entry.digest) for entry in part.files]
            self._channel.send(Delivered(index, files, list(part.folders)))
        except BaseException as error:
            # Whatever it is, the driver must not go on waiting for this part.
            self._channel.send(NotDelivered(index, f"rank {self.place.rank}: {error}"))
            raise
        committed = self._answer(Committed, index)
        return Checkpoint.in_run(self.store, committed.directory)

    # ------------------------------------------------------------------ meeting

    def meet(self, data: bytes | None = None) -> bytes | None:
        """Wait for all ranks to come here and return what rank 0 brought."""
        self._meeting_index += 1
        brought = data if self.place.rank == 0 else None
        self._channel.send(Meeting(self._meeting_index, brought))
        return self._answer(Met, self._meeting_index).data


_current: WorkerContext | None = None


def enter(context: WorkerContext) -> None:
    """Make `context` the one that user code in this process talks to."""
    global _current  # noqa: PLW0603  # there is one function per process
    _current = context


def current() -> WorkerContext | None:
    """Return this process's context, None outside a worker."""
    return _current
