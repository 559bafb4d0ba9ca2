"""The journal of a run: records that are durable before the actions they cause.

Any thread may append; the first that waits writes for all that are waiting (group commit), so the
cost of an fsync or of a put is shared. After a failed write the segment is abandoned: the next
write begins a new segment that says where the good part of the chain ends, so nothing is
overwritten and no refused record can come back.

Records behind a refused one may depend on it, so they are refused with it. A caller that waits for
each record before acting on it can go on after that. One that acts at once cannot, because its
state is not in the journal. So when a record with `believed` is refused, the journal is closed, and
what is stored is everything that happened up to some moment, without a gap.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import Conflict, HoldfastError, LeaseLost, StoreError
from holdfast.journal.lease import Lease
from holdfast.journal.replay import Replay
from holdfast.journal.segments import (
    Header,
    JournalDamage,
    Record,
    SegmentName,
    record_line,
    segment_key,
)
from holdfast.storage.base import IF_ABSENT, Store
from holdfast.storage.local.files import Appender
from holdfast.storage.records import encode

log = logging.getLogger(__name__)

SEGMENT_BYTES = 8 << 20
COMPACT_SEGMENTS = 64  # beyond this they are merged; on object stores every commit is a segment

Reduce = Callable[[Iterable[Record]], Iterable[tuple[str, dict[str, Any]]]]


class Ticket:
    """A record that is being written; `believed` is whether its caller acts on it already."""

    __slots__ = ("_journal", "believed", "data", "error", "kind", "seq", "time")

    def __init__(
        self, journal: Journal, kind: str, data: str, time: float, *, believed: bool
    ) -> None:
        self._journal = journal
        self.kind, self.data, self.time, self.believed = kind, data, time, believed
        self.seq: int | None = None  # set once it is durable
        self.error: BaseException | None = None

    def wait(self) -> int:
        """Return the record's number once it is durable; raise if the write failed."""
        return self._journal.wait_for(self)


