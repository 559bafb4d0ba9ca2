"""A run that this process may write to: it holds the lease and has replayed the journal.

The order matters everywhere: journal before act, data before manifest, manifest before
acknowledgement, commit of the new before deletion of the old.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self, cast

from holdfast.checkpoint.manifests import manifest_directories, read_manifests
from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.control.record.accounts import Account, Compaction
from holdfast.control.record.checkpoints import Checkpoints
from holdfast.control.record.identity import (
    RUN_KEY,
    RunIdentity,
    create_identity,
    find_identity,
    must_be_kind,
    restore_identity,
)
from holdfast.control.record.shapes import taken_for_damage
from holdfast.control.study.tail import PackedTail, StudyTail
from holdfast.core.checkpoint.manifest import Manifest
from holdfast.core.checkpoint.record import Event, Kept, RunRecord
from holdfast.core.run.history import RunHistory
from holdfast.core.run.validation import ValidationLedger
from holdfast.errors import Damaged, LeaseLost, RunMissing, StoreError
from holdfast.journal.journal import Journal, Ticket
from holdfast.journal.lease import TIME_TO_LIVE_S, Heartbeat, Lease, take_lease
from holdfast.journal.segments import JournalDamage
from holdfast.storage.base import Store
from holdfast.storage.retry import begin_run, end_run

log = logging.getLogger(__name__)

QUARANTINE = ".holdfast/quarantine"
URGENT_S = 2.0  # for each call to storage after Ctrl+C was pressed twice
_NUMBERED = re.compile(r"checkpoint_(\d+)")


class OpenRun(Checkpoints):
    """The journal and checkpoints of a run, for the one driver that holds it.

    Not to be called from several threads at once. The other accounts of its journal depend on its
    kind: see `OpenTrainingRun` and `OpenStudy`.

    Attributes:
        kind: What `run.json` calls runs of this class, None for any kind.
        lost: Set if another driver has taken the run.
    """

    kind: ClassVar[str | None] = None
    # All accounts of the journal besides `RunRecord`: compaction drops what none of them keeps.
    _compacted: ClassVar[Sequence[Callable[[], Account]]] = ()

    @classmethod
    def open(
        cls,
        store: Store,
        *,
        name: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
        time_to_live_s: float = TIME_TO_LIVE_S,
        beats: bool = True,
        waits: bool = False,
        patient: bool = True,
    ) -> Self:
        """Become the one writer of the run in `store`, which is created if it does not exist.

        It must be of this class's kind. `OpenRun.open` takes any kind, and returns the subclass for
        it; a new run is a training run then.

        A thread renews the lease until the run is closed; with `beats=False` the caller does. With
        `waits`, a driver on another machine has the time of its lease to show that it is alive.

        An open run waits for storage that does not answer without limit, except with
        `patient=False`, for commands that only maintain a run.

        Raises `RunHeld` if a live driver holds it, `FormatTooNew` if a newer version wrote it,
        `CannotResume` if it is of the other kind.
        """
        store.probe(writable=True)
        name = name or os.path.basename(store.url.rstrip("/"))
        problem = None
        try:
            identity, problem = find_identity(store)
        except RunMissing:
            identity = create_identity(store, name=name, kind=cls.kind or "train", clock=clock)
        must_be_kind(store, identity, cls.kind)
        lease = take_lease(
            store,
            run=f"run {identity.name!r} at {store.url}",
            clock=clock,
            time_to_live_s=time_to_live_s,
            waits=waits,
        )
        try:
            if problem is not None:
                log.warning("%s/%s is written again: %s", store.url, RUN_KEY, problem)
                restore_identity(store, identity)
            run = cls._of_kind(identity.kind)(store, identity, lease, clock)
        except BaseException:
            _release_quietly(lease)
            raise
        if patient:
            run.wait_without_end("what is to be saved waits")
        if beats:
            run.heartbeat()
        return run

    @classmethod
    def _of_kind(cls, kind: str) -> type[Self]:
        if cls.kind is not None:
            return cls
        return cast(type[Self], OpenStudy if kind == OpenStudy.kind else OpenTrainingRun)

    def __init__(
        self,
        store: Store,
        identity: RunIdentity,
        lease: Lease,
        clock: Clock,
        *,
        accounts: Sequence[Account] = (),
    ) -> None:
        super().__init__(store, identity.run_id, lease.epoch, RunRecord(), clock)
        self.identity, self.lease = identity, lease
        self.journal = Journal(store, lease, identity.run_id, clock=clock)
        self.lost: LeaseLost | None = None
        self._accounts = accounts
        self._heartbeat: Heartbeat | None = None
        self._compaction = Compaction(self.journal, [RunRecord, *self._compacted])
        for event in self.journal.replay():
            with taken_for_damage(store.url, event.kind, event.data):
                self._apply(event.kind, event.data)
        self._begin_epoch()

    @property
    def has_lost_records(self) -> bool:
        """Whether records of the journal are gone, so that checkpoints may be missing from it."""
        return any(damage.lost for damage in self.journal.damages)

    @property
    def has_newly_lost_records(self) -> bool:
        """Whether records are gone, and the checkpoints they were about are not recorded again."""
        return any(damage.lost for damage in self._new_damage())

    def _new_damage(self) -> list[JournalDamage]:
        noted = self.record.known_damage
        return [damage for damage in self.journal.damages if damage.identity not in noted]

    def _begin_epoch(self) -> None:
        """Journal that this epoch has begun, after the commits that the journal lacks.

        The epoch makes everything else that an earlier one left stale. Damage is noted after that:
        until then the next driver, too, adopts every commit it finds. So a crash anywhere in
        between costs nothing. Each record is durable before the next is written: of several records
        in one write, a power cut may leave the last without the first, which looks like damage.
        """
        records_lost = self.has_newly_lost_records
        adopted = unrecorded_commits(
            self.store, self.identity, self.record, records_lost=records_lost
        )
        first = first_free_number(self.store, self.record, adopted, records_lost=records_lost)
        owner = str(self.lease.record.owner)
        for damage in self._new_damage():
            log.warning("the journal of %s is damaged: %s", self.store.url, damage.what)
            if damage.remains:
                self.store.put(f"{QUARANTINE}/journal-{damage.identity}", damage.remains)
        for manifest in adopted:
            self._record([("checkpoint_committed", Kept.of(manifest).to_data())])
        opened = {"epoch": self.lease.epoch, "owner": owner, "next_number": first}
        self._record([("run_opened", opened)])

    def note_damage(self) -> None:
        """Journal that the damage of the journal is known, and its consequences are recorded."""
        events = [
            (
                "journal_damaged",
                {"identity": damage.identity, "what": damage.what, "lost": damage.lost},
            )
            for damage in self._new_damage()
        ]
        if events:
            self._record(events)

    # ------------------------------------------------------------------ upkeep

    def heartbeat(self) -> None:
        """Keep the lease alive from now on."""
        self._heartbeat = Heartbeat(self.lease, lambda: self.journal.next_seq, self._on_lost)
        self._heartbeat.start()

    def _on_lost(self, lost: LeaseLost) -> None:
        self.lost = lost
        log.error("%s", lost)

    def compact(self) -> None:
        """Shorten the journal to its current state, so that it is cheap to read later.

        Happens by itself in a thread whenever the journal has grown long. Not while there is damage
        that is not noted: a compacted journal does not show it.
        """
        if not self._new_damage():
            self._compaction.run()

    def compact_soon(self) -> None:
        """Shorten the journal in a thread, if there is something to shorten."""
        if not self._new_damage():
            self._compaction.begin()

    def wait_without_end(self, meanwhile: str) -> None:
        """Wait for storage that does not answer without limit, until the run is closed.

        `meanwhile` says in the log what goes on and what waits.
        """
        begin_run(self.store, lambda: f"{meanwhile}; {self._what_is_durable()}")

    def hurry(self, kind: type[BaseException] | None = None) -> None:
        """Wait for storage only for a limited time again; from any thread or signal handler.

        The run may end because storage does not answer, so its end must not wait for that too. With
        a `KeyboardInterrupt` as `kind` (Ctrl+C was pressed twice) it waits even less.
        """
        is_urgent = kind is not None and issubclass(kind, KeyboardInterrupt)
        end_run(self.store, URGENT_S if is_urgent else float("inf"))

    def _what_is_durable(self) -> str:
        checkpoints = list(self.record.kept.values())  # a copy: another thread may ask for this
        whole = [checkpoint for checkpoint in checkpoints if not checkpoint.problems]
        newest = max(whole, key=lambda checkpoint: checkpoint.number, default=None)
        return f"nothing after {newest.directory} is durable" if newest else "nothing is saved yet"

    def close(self) -> None:
        """Close the journal and release the lease, so that the next driver can begin at once.

        Raises what closed the journal if it is closed already; the lease is released in any case.
        """
        try:
            self._close()
        finally:
            end_run(self.store)

    def _close(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()
        self._compaction.join()
        if self.lost is None:
            try:
                self._record([("run_closed", {})])
                self.journal.close()
            except LeaseLost:
                raise
            except BaseException:
                _release_quietly(self.lease)  # or this very process could not open it again soon
                raise
            self.lease.release(self.journal.next_seq)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
            return
        self.hurry(kind)
        try:
            self.close()
        except StoreError as problem:  # the exception that is being raised says more
            log.warning("the run could not be closed properly: %s", problem)

    def _apply(self, kind: str, data: Mapping[str, Any]) -> None:
        self.record.apply(kind, data)
        for account in self._accounts:
            account.apply(kind, data)

    def note(self, kind: str, data: dict[str, Any]) -> None:
        """Journal one event durably, then apply it."""
        self._record([(kind, data)])

    def _record_soon(self, events: Iterable[Event]) -> None:
        self._record(events)

    def _settle(self) -> None:
        pass  # nothing is recorded without waiting

    def append(self, kind: str, data: dict[str, Any]) -> Ticket:
        """Journal one event and apply it at once; it is durable when the ticket says so.

        If it is refused, nothing more can be journaled, because it was applied.
        """
        ticket = self.journal.append(kind, data, believed=True)
        self._apply(kind, data)
        return ticket

    def _record(self, events: Iterable[Event]) -> None:
        tickets = [(self.journal.append(kind, data), kind, data) for kind, data in events]
        for ticket, _, _ in tickets:
            ticket.wait()
        for _, kind, data in tickets:
            self._apply(kind, data)
        if self.journal.wants_compaction():
            self.compact_soon()


def _release_quietly(lease: Lease) -> None:
    try:
        lease.release(lease.record.journal_next)
    except StoreError as error:
        log.warning("the lease could not be released and has to run out: %s", error)


class OpenTrainingRun(OpenRun):
    """A training run that this process may write to.

    Attributes:
        history: Its attempts and how it came out.
        validations: Which checkpoints are to be validated, and their verdicts.
    """

    kind = "train"
    _compacted = (RunHistory, ValidationLedger)

    def __init__(self, store: Store, identity: RunIdentity, lease: Lease, clock: Clock) -> None:
        self.history, self.validations = RunHistory(), ValidationLedger()
        super().__init__(store, identity, lease, clock, accounts=(self.history, self.validations))
        self.note_damage()


class OpenStudy(OpenRun):
    """A study that this process may write to.

    Call `note_damage` once what its trials have saved is recorded.

    Attributes:
        tail: Its last state and what happened since.
    """

    kind = "tune"
    _compacted = (PackedTail,)

    def __init__(self, store: Store, identity: RunIdentity, lease: Lease, clock: Clock) -> None:
        self.tail = StudyTail()
        super().__init__(store, identity, lease, clock, accounts=(self.tail,))


open_run = OpenRun.open


# ---------------------------------------------------------------------- what the journal lacks


def unrecorded_commits(
    store: Store, identity: RunIdentity, record: RunRecord, *, records_lost: bool
) -> list[Manifest]:
    """Return the checkpoints whose driver died between the manifest and the journal.

    If the journal has lost records, every manifest counts.
    """
    recorded = {checkpoint.directory for checkpoint in record.kept.values()}
    commits = []
    for directory, manifest in read_manifests(store, recorded):
        if isinstance(manifest, Damaged):
            log.warning("%s is not used: %s", directory, manifest.message)
        elif manifest.run_id != identity.run_id:
            log.warning("%s is not used: it belongs to run %s", directory, manifest.run_id)
        elif records_lost or record.is_current(manifest):
            commits.append(manifest)
    return sorted(commits, key=lambda manifest: manifest.number)


def first_free_number(
    store: Store, record: RunRecord, adopted: Iterable[Manifest], *, records_lost: bool
) -> int:
    """Return a number that was certainly never given out, whatever the journal has lost."""
    used = {record.next_number - 1, *(manifest.number for manifest in adopted)}
    if records_lost:
        names = (*store.folders(), *manifest_directories(store))
        used |= {int(match[1]) for name in names if (match := _NUMBERED.fullmatch(name))}
    return max(used) + 1
