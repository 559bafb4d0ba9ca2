"""The lease on a run: one writer at a time, each with an epoch one higher than the last.

    .holdfast/lease/{epoch}.json            the holder of the epoch; created once, never rewritten
    .holdfast/lease/{epoch}-{token}.json    its heartbeats and its release; written by it alone

Taking the run means creating the first of these for the next epoch, which the store allows only
once. Each lease has a new token, so heartbeats need no lock and cannot overwrite those of another
holder, wherever the run's folder is by then. An epoch is over when a later one is taken, or when
the object with its token is missing: then the folder was moved or deleted, and what is in its
place belongs to another driver.

That makes a fence without a clock: a writer first writes, then checks that its epoch is not over,
and only then acknowledges. A successor first creates its object and then reads the journal. So
everything a replaced writer wrote was either there to be read, or is not acknowledged. Expiry only
decides when another driver may try.
"""

from __future__ import annotations

import contextlib
import logging
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import (
    Conflict,
    Damaged,
    FormatTooNew,
    LeaseLost,
    ObjectMissing,
    RunHeld,
    StoreError,
)
from holdfast.journal.owner import Owner, held_error, this_process
from holdfast.journal.segments import epochs_written
from holdfast.storage.base import IF_ABSENT, Store
from holdfast.storage.records import fit, known_format, seal, unseal

log = logging.getLogger(__name__)

FORMAT = 1
LEASES = ".holdfast/lease"
TIME_TO_LIVE_S = 30.0
BEATS_PER_LIFE = 3
BEATS_WATCHED = 1.5  # more than one, so that a late beat is not missed
TRIES_MAX = 5

