"""Stored segments of a journal: their names, their chain, and how they are read.

A segment is lines of sealed JSON. Its first line is a header that names the segment before it and
how many bytes of that one count; what lies beyond was never acknowledged, or was written after its
writer's epoch was over. So stored segments are never changed to repair them: the next header says
where the good part ends. A snapshot is a segment that replaces a whole prefix of the chain.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

import msgspec
from msgspec.structs import replace

from holdfast.errors import Damaged, FormatTooNew
from holdfast.storage.base import Store
from holdfast.storage.records import (
    MARK,
    Count,
    fit,
    is_whole,
    known_format,
    salvage,
    seal,
    seal_body,
    unmarked,
    unseal,
)

FORMAT = 1
JOURNAL = ".holdfast/journal"
_NAME = re.compile(r"(\d{6,})-(\d{6,})(\.snapshot)?\.jsonl")
_HEAD_BYTES = 4096
UNKNOWN = -1


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """The name of a segment: the epoch of its writer, and its index in that epoch."""

    epoch: int
    index: int

    def __str__(self) -> str:
        return f"{self.epoch:06d}-{self.index:06d}"

    @classmethod
    def parse(cls, text: str) -> SegmentName:
        epoch, index = text.split("-")
        return cls(int(epoch), int(index))


class _After(TypedDict):
    segment: str
    bytes: Count


class _HeaderRecord(TypedDict):
    """A header as it is stored."""

    run: str
    segment: str
    first: int
    after: _After | None
    count: Count | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line of a segment.

    Attributes:
        first: The number of its first record.
        after: The segment before this one, None for the first of all.
        after_bytes: How many bytes of that segment count.
        count: The number of records in a snapshot, None in a segment. In a snapshot, `name` and
            `after` are the last segment it replaces, and `first` is the record that follows it.
    """

    run_id: str
    name: SegmentName
    first: int
    after: SegmentName | None = None
    after_bytes: int = 0
    count: int | None = None

    def to_line(self) -> bytes:
        after = {"segment": str(self.after), "bytes": self.after_bytes} if self.after else None
        record = {
            "format": FORMAT,
            "run": self.run_id,
            "segment": str(self.name),
            "first": self.first,
            "after": after,
            "count": self.count,
        }
        return seal(record) + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Header:
        record = unseal(line)
        if known_format(record) > FORMAT:
            raise FormatTooNew(
                f"journal format {record['format']}, this version reads up to {FORMAT}",
                hint="use the version of Holdfast that wrote it, or a newer one",
            )
        stored = fit(record, _HeaderRecord)
        after = stored["after"]
        return cls(
            run_id=stored["run"],
            name=SegmentName.parse(stored["segment"]),
            first=stored["first"],
            after=SegmentName.parse(after["segment"]) if after else None,
            after_bytes=after["bytes"] if after else 0,
            count=stored["count"],
        )


class Record(msgspec.Struct, frozen=True):
    """One journaled event. `seq` rises by one from record to record; in a snapshot it is 0."""

    seq: int
    time: float
    kind: str
    data: dict[str, Any]

    @classmethod
    def from_line(cls, line: bytes) -> Record | None:
        """Return the record in a line, or None if the line is damaged or not a record."""
        if not is_whole(line):
            return None
        try:
            record = _decode_record(line)
            return replace(record, data=unmarked(record.data)) if MARK in line else record
        except (msgspec.DecodeError, Damaged, RecursionError, TypeError, ValueError):
            return None


def record_line(seq: int, time: float, kind: str, data: str) -> bytes:
    """Return the stored line of a record; `data` is encoded already."""
    body = f'{{"seq":{seq},"time":{time!r},"kind":"{kind}","data":{data}'
    return seal_body(body.encode()) + b"\n"


_decode_record = msgspec.json.Decoder(Record).decode


@dataclass(frozen=True, slots=True)
class JournalDamage:
    """A damaged place in the journal.

    Attributes:
        identity: The same whenever the same damage is detected again.
        lost: How many records are lost.
        remains: The damaged bytes, kept for inspection.
    """

    identity: str
    what: str
    lost: int = 0
    remains: bytes = b""

    @classmethod
    def at(cls, segment: object, offset: int, what: str, remains: bytes = b"") -> JournalDamage:
        return cls(f"{segment}@{offset}", f"segment {segment}, byte {offset}: {what}", 0, remains)

    @classmethod
    def losing(cls, first: int, last: int) -> JournalDamage:
        what = f"record {first} is" if first == last else f"records {first} to {last} are"
        return cls(f"lost-{first}-{last}", f"{what} missing", last - first + 1)


