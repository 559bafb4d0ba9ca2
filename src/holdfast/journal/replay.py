"""Reads a whole journal: every record once, in order, and lists the damage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from holdfast.errors import ObjectMissing
from holdfast.journal.segments import (
    UNKNOWN,
    Chain,
    JournalDamage,
    Record,
    Segment,
    SegmentName,
    SegmentReader,
    find_chain,
)
from holdfast.storage.base import Store

READS_MAX = 5


class Replay:
    """One pass over the journal of the run in `store`.

    The attributes are complete once `records` was read to the end.

    Attributes:
        next_seq: The number of the next record.
        end: The last segment of the chain and how many of its bytes count; None if there is none.
        damages: The damage that was detected.
        torn: The tail of an interrupted write, which was never acknowledged.
        chain: The segments that were read.
    """

    def __init__(
        self,
        store: Store,
        run_id: str | None = None,
        *,
        until: tuple[SegmentName, int] | None = None,
    ) -> None:
        self._store, self._run_id, self._until = store, run_id, until
        self.chain: Chain = find_chain(store, run_id, until=until)
        self._reset()

    def _reset(self) -> None:
        self.next_seq = 1
        self.end: tuple[SegmentName, int] | None = None
        self.damages: list[JournalDamage] = list(self.chain.damages)
        self.torn = b""

    def records(self) -> Iterator[Record]:
        """Yield every record that counts, oldest first."""
        yield from self._snapshot()
        for segment in self.chain.segments:
            yield from self._segment(segment)
        self.next_seq = max(self.next_seq, 1)  # unknown if a snapshot's header is damaged

    def _snapshot(self) -> list[Record]:
        """Return the records of the newest whole snapshot, or else whatever can be read of one."""
        rejected: dict[str, JournalDamage] = {}
        while (snapshot := self.chain.snapshot) is not None:
            reader = SegmentReader(self._store, snapshot)
            records = list(reader.records())
            if snapshot.header.count != len(records):
                name = f"{snapshot.header.name}.snapshot"
                lost = max(1, (snapshot.header.count or 0) - len(records))
                damage = JournalDamage(name, f"snapshot {name} is damaged", lost)
                rejected[snapshot.key] = replace(damage, lost=0)
                chain = find_chain(self._store, self._run_id, until=self._until, unusable=rejected)
                if chain.snapshot is not None or _starts_at_first_record(chain):
                    self.chain = chain
                    self._reset()
                    self.damages += rejected.values()
                    continue
                # The segments it replaced are gone: use what can be read of it.
                self.damages.append(damage)
            self.damages += reader.damages
            self.next_seq = snapshot.header.first
            self.end = (snapshot.header.name, snapshot.header.after_bytes)
            return records
        return []

    def _segment(self, segment: Segment) -> Iterator[Record]:
        reader = SegmentReader(self._store, segment)
        for record in reader.records():
            if record.seq < self.next_seq:
                text = f"record {record.seq} is there twice"
                self.damages.append(JournalDamage(f"twice-{record.seq}", text))
                continue
            if record.seq > self.next_seq != UNKNOWN:
                self.damages.append(JournalDamage.losing(self.next_seq, record.seq - 1))
            self.next_seq = record.seq + 1
            yield record
        self.damages += reader.damages
        self.torn = reader.torn
        self.end = (segment.header.name, reader.good_bytes)


def read_journal(store: Store, run_id: str | None = None) -> tuple[list[Record], Replay]:
    """Return all records, for a reader without a lease.

    The holder of the run may compact the journal meanwhile, so that listed segments are gone before
    they are read; then the reading begins again.
    """
    for _ in range(READS_MAX - 1):
        try:
            replay = Replay(store, run_id)
            return list(replay.records()), replay
        except ObjectMissing:
            continue
    replay = Replay(store, run_id)
    return list(replay.records()), replay


def _starts_at_first_record(chain: Chain) -> bool:
    return bool(chain.segments) and chain.segments[0].header.first == 1