_NAME = re.compile(r"(\d{8,})(-[0-9a-f]+)?\.json")
# Tokens that this process has released, even if the store did not record it.
_RELEASED: set[str] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """The stored record of one epoch.

    Attributes:
        renewed: The time of the last heartbeat.
        released: Whether the holder has released the run.
        journal_next: The number of the journal's next record; all below were acknowledged, so a
            journal that ends earlier has lost records.
        beats: The number of heartbeats; 0 in the object that names the holder. None in leases of
            old versions, which keep everything in that object.
    """

    epoch: int
    owner: Owner
    token: str
    taken: float
    renewed: float
    time_to_live_s: float
    released: bool = False
    journal_next: int = 0
    beats: int | None = 0

    def to_record(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "epoch": self.epoch,
            "owner": self.owner.to_record(),
            "token": self.token,
            "taken": self.taken,
            "renewed": self.renewed,
            "time_to_live_s": self.time_to_live_s,
            "released": self.released,
            "journal_next": self.journal_next,
            "beats": self.beats,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> LeaseRecord:
        if known_format(dict(record)) > FORMAT:
            raise FormatTooNew(
                f"lease format {record['format']}, this version reads up to {FORMAT}",
                hint="use the version of Holdfast that wrote it, or a newer one",
            )
        return fit({"beats": None, **record}, cls)

    def to_bytes(self) -> bytes:
        return seal(self.to_record()) + b"\n"

    def expires(self) -> float:
        return self.renewed + self.time_to_live_s


def lease_key(epoch: int) -> str:
    """Return the key of the object that names the holder of an epoch."""
    return f"{LEASES}/{epoch:08d}.json"


def beat_key(epoch: int, token: str) -> str:
    """Return the key of the heartbeats of an epoch's holder."""
    return f"{LEASES}/{epoch:08d}-{token}.json"


def newest_epoch(store: Store) -> int:
    """Return the highest epoch ever taken, 0 if none was.

    Epochs in the journal count too, so that one whose lease is gone is not taken twice.
    """
    return max((*_epochs_taken(_names(store)), *epochs_written(store)), default=0)


def read_lease(store: Store, epoch: int) -> LeaseRecord | None:
    """Return the record of an epoch; None if it is damaged, so that the holder is unknown.

    Both objects name the holder, but only the one with heartbeats tells whether it lives.
    """
    taken = _read_record(store, lease_key(epoch), epoch)
    if taken is not None and taken.beats is None:
        return taken
    if taken is None or taken.beats:
        keys = [f"{LEASES}/{name}" for name in _names(store) if _is_beat_of(epoch, name)]
        beat = _read_record(store, keys[0], epoch) if len(keys) == 1 else None
        return beat if beat is not None and beat.beats else None
    try:
        beat = _record_at(store, beat_key(epoch, taken.token), epoch)
    except ObjectMissing:
        # There was no heartbeat yet, unless the journal has records of this epoch.
        return None if epoch in epochs_written(store) else taken
    is_own = beat is not None and beat.token == taken.token and beat.beats
    return beat if is_own else None


def _read_record(store: Store, key: str, epoch: int) -> LeaseRecord | None:
    with contextlib.suppress(ObjectMissing):
        return _record_at(store, key, epoch)
    return None


def _record_at(store: Store, key: str, epoch: int) -> LeaseRecord | None:
    """Return the record in an object; None if it is damaged. Raises `ObjectMissing`."""
    data = store.get(key).data
    try:
        record = LeaseRecord.from_record(unseal(data.removesuffix(b"\n")))
    except Damaged:
        return None
    return record if record.epoch == epoch else None  # else it is that of another epoch


def _names(store: Store) -> list[str]:
    """Return the names of all lease objects.

    Also used to look for a single one: an NFS client may answer from its cache that a name does not
    exist, but asks the server before it lists a folder.
    """
    if store.local is not None:
        return store.local.names(LEASES)
    return [entry.key.rsplit("/", 1)[-1] for entry in store.entries(LEASES)]


def _epochs_taken(names: Iterable[str]) -> Iterator[int]:
    for name in names:
        match = _NAME.fullmatch(name)
        if match is not None and match[2] is None:
            yield int(match[1])


def _is_beat_of(epoch: int, name: str) -> bool:
    match = _NAME.fullmatch(name)
    return match is not None and match[2] is not None and int(match[1]) == epoch


def take_lease(
    store: Store,
    *,
    run: str,
    clock: Clock = SYSTEM_CLOCK,
    owner: Owner | None = None,
    time_to_live_s: float = TIME_TO_LIVE_S,
    waits: bool = False,
) -> Lease:
    """Become the one writer of the run in `store`, or raise `RunHeld` that names the holder.

    Raises at once if the holder is known to live. A holder that is proven dead, or whose lease has
    expired, is replaced. With `waits`, wait for the expiry if the holder is on another machine and
    silent: that machine may be gone, which cannot be proven from here.
    """
    owner = owner or this_process()
    if not store.fences:
        log.warning(
            "%s cannot ensure that only one driver writes: it has no conditional put", store.url
        )
    for _ in range(TRIES_MAX):
        newest = newest_epoch(store)
        holder = _Holder.of(store, newest) if newest else None
        is_silent = holder is not None and waits and holder.await_silence(run, clock, store)
        if holder is not None and not is_silent:
            holder.must_be_gone(run, clock, store)
        now = clock.now()
        record = LeaseRecord(
            epoch=newest + 1,
            owner=owner,
            token=secrets.token_hex(8),
            taken=now,
            renewed=now,
            time_to_live_s=time_to_live_s,
            journal_next=holder.record.journal_next if holder and holder.record else 0,
        )
        try:
            store.put(lease_key(record.epoch), record.to_bytes(), IF_ABSENT)
            record = replace(record, beats=1)
            store.put(beat_key(record.epoch, record.token), record.to_bytes())
        except Conflict:
            continue  # another driver was faster
        except StoreError:
            _give_back(store, record)
            raise
        return Lease(store, record, run, clock, replaced=holder.record if holder else None)
    raise RunHeld(
        f"{run} is taken by several drivers at once: {TRIES_MAX} times another one was faster",
        hint="make sure that only one driver is started for it",
    )


def _give_back(store: Store, record: LeaseRecord) -> None:
    """Release a lease whose put failed, because it may have been stored all the same."""
    _RELEASED.add(record.token)
    with contextlib.suppress(StoreError):
        stored = read_lease(store, record.epoch)
        if stored is not None and stored.token == record.token:
            released = replace(record, released=True, beats=2)
            store.put(beat_key(record.epoch, record.token), released.to_bytes())


@dataclass(frozen=True, slots=True)
class _Holder:
    """The last holder of the run; `record` is None if it cannot be read."""

    record: LeaseRecord | None
    modified: float
    epoch: int

    @classmethod
    def of(cls, store: Store, epoch: int) -> _Holder:
        record, modified = read_lease(store, epoch), 0.0
        if record is None:
            prefix = f"{LEASES}/{epoch:08d}"
            times = [
                entry.modified for entry in store.entries(LEASES) if entry.key.startswith(prefix)
            ]
            modified = max(times, default=epochs_written(store).get(epoch, 0.0))
        return cls(record, modified, epoch)

    def must_be_gone(self, run: str, clock: Clock, store: Store) -> None:
        """Return if the holder may be replaced, else raise `RunHeld`."""
        record = self.record
        if record is None:
            left_s = self.modified + TIME_TO_LIVE_S - clock.now()
            if left_s > 0:
                raise RunHeld(
                    f"{run} may be held: the lease of epoch {self.epoch} cannot be read",
                    hint=f"wait {left_s:.0f} s until it has certainly expired",
                )
            log.warning(
                "taking over %s although the lease of epoch %d cannot be read: it is damaged",
                run,
                self.epoch,
            )
            return
        if record.released or record.token in _RELEASED or record.owner.is_proven_dead():
            return
        left_s = record.expires() - clock.now()
        if left_s <= 0 and not self._beats(store, record, clock):
            return
        latest = read_lease(store, self.epoch) or record  # there may be a new heartbeat
        age_s = clock.now() - latest.renewed
        raise held_error(
            run,
            latest.owner,
            age_s=age_s,
            left_s=latest.expires() - clock.now(),
            is_silent=age_s > latest.time_to_live_s / BEATS_PER_LIFE * BEATS_WATCHED,
            has_beaten=latest.renewed != record.renewed,
        )

    def await_silence(self, run: str, clock: Clock, store: Store) -> bool:
        """Wait for a heartbeat of a holder on another machine.

        Returns True if it was silent for a whole lease by our own clock.
        """
        record = self.record
        if record is None or record.released or record.owner.place == this_process().place:
            return False
        life_s = record.time_to_live_s
        wait_s = min(record.expires() - clock.now(), life_s)
        if wait_s > 0:
            log.warning(
                "%s was held by %s, which may be gone: waiting up to %.0f s for a sign of life",
                run, record.owner, wait_s,
            )  # fmt: skip
        waited_s = 0.0
        while waited_s < wait_s:
            pause_s = min(wait_s - waited_s, life_s / BEATS_PER_LIFE)
            clock.sleep(pause_s)
            waited_s += pause_s
            latest = read_lease(store, record.epoch)
            if latest is None or latest.released or latest.renewed != record.renewed:
                return False
        return waited_s >= life_s

    @staticmethod
    def _beats(store: Store, record: LeaseRecord, clock: Clock) -> bool:
        """Whether a lease that looks expired is still renewed, as the other clock may be behind."""
        if record.owner.place == this_process().place:
            return (
                False  # the same clock; the host's name would not prove it, containers share names
            )
        clock.sleep(record.time_to_live_s / BEATS_PER_LIFE * BEATS_WATCHED)
        latest = read_lease(store, record.epoch)
        return latest is not None and latest.renewed != record.renewed


class Lease:
    """The right to write to a run until another driver takes the next epoch."""

    def __init__(
        self,
        store: Store,
        record: LeaseRecord,
        run: str,
        clock: Clock,
        replaced: LeaseRecord | None,
    ) -> None:
        self._store, self._run, self._clock = store, run, clock
        self._record = record
        self._beat = beat_key(record.epoch, record.token)
        self._lock = threading.Lock()
        self._checked_at = record.taken
        self.replaced = replaced

    @property
    def epoch(self) -> int:
        return self._record.epoch

    @property
    def record(self) -> LeaseRecord:
        return self._record

    def check(self) -> None:
        """Raise `LeaseLost` if this epoch is over.

        Call it after a write and before the write is acknowledged: see the module's docstring.
        """
        now, names = self._clock.now(), _names(self._store)
        newest = max(_epochs_taken(names), default=0)
        if newest > self.epoch:
            successor = None
            with contextlib.suppress(FormatTooNew, StoreError):  # its existence is enough
                successor = read_lease(self._store, newest)
            by = f" by {successor.owner}" if successor else ""
            raise LeaseLost(
                f"{self._run} was taken over{by}; epoch {self.epoch} of this driver is over",
                hint="nothing: the other driver carries on from the last acknowledged checkpoint",
            )
        if self._beat.rpartition("/")[2] not in names:
            raise LeaseLost(
                f"{self._run} is gone: what this driver has written was moved or deleted, and"
                " whatever is in its place now belongs to another driver",
                hint="if it was moved, continue it at its new place",
            )
        self._checked_at = now

    def check_after_sleep(self) -> None:
        """Raise `LeaseLost` if this epoch is over; checks only if the last check is long ago.

        Heartbeats check more often than every half lease. So a process that calls this before each
        action notices when it has been suspended, and otherwise pays nothing. A failed check is
        ignored: nothing is acknowledged without another one.
        """
        if abs(self._clock.now() - self._checked_at) < self._record.time_to_live_s / 2:
            return
        try:
            self.check()
        except StoreError as error:
            log.debug("could not check the lease of %s: %s", self._run, error)

    def renew(self, journal_next: int) -> None:
        """Write a heartbeat, with how far the journal is acknowledged."""
        with self._lock:
            self.check()  # or we would write to what may be another driver's run
            self._record = replace(
                self._record, renewed=self._clock.now(), journal_next=journal_next
            )
            self._write()
        self.check()

    def release(self, journal_next: int) -> None:
        """Release the run, so that the next driver need not wait; does nothing if it is lost."""
        with self._lock:
            _RELEASED.add(self._record.token)
            try:
                self.check()
            except LeaseLost as lost:
                log.debug("there is nothing to release: %s", lost)
                return
            self._record = replace(
                self._record,
                renewed=self._clock.now(),
                journal_next=journal_next,
                released=True,
            )
            self._write()

    def _write(self) -> None:
        self._record = replace(self._record, beats=(self._record.beats or 0) + 1)
        self._store.put(self._beat, self._record.to_bytes())


class Heartbeat:
    """Renews a lease in its own thread until it is stopped or the lease is lost."""

    def __init__(
        self, lease: Lease, progress: Callable[[], int], on_lost: Callable[[LeaseLost], None]
    ) -> None:
        self._lease, self._progress, self._on_lost = lease, progress, on_lost
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="holdfast-lease", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _beat(self) -> None:
        period_s = self._lease.record.time_to_live_s / BEATS_PER_LIFE
        while not self._stop.wait(period_s):
            try:
                self._lease.renew(self._progress())
            except LeaseLost as lost:
                self._on_lost(lost)
                return
            except StoreError as error:
                # The fence keeps the run safe without a renewal; the next beat tries again.
                log.warning("could not renew the lease: %s", error)