@dataclass(slots=True)
class Segment:
    """A segment in the chain.

    `limit` is how many of its bytes count, None for all. `start` is where the header ends, None if
    the header is damaged.
    """

    key: str
    header: Header
    start: int | None = None
    limit: int | None = None


@dataclass(slots=True)
class Chain:
    """The segments that make up the journal, in order, and those that do not count.

    Attributes:
        stale: Keys of segments replaced by a snapshot or written after their epoch was over.
        damages: Damage of the chain itself.
        last_index: The highest index used in each epoch, including segments that do not count.
    """

    segments: list[Segment] = field(default_factory=list)
    snapshot: Segment | None = None
    stale: list[str] = field(default_factory=list)
    damages: list[JournalDamage] = field(default_factory=list)
    last_index: dict[int, int] = field(default_factory=dict)


def segment_key(name: SegmentName, *, snapshot: bool = False) -> str:
    """Return the key of a segment, or of the snapshot of the chain up to it."""
    return f"{JOURNAL}/{name}{'.snapshot' if snapshot else ''}.jsonl"


def runs_in_journal(store: Store) -> Iterator[str]:
    """Yield the run that each readable segment belongs to, the newest first.

    Raises `FormatTooNew` if a newer version wrote one.
    """
    keys = [entry.key for entry in store.entries(JOURNAL) if entry.key.endswith(".jsonl")]
    for key in reversed(keys):
        _, header, _ = _read_header(store, key)
        if header is not None:
            yield header.run_id


def epochs_written(store: Store) -> dict[int, float]:
    """Return the epochs of all segments, each with the time of its latest write."""
    written: dict[int, float] = {}
    for entry in store.entries(JOURNAL):
        match = _NAME.fullmatch(entry.key.rsplit("/", 1)[-1])
        if match is not None:
            epoch = int(match[1])
            written[epoch] = max(entry.modified, written.get(epoch, 0.0))
    return written


def find_chain(
    store: Store,
    run_id: str | None,
    *,
    until: tuple[SegmentName, int] | None = None,
    unusable: Collection[str] = (),
) -> Chain:
    """Return the chain of segments that make up the journal of the run in `store`.

    With `until`, the chain ends in that segment after that many bytes, whatever else is stored.
    Snapshots whose keys are `unusable` are ignored.
    """
    chain = Chain()
    plain: dict[SegmentName, Segment] = {}
    snapshots: dict[SegmentName, Segment] = {}
    for entry in store.entries(JOURNAL):
        match = _NAME.fullmatch(entry.key.rsplit("/", 1)[-1])
        if match is None or entry.key in unusable:
            continue
        name = SegmentName(int(match[1]), int(match[2]))
        chain.last_index[name.epoch] = max(name.index, chain.last_index.get(name.epoch, -1))
        segment = _open_segment(store, entry.key, name, run_id, chain)
        if segment is not None:
            is_snapshot = _is_snapshot(segment, chain, is_named_so=bool(match[3]))
            (snapshots if is_snapshot else plain)[segment.header.name] = segment
    base = max((name for name in snapshots if until is None or name <= until[0]), default=None)
    chain.snapshot = snapshots[base] if base else None
    _follow(chain, plain, base, until)
    used = {segment.key for segment in (*chain.segments, *snapshots.values())}
    chain.stale += sorted(segment.key for segment in plain.values() if segment.key not in used)
    chain.stale += sorted(
        segment.key for name, segment in snapshots.items() if base and name < base
    )
    return chain


def _open_segment(
    store: Store, key: str, name: SegmentName, run_id: str | None, chain: Chain
) -> Segment | None:
    line, header, start = _read_header(store, key)
    if header is None:
        if not salvage(store.get(key).data.partition(b"\n")[2]):
            # Its creation was interrupted: records are written only after a durable header.
            chain.stale.append(key)
            return None
        # The header was damaged later; the records are still good.
        chain.damages.append(JournalDamage.at(name, 0, "the header is damaged", line))
        return Segment(key, Header(run_id=run_id or "", name=name, first=UNKNOWN))
    if run_id is not None and header.run_id != run_id:
        text = f"it belongs to another run, {header.run_id}"
        chain.damages.append(JournalDamage.at(name, 0, text, line))
        return None
    if header.name != name:
        chain.damages.append(JournalDamage.at(name, 0, f"it is segment {header.name}", line))
    return Segment(key, header, start)


