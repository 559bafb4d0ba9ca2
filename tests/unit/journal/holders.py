"""What the tests of lease and journal share: a clock, owners, writers, stores that fail on cue."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError, StoreBusy
from holdfast.journal.journal import Journal
from holdfast.journal.lease import LEASES, Lease, take_lease
from holdfast.journal.owner import Owner
from holdfast.journal.replay import read_journal
from holdfast.journal.segments import JOURNAL, Record
from holdfast.storage.base import ALWAYS, Condition, Entry, Store
from holdfast.storage.local.disk import PosixDisk
from holdfast.storage.local.store import LocalStore
from holdfast.storage.memory import MemoryStore
from holdfast.testing.faults import ALLOW, Refuse, Step, TappedDisk, Verdict
from tests.clocks import FakeClock
from tests.patience import PATIENCE_S

RUN_ID = "r1"
LIFE_S = 30.0


def someone_elsewhere(host: str = "gpu-3", pid: int = 4121) -> Owner:
    """Return a process of another machine, whose death cannot be proven here."""
    return Owner(host, pid, started=77.0, place="another-boot/pid:[1]", user="ann")


@dataclass
class Faults:
    """Which journal writes and lease looks of a store fail; counted from 1, per kind.

    Attributes:
        fails: Journal writes that fail although the bytes are stored by then.
        blind: Looks for the next lease that fail.
        gate: While it is set, a journal write waits for it; `entered` is set once one does.
    """

    fails: set[int] = field(default_factory=set)
    blind: set[int] = field(default_factory=set)
    gate: threading.Event | None = None
    entered: threading.Event = field(default_factory=threading.Event)
    writes: int = 0
    looks: int = 0

    def after_write(self, what: str) -> None:
        self.writes += 1
        nth = self.writes
        if self.gate is not None:
            self.entered.set()
            assert self.gate.wait(PATIENCE_S), "the test never opened the gate"
        if nth in self.fails:
            raise StoreBusy(f"cannot write {what}: the line is noisy")

    def before_look(self, key: str) -> None:
        self.looks += 1
        if self.looks in self.blind:
            raise StoreBusy(f"cannot look at {key}: the line is noisy")


class FaultyMemory(MemoryStore):
    """An object store whose puts of segments may arrive and yet be reported as failed."""

    def __init__(self, faults: Faults) -> None:
        super().__init__()
        self.faults = faults

    def put(self, key: str, data: bytes, condition: Condition = ALWAYS) -> str:
        version = super().put(key, data, condition)
        if key.startswith(JOURNAL) and ".snapshot" not in key:
            self.faults.after_write(key)
        return version

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        if prefix == LEASES:
            self.faults.before_look(prefix)
        yield from super().entries(prefix)


class _SyncTap:
    """Applies the faults to every sync of a journal file, whose bytes are written by then."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def judge(self, step: Step) -> Verdict:
        if step.verb == "sync" and f"/{JOURNAL}/" in step.path and ".hf-tmp" not in step.path:
            try:
                self._faults.after_write(step.path)
            except StoreBusy:
                return Refuse(OSError(5, "Input/output error", step.path))
        return ALLOW


class FaultyLocal(LocalStore):
    """A disk whose journal syncs may fail after the bytes were written."""

    def __init__(self, root: Path, faults: Faults) -> None:
        super().__init__(root, TappedDisk(PosixDisk(), _SyncTap(faults)))
        self.faults = faults

    def names(self, folder: str) -> list[str]:
        self.faults.before_look(folder)
        return super().names(folder)


@dataclass
class Writer:
    """The holder of a lease with its journal, and the records it had when it was taken."""

    lease: Lease
    journal: Journal
    replayed: list[Record]

    def note(self, *texts: str) -> list[int]:
        """Record one event for each text, one write after the other."""
        return [self.journal.record("note", {"text": text}) for text in texts]

    def leave(self) -> None:
        self.journal.close()
        self.lease.release(self.journal.next_seq)


def take(store: Store, clock: FakeClock, *, segment_bytes: int = 1 << 20) -> Writer:
    """Take the run as a new driver would, after the last one's lease has run out."""
    clock.time += LIFE_S + 1
    lease = take_lease(store, run="run 'r'", clock=clock, time_to_live_s=LIFE_S)
    journal = Journal(store, lease, RUN_ID, clock=clock, segment_bytes=segment_bytes)
    return Writer(lease, journal, list(journal.replay()))


def texts(records: Iterable[Record]) -> list[str]:
    return [text for record in records for text in texts_of(record)]


def texts_of(record: Record) -> list[str]:
    """Return what a record says: a note is one text, a summary is many."""
    texts: list[str] = record.data["all"] if record.kind == "summary" else [record.data["text"]]
    return texts


def summarise(records: Iterable[Record]) -> list[tuple[str, dict[str, Any]]]:
    """Reduce a journal to one event that says the same."""
    return [("summary", {"all": texts(records)})]


def is_accepted(writer: Writer, text: str) -> bool:
    """Return whether a note could be recorded."""
    try:
        writer.note(text)
    except HoldfastError:
        return False
    return True


def at_rest(store: Store) -> list[str]:
    """Return the records that a reader without a lease gets; nothing may be damaged."""
    records, replay = read_journal(store, RUN_ID)
    assert replay.damages == []
    return texts(records)


def segment_keys(store: Store) -> list[str]:
    return [entry.key for entry in store.entries(JOURNAL)]
