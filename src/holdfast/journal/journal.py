"""The record a run is rebuilt from: appended and durable before the act it causes.

Any thread may append; whoever waits first writes for all that are waiting (group commit), so the
cost of an fsync or of a put is shared. A write that fails burns its segment: the next one begins
a new segment that says where the good part of the chain ends, so nothing is written over and
nothing that was refused can come back.

What was appended behind a record that is refused may rest on it, and is refused together with it.
Who waits for each record before believing it may go on after that. Who believes records at once
cannot: what he knows is in no journal. So a journal that refuses a record that was believed is
closed, and what is at rest of it is all that happened up to some moment, without a hole.
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
    JOURNAL,
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
COMPACT_SEGMENTS = 64  # on object stores every commit is a segment; they are merged beyond this

Reduce = Callable[[Iterable[Record]], Iterable[tuple[str, dict[str, Any]]]]


class Ticket:
    """A record on its way to the disk; `believed` is whether somebody acts on it already."""

    __slots__ = ("_journal", "believed", "data", "error", "kind", "seq", "time")

    def __init__(
        self, journal: Journal, kind: str, data: str, time: float, *, believed: bool
    ) -> None:
        self._journal = journal
        self.kind, self.data, self.time, self.believed = kind, data, time, believed
        self.seq: int | None = None  # set once it is durable
        self.error: BaseException | None = None

    def wait(self) -> int:
        """Return the record's number once it is durable; raise if it could not be made so."""
        return self._journal.wait_for(self)


class Journal:
    """The journal of a run, held by the one who holds its lease.

    Attributes:
        failure: Why it is closed for good, None if it is not.
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
        self._last: Ticket | None = None  # the last one that was appended
        self._writing: list[Ticket] | None = None  # what is being written
        self._first = 1  # the number of the first of these
        self._changed = threading.Condition()
        self._next_seq = 1
        self._end: tuple[SegmentName, int] | None = None  # where the acknowledged part ends
        self._finished: tuple[SegmentName, int] | None = None  # the same without the open segment
        self._next_index = 0
        self._appender: Appender | None = None
        self._is_ending = False  # the segment, with what is written next
        self._sealed_count = 0
        self.damages: list[JournalDamage] = []
        self.failure: Exception | None = None

    # ------------------------------------------------------------------ opening

    def replay(self) -> Iterator[Record]:
        """Yield every record there is; to be read to the end once, before the first append.

        Whatever is found damaged is in `damages` afterwards.
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
        """Take a record; it is durable once the ticket's `wait` has returned.

        With `believed`, whoever appends it acts on it before that, and nothing can be recorded any
        more if it is refused. Raises `ConfigError` at once if the data cannot be kept; nobody else
        is affected. Raises what closed the journal if it is closed.
        """
        return self.append_text(kind, encode(data), believed=believed)

    def append_text(self, kind: str, text: str, *, believed: bool = False) -> Ticket:
        """Take a record whose data `encode` has made a text of."""
        ticket = Ticket(self, kind, text, self._clock.now(), believed=believed)
        with self._changed:
            self.must_be_open()
            self._pending.append(ticket)
            self._last = ticket
        return ticket

    def must_be_open(self) -> None:
        """Raise what closed the journal for good, if anything has."""
        if self.failure is not None:
            raise self.failure

    def record(self, kind: str, data: dict[str, Any]) -> int:
        """Append a record and return its number once it is durable."""
        return self.append(kind, data).wait()

    def wait_for(self, ticket: Ticket) -> int:
        """Return once `ticket` is durable, writing all that is pending if nobody else does."""
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
        """Return once everything appended so far is durable, or was refused to who appended it.

        Raises what closed the journal if it is closed.
        """
        with self._changed:
            last = self._last
            # Perhaps `last` is on its way in the hands of another thread.
            while self._writing is not None:
                self._changed.wait()
            self.must_be_open()
            is_pending = last in self._pending
        if last is not None and is_pending:
            last.wait()

    def end_segment(self) -> None:
        """Have the segment end after what is pending, so that it can be compacted."""
        with self._changed:
            self._is_ending = True

    def _write_for_all(self, batch: list[Ticket]) -> None:
        error: BaseException | None = None
        first = self._first
        try:
            lines = [record_line(first + i, t.time, t.kind, t.data) for i, t in enumerate(batch)]
            self._write(b"".join(lines), len(lines))
        except BaseException as failure:  # noqa: BLE001  # all who wait must hear of it
            error = failure
        self._settle(batch, error)
        if error is not None and not isinstance(error, HoldfastError):
            raise error

    def _settle(self, batch: list[Ticket], error: BaseException | None) -> None:
        """Tell all who wait for a batch what became of it; nothing if they were told."""
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

        The chain ends after them only once the lease was seen to be ours still: until then they
        may be what a successor has not read, or what is refused and numbered anew.
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
        self._lease.check()  # or a file of ours would lie in what may be another's run by now
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
        """Write no more to the current segment: it is full, or nobody knows what is in its tail."""
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
                f"segment {header.name} of the journal exists already: somebody else writes it"
            ) from error
        self._sealed_count += 1
        return header.name, len(data)

    def _next_header(self) -> Header:
        name = SegmentName(self._lease.epoch, self._next_index)
        self._next_index += 1  # also if the write fails: a burnt name is never used again
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
        """Whether the chain has become long enough for `compact` to be worth its while."""
        return self._sealed_count > COMPACT_SEGMENTS

    def compact(self, reduce: Reduce) -> None:
        """Replace all finished segments by one snapshot of what they amount to.

        `reduce` gets every record so far and returns the events that lead to the same state. May
        run in a thread of its own while others append: it only touches finished segments. A crash
        at any point leaves the segments, or the snapshot, or both, which mean the same.
        """
        with self._changed:
            end = self._finished if self._appender is not None else self._end
        if end is None:
            return
        # Only up to where this journal knows its records to be acknowledged: a put that failed
        # may still have left a segment, and that one must not count.
        replay = Replay(self._store, self._run_id, until=end)
        finished = replay.chain.segments
        if not finished:
            return
        events = list(reduce(replay.records()))
        known = {damage.identity for damage in self.damages}
        if any(damage.identity not in known for damage in replay.damages):
            # A snapshot would hide it; the next to open the run reports it and sets it aside.
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
        for old in obsolete:
            self._store.delete(old)
        self._sealed_count -= len(finished)

    def close(self) -> None:
        """Make everything appended durable and let go of the current segment."""
        try:
            self.flush()
        finally:
            self._abandon_segment()


def _interrupted(error: BaseException | None) -> StoreError:
    """Return what those hear who come after somebody was interrupted in the middle of a write."""
    return StoreError(
        f"the journal is closed: {type(error).__name__} came in the middle of a write",
        hint="the same command again goes on from what was written",
    )


def journal_exists(store: Store) -> bool:
    """Whether the run in `store` has a journal at all."""
    return next(iter(store.entries(JOURNAL)), None) is not None
