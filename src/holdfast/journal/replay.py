"""Reading a whole journal: every record once, in order, with an account of what was wrong."""

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

    Iterate over `records` to the end; the rest is known then.

    Attributes:
        next_seq: The number the next record will have.
        end: The last segment of the chain and how many of its bytes count; None if there is none.
        damages: What was not as it was written.
        torn: The tail of a write that was cut off, never acknowledged.
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
        self.next_seq = max(self.next_seq, 1)  # a snapshot whose header is damaged cannot tell

    def _snapshot(self) -> list[Record]:
        """Return the records of the newest snapshot that is whole, or as much as there is."""
        given_up: dict[str, JournalDamage] = {}
        while (snapshot := self.chain.snapshot) is not None:
            reader = SegmentReader(self._store, snapshot)
            records = list(reader.records())
            if snapshot.header.count != len(records):
                name = f"{snapshot.header.name}.snapshot"
                lost = max(1, (snapshot.header.count or 0) - len(records))
                damage = JournalDamage(name, f"snapshot {name} is damaged", lost)
                given_up[snapshot.key] = replace(damage, lost=0)
                without = find_chain(
                    self._store, self._run_id, until=self._until, unusable=given_up
                )
                if without.snapshot is not None or _reaches_back(without):
                    self.chain = without
                    self._reset()
                    self.damages += given_up.values()
                    continue
                # What it stood for is gone: keep what can be read of it.
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
                what = f"record {record.seq} is there twice"
                self.damages.append(JournalDamage(f"twice-{record.seq}", what))
                continue
            if record.seq > self.next_seq != UNKNOWN:
                self.damages.append(JournalDamage.losing(self.next_seq, record.seq - 1))
            self.next_seq = record.seq + 1
            yield record
        self.damages += reader.damages
        self.torn = reader.torn
        self.end = (segment.header.name, reader.good_bytes)


def read_journal(store: Store, run_id: str | None = None) -> tuple[list[Record], Replay]:
    """Return all records for somebody who only looks on.

    The holder of the run may compact the journal meanwhile; then what was listed is gone before
    it is read, and the reading begins again.
    """
    for _ in range(READS_MAX - 1):
        try:
            replay = Replay(store, run_id)
            return list(replay.records()), replay
        except ObjectMissing:
            continue
    replay = Replay(store, run_id)
    return list(replay.records()), replay


def _reaches_back(chain: Chain) -> bool:
    """Whether a chain without a snapshot begins at the beginning."""
    return bool(chain.segments) and chain.segments[0].header.first == 1