def _is_snapshot(segment: Segment, chain: Chain, *, is_named_so: bool) -> bool:
    """Whether a segment is a snapshot, by its header, or by its name if that is unreadable."""
    header = segment.header
    if header.first == UNKNOWN:
        return is_named_so
    if (header.count is not None) != is_named_so:
        text = "it is a snapshot" if header.count is not None else "it is no snapshot"
        chain.damages.append(JournalDamage(f"{segment.key}@0", f"{segment.key}: {text}"))
    return header.count is not None


def _read_header(store: Store, key: str) -> tuple[bytes, Header | None, int]:
    """Return the first line of a segment, its header (None if damaged), and where that ends."""
    head = store.read(key, 0, _HEAD_BYTES)
    line = head.partition(b"\n")[0]
    start = len(line) + 1
    if not is_whole(line):
        # The header may be good and only the newline after it damaged.
        line = next((whole for whole in salvage(head) if head.startswith(whole)), line)
        start = len(line)
    try:
        return line, Header.from_line(line), start
    except FormatTooNew as error:
        raise FormatTooNew(f"{store.url}/{key}: {error.message}", hint=error.hint) from None
    except (Damaged, KeyError, TypeError, ValueError):
        return line, None, 0


def _follow(
    chain: Chain,
    plain: Mapping[SegmentName, Segment],
    base: SegmentName | None,
    until: tuple[SegmentName, int] | None,
) -> None:
    """Walk back from the newest segment along the headers to the snapshot or the beginning."""
    names = sorted(name for name in plain if base is None or name > base)

    def before(name: SegmentName) -> SegmentName | None:
        return max((earlier for earlier in names if earlier < name), default=None)

    here: SegmentName | None
    limit: int | None
    here, limit = until or (names[-1] if names else None, None)
    while here is not None and (base is None or here > base):
        segment = plain.get(here)
        if segment is None:
            chain.damages.append(JournalDamage.at(here, 0, "the segment is missing"))
            limit, here = None, before(here)
            continue
        segment.limit = limit
        chain.segments.append(segment)
        if segment.header.first == UNKNOWN:  # the best guess is the previous one by name
            limit, here = None, before(here)
        else:
            limit, after = segment.header.after_bytes, segment.header.after
            if after is not None and after >= here:
                text = f"it claims to come after {after}"
                chain.damages.append(JournalDamage.at(here, 0, text))
                limit, after = None, before(here)
            here = after
    chain.segments.reverse()


class SegmentReader:
    """Reads one segment, and notes its damage and where its good part ends.

    Attributes:
        good_bytes: Where the last good record ends.
        torn: Bytes after that which are no record: the tail of an interrupted write.
    """

    def __init__(self, store: Store, segment: Segment) -> None:
        self._store, self._segment = store, segment
        self.good_bytes = 0
        self.torn = b""
        self.damages: list[JournalDamage] = []

    def records(self) -> Iterator[Record]:
        segment = self._segment
        data = self._store.get(segment.key).data
        if segment.limit is not None:
            if len(data) < segment.limit:
                self._note(len(data), f"it ends {segment.limit - len(data)} bytes early", b"")
            data = data[: segment.limit]
        size, find, from_line = (
            len(data),
            data.find,
            Record.from_line,
        )  # looked up once, not per line
        start = segment.start if segment.start is not None else find(b"\n") + 1
        self.good_bytes = start
        while start < size:
            end = find(b"\n", start)
            record = from_line(data[start:end]) if end >= 0 else None
            if record is None:
                start = yield from self._resume(data, start)
                continue
            self.good_bytes = start = end + 1
            yield record

    def _resume(self, data: bytes, start: int) -> Generator[Record, None, int]:
        """Skip unreadable bytes from `start` to the next good record, and note the damage."""
        position = start
        while (end := data.find(b"\n", position)) >= 0:
            records = _salvaged(data[position:end])
            if records:
                self._note(start, "bytes in the middle are damaged", data[start:end])
                yield from records
                self.good_bytes = end + 1
                return end + 1
            position = end + 1
        if self._segment.limit is None and self._segment.header.count is None:
            self.torn = data[start:]
            return len(data)
        # All of this was acknowledged, as the next header says, or as it is a snapshot.
        self._note(start, "bytes at the end are damaged", data[start:])
        yield from _salvaged(data[position:])
        return len(data)

    def _note(self, offset: int, what: str, remains: bytes) -> None:
        name = self._segment.header.name
        self.damages.append(JournalDamage.at(name, offset, what, remains))


def _salvaged(data: bytes) -> list[Record]:
    records = [Record.from_line(line) for line in salvage(data)]
    return [record for record in records if record is not None]