class Journal:
    """The journal of a run, written by the holder of its lease.

    Attributes:
        damages: The damage that `replay` has detected.
        failure: Why the journal is closed for good, None if it is not.
    """

    def __init__(
        self,
        store: Store,
        lease: Lease,
        run_id: str,
        *,
        clock: Clock = SYSTEM_CLOCK,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self._store, self._lease, self._run_id, self._clock = store, lease, run_id, clock
        self._segment_bytes = segment_bytes
        self._pending: list[Ticket] = []
        self._last: Ticket | None = None  # the last appended
        self._writing: list[Ticket] | None = None  # the batch that is being written
        self._first = 1  # the number of its first record
        self._changed = threading.Condition()
        self._next_seq = 1
        self._end: tuple[SegmentName, int] | None = None  # where the acknowledged part ends
        self._finished: tuple[SegmentName, int] | None = None  # the same without the open segment
        self._next_index = 0
        self._appender: Appender | None = None
        self._is_ending = False  # whether the segment ends with the next write
        self._sealed_count = 0
        self.damages: list[JournalDamage] = []
        self.failure: Exception | None = None

    # ------------------------------------------------------------------ opening

    def replay(self) -> Iterator[Record]:
        """Yield every record; must be read to the end once, before the first append.

        Sets `damages`.
        """
        replay = Replay(self._store, self._run_id)
        yield from replay.records()
        self._next_seq, self._end = replay.next_seq, replay.end
        self._next_index = replay.chain.last_index.get(self._lease.epoch, -1) + 1
        self._sealed_count = len(replay.chain.segments)
        self.damages = replay.damages
        promised = self._lease.record.journal_next
        if promised > self._next_seq:
            self.damages.append(JournalDamage.losing(self._next_seq, promised - 1))
            self._next_seq = promised

    @property
    def next_seq(self) -> int:
        """The number the next record will have; all below are durable."""
        return self._next_seq

    # ------------------------------------------------------------------ writing

    def append(self, kind: str, data: dict[str, Any], *, believed: bool = False) -> Ticket:
        """Queue a record; it is durable once the ticket's `wait` has returned.

        With `believed`, the caller acts on it before that, and the journal is closed if the record
        is refused. Raises `ConfigError` at once if the data cannot be encoded, without an effect on
        other records. Raises `failure` if the journal is closed.
        """
        return self.append_text(kind, encode(data), believed=believed)

    def append_text(self, kind: str, text: str, *, believed: bool = False) -> Ticket:
        """Queue a record whose data is already encoded."""
        ticket = Ticket(self, kind, text, self._clock.now(), believed=believed)
        with self._changed:
            self.must_be_open()
            self._pending.append(ticket)
            self._last = ticket
        return ticket

    def must_be_open(self) -> None:
        """Raise `failure` if the journal is closed."""
        if self.failure is not None:
            raise self.failure

    def record(self, kind: str, data: dict[str, Any]) -> int:
        """Append a record and return its number once it is durable."""
        return self.append(kind, data).wait()

    def wait_for(self, ticket: Ticket) -> int:
        """Return once `ticket` is durable; write all that is pending if no other thread does."""
        while True:
            batch: list[Ticket] | None = None
            try:
                with self._changed:
                    while self._writing is not None and ticket.seq is None and ticket.error is None:
                        self._changed.wait()
                    if ticket.seq is not None:
                        return ticket.seq
                    if ticket.error is not None:
                        raise ticket.error
                    self._first = self._next_seq
                    batch = self._writing = self._pending  # in one of the two at every moment
                    self._pending = []
                self._write_for_all(batch)
            except BaseException as error:  # Ctrl+C comes between any two instructions
                if batch is not None:
                    self._settle(batch, error)
                raise

    def flush(self) -> None:
        """Return once everything appended so far is durable or refused.

        Raises `failure` if the journal is closed.
        """
        with self._changed:
            last = self._last
            # Another thread may be writing `last`.
            while self._writing is not None:
                self._changed.wait()
            self.must_be_open()
            is_pending = last in self._pending
        if last is not None and is_pending:
            last.wait()

    def end_segment(self) -> None:
        """End the segment after the pending records, so that it can be compacted."""
        with self._changed:
            self._is_ending = True

    def _write_for_all(self, batch: list[Ticket]) -> None:
        error: BaseException | None = None
        first = self._first
        try:
            lines = [record_line(first + i, t.time, t.kind, t.data) for i, t in enumerate(batch)]
            self._write(b"".join(lines), len(lines))
        except BaseException as failure:  # noqa: BLE001  # all waiting threads get it
            error = failure
        self._settle(batch, error)
        if error is not None and not isinstance(error, HoldfastError):
            raise error

    def _settle(self, batch: list[Ticket], error: BaseException | None) -> None:
        """Pass the outcome of a batch to all waiting threads; does nothing the second time."""
        with self._changed:
            if self._writing is not batch:
                return
            if self._next_seq == self._first + len(batch):
                for i, ticket in enumerate(batch):
                    ticket.seq = self._first + i
            else:
                self._abandon_segment()
                self._refuse([*batch, *self._pending], error)
                self._pending = []
            self._writing = None
            self._changed.notify_all()

    def _refuse(self, tickets: list[Ticket], error: BaseException | None) -> None:
        if any(ticket.believed for ticket in tickets):
            self.failure = error if isinstance(error, Exception) else _interrupted(error)
        for ticket in tickets:
            ticket.error = error

    def _write(self, lines: bytes, count: int) -> None:
        """Make `lines` durable at the end of the chain, or leave the chain as it was.

        They count as part of the chain only after a check of the lease: before it, a successor may
        not have read them, or they may be refused and their numbers used again.
        """
        end = self._put_segment(lines) if self._store.local is None else self._append(lines)
        try:
            self._lease.check()
        except BaseException:
            self._abandon_segment()
            raise
        with self._changed:
            self._end, self._next_seq = end, self._next_seq + count
            if end[1] >= self._segment_bytes or self._is_ending:
                self._abandon_segment()
                self._is_ending = False

    def _append(self, lines: bytes) -> tuple[SegmentName, int]:
        if self._appender is None:
            self._open_segment()
        assert self._appender is not None and self._end is not None
        try:
            self._appender.write(lines)
            self._appender.sync()
        except BaseException:
            self._abandon_segment()
            raise
        name, size = self._end
        return name, size + len(lines)

    def _open_segment(self) -> None:
        assert self._store.local is not None
        self._lease.check()  # or we would create a file in what may be another driver's run
        header = self._next_header()
        line = header.to_line()
        appender = self._store.local.appender(segment_key(header.name))
        try:
            appender.write(line)
            appender.sync()
        except BaseException:
            appender.close()
            raise
        with self._changed:
            self._finished = self._end
            self._appender, self._end = appender, (header.name, len(line))
        self._sealed_count += 1

    def _abandon_segment(self) -> None:
        """Write no more to the current segment: it is full, or its tail is unknown."""
        if self._appender is not None:
            self._appender.close()
            self._appender = None

    def _put_segment(self, lines: bytes) -> tuple[SegmentName, int]:
        header = self._next_header()
        data = header.to_line() + lines
        try:
            self._store.put(segment_key(header.name), data, IF_ABSENT)
        except Conflict as error:
            raise LeaseLost(
                f"segment {header.name} of the journal exists already: another driver writes it"
            ) from error
        self._sealed_count += 1
        return header.name, len(data)

    def _next_header(self) -> Header:
        name = SegmentName(self._lease.epoch, self._next_index)
        self._next_index += 1  # also if the write fails: a name is never used twice
        after, after_bytes = self._end or (None, 0)
        return Header(
            run_id=self._run_id,
            name=name,
            first=self._next_seq,
            after=after,
            after_bytes=after_bytes,
        )

    # ------------------------------------------------------------------ compaction, closing

    def wants_compaction(self) -> bool:
        """Whether the chain is long enough to be worth compacting."""
        return self._sealed_count > COMPACT_SEGMENTS

    def compact(self, reduce: Reduce) -> None:
        """Replace all finished segments by one snapshot.

        `reduce` gets every record so far and returns events that lead to the same state. May run in
        its own thread while others append: it only touches finished segments. A crash at any point
        leaves the segments, or the snapshot, or both, which mean the same.
        """
        with self._changed:
            end = self._finished if self._appender is not None else self._end
        if end is None:
            return
        # Only up to the last acknowledged record: a failed put may still have left a segment, and
        # that one must not count.
        replay = Replay(self._store, self._run_id, until=end)
        finished = replay.chain.segments
        if not finished:
            return
        events = list(reduce(replay.records()))
        reported = {damage.identity for damage in self.damages}
        if any(damage.identity not in reported for damage in replay.damages):
            # A snapshot would hide new damage; the next driver reports it and sets it aside.
            log.error("the journal of %s is damaged and is not compacted", self._store.url)
            return
        header = Header(
            run_id=self._run_id,
            name=end[0],
            first=replay.next_seq,
            after=end[0],
            after_bytes=end[1],
            count=len(events),
        )
        now = self._clock.now()
        lines = [record_line(0, now, kind, encode(data)) for kind, data in events]
        key = segment_key(end[0], snapshot=True)
        self._store.put(key, header.to_line() + b"".join(lines))
        self._lease.check()
        obsolete = [segment.key for segment in finished]
        if replay.chain.snapshot is not None and replay.chain.snapshot.key != key:
            obsolete.append(replay.chain.snapshot.key)
        for key in obsolete:
            self._store.delete(key)
        self._sealed_count -= len(finished)

    def close(self) -> None:
        """Make everything appended durable and close the current segment."""
        try:
            self.flush()
        finally:
            self._abandon_segment()


def _interrupted(error: BaseException | None) -> StoreError:
    """Return the error for callers that come after a write was interrupted."""
    return StoreError(
        f"the journal is closed: {type(error).__name__} interrupted a write",
        hint="give the same command again; it goes on from what was written",
    )
