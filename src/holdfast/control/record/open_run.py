"""A run that this process may write to: lease held, journal replayed, checkpoints accounted for.

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
URGENT_S = 2.0  # for each call of somebody who leaves on the spot
_NUMBERED = re.compile(r"checkpoint_(\d+)")


class OpenRun(Checkpoints):
    """The checkpoints of a run, for the one driver that holds it.

    Not to be called from several threads at once. What else its journal amounts to depends on its
    kind: see `OpenTrainingRun` and `OpenStudy`.

    Attributes:
        kind: What `run.json` calls runs of this class, None for whichever it is.
        lost: Set if another driver has taken the run.
    """

    kind: ClassVar[str | None] = None
    # Whoever compacts a journal must know all that it amounts to, or the rest of it is lost.
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
        """Become the one writer of the run in `store`, which is made if it does not exist.

        It must be of this class's kind. `OpenRun.open` takes whichever it is, and returns it as
        that; a new one is a training run then.

        The lease is renewed from a thread of its own until the run is closed, unless `beats` is
        false; then the caller renews it. With `waits`, a driver on another machine gets its lease's
        time to show that it lives.

        Storage that does not answer is waited for without end once the run is open, unless
        `patient` is false, for those who only look after it.

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
                log.warning("%s/%s is made anew: %s", store.url, RUN_KEY, problem)
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
                self._take_in(event.kind, event.data)
        self._begin_epoch()

    @property
    def has_lost_records(self) -> bool:
        """Whether records of the journal are gone: what it does not know may be what it forgot."""
        return any(damage.lost for damage in self.journal.damages)

    @property
    def is_forgetful(self) -> bool:
        """Whether records are gone, and what was saved under them is yet to be taken in."""
        return any(damage.lost for damage in self._new_damage())

    def _new_damage(self) -> list[JournalDamage]:
        known = self.record.known_damage
        return [damage for damage in self.journal.damages if damage.identity not in known]

    def _begin_epoch(self) -> None:
        """Say in the journal that this epoch has begun, with everything that was found out.

        What was found at rest comes first, then the epoch, which makes all else that an earlier one
        left stale. Damage is noted as known after that: until then the next driver, too, takes in
        whatever it finds. So an opening that is cut off anywhere costs nothing. Each record is
        durable before the next is written: of one write with several, a power cut may leave the
        last without the first, which looks like damage.
        """
        forgetful = self.is_forgetful
        adopted = unrecorded_commits(self.store, self.identity, self.record, forgetful=forgetful)
        first = first_free_number(self.store, self.record, adopted, forgetful=forgetful)
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
        """Write down that the damage of the journal is known, with all that follows from it."""
        facts = [
            {"identity": damage.identity, "what": damage.what, "lost": damage.lost}
            for damage in self._new_damage()
        ]
        if facts:
            self._record([("journal_damaged", one) for one in facts])

    # ------------------------------------------------------------------ upkeep

    def heartbeat(self) -> None:
        """Keep the lease alive from now on."""
        self._heartbeat = Heartbeat(self.lease, lambda: self.journal.next_seq, self._on_lost)
        self._heartbeat.start()

    def _on_lost(self, lost: LeaseLost) -> None:
        self.lost = lost
        log.error("%s", lost)

    def compact(self) -> None:
        """Shorten the journal to what it amounts to, so that it is cheap to read later.

        Happens by itself, off the path of commits, whenever the journal has grown long. Not while
        there is damage that is not noted: a short journal does not show it.
        """
        if not self._new_damage():
            self._compaction.run()

    def compact_soon(self) -> None:
        """Shorten the journal aside, if there is something to shorten."""
        if not self._new_damage():
            self._compaction.begin()

    def wait_without_end(self, meanwhile: str) -> None:
        """Wait for storage that does not answer for as long as it takes, until the run is closed.

        `meanwhile` is what goes on and what waits then, for people.
        """
        begin_run(self.store, lambda: f"{meanwhile}; {self._what_is_durable()}")

    def hurry(self, kind: type[BaseException] | None = None) -> None:
        """Wait for storage no longer than at the beginning; from any thread or signal handler.

        What ends the run may be that storage does not answer, and nobody waits for that a second
        time; least of all who has pressed Ctrl+C twice, of which `kind` tells.
        """
        is_urgent = kind is not None and issubclass(kind, KeyboardInterrupt)
        end_run(self.store, URGENT_S if is_urgent else float("inf"))

    def _what_is_durable(self) -> str:
        kept = [one for one in list(self.record.kept.values()) if not one.problems]
        newest = max(kept, key=lambda one: one.number, default=None)
        return f"nothing after {newest.directory} is durable" if newest else "nothing is saved yet"

    def close(self) -> None:
        """Leave in good order, so that the next driver can begin at once.

        Raises what closed the journal if it is closed; the lease is given back all the same.
        """
        try:
            self._leave()
        finally:
            end_run(self.store)

    def _leave(self) -> None:
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
        except StoreError as problem:  # what is raised already says more
            log.warning("the run could not be left in good order: %s", problem)

    def _take_in(self, kind: str, data: Mapping[str, Any]) -> None:
        self.record.apply(kind, data)
        for account in self._accounts:
            account.apply(kind, data)

    def note(self, kind: str, data: dict[str, Any]) -> None:
        """Journal one event durably and take it in."""
        self._record([(kind, data)])

    def _record_soon(self, events: Iterable[Event]) -> None:
        self._record(events)

    def _settle(self) -> None:
        pass  # nothing is recorded without waiting

    def append(self, kind: str, data: dict[str, Any]) -> Ticket:
        """Journal one event and take it in at once; it is durable when the ticket says so.

        If it is refused, nothing more can be journaled: it was believed.
        """
        ticket = self.journal.append(kind, data, believed=True)
        self._take_in(kind, data)
        return ticket

    def _record(self, events: Iterable[Event]) -> None:
        """Journal events durably, then believe them."""
        tickets = [(self.journal.append(kind, data), kind, data) for kind, data in events]
        for ticket, _, _ in tickets:
            ticket.wait()
        for _, kind, data in tickets:
            self._take_in(kind, data)
        if self.journal.wants_compaction():
            self.compact_soon()


def _release_quietly(lease: Lease) -> None:
    try:
        lease.release(lease.record.journal_next)
    except StoreError as error:
        log.warning("the lease could not be given back and has to run out: %s", error)


class OpenTrainingRun(OpenRun):
    """A training run that this process may write to.

    Attributes:
        history: Its attempts and how it came out.
        validations: Which checkpoints are to be validated, and what came of it.
    """

    kind = "train"
    _compacted = (RunHistory, ValidationLedger)

    def __init__(self, store: Store, identity: RunIdentity, lease: Lease, clock: Clock) -> None:
        self.history, self.validations = RunHistory(), ValidationLedger()
        super().__init__(store, identity, lease, clock, (self.history, self.validations))
        self.note_damage()


class OpenStudy(OpenRun):
    """A study that this process may write to.

    Damage of its journal is noted by whoever has taken in what its trials have saved.

    Attributes:
        tail: Its last state and what happened since.
    """

    kind = "tune"
    _compacted = (PackedTail,)

    def __init__(self, store: Store, identity: RunIdentity, lease: Lease, clock: Clock) -> None:
        self.tail = StudyTail()
        super().__init__(store, identity, lease, clock, (self.tail,))


open_run = OpenRun.open


# ---------------------------------------------------------------------- what the journal lacks


def unrecorded_commits(
    store: Store, identity: RunIdentity, record: RunRecord, *, forgetful: bool
) -> list[Manifest]:
    """Return the checkpoints whose driver died between the manifest and the journal.

    Where the journal has lost records, every manifest counts: it is the checkpoint.
    """
    recorded = {kept.directory for kept in record.kept.values()}
    commits = []
    for directory, manifest in read_manifests(store, recorded):
        if isinstance(manifest, Damaged):
            log.warning("%s is not used: %s", directory, manifest.message)
        elif manifest.run_id != identity.run_id:
            log.warning("%s is not used: it belongs to run %s", directory, manifest.run_id)
        elif forgetful or record.is_current(manifest):
            commits.append(manifest)
    return sorted(commits, key=lambda manifest: manifest.number)


def first_free_number(
    store: Store, record: RunRecord, adopted: Iterable[Manifest], *, forgetful: bool
) -> int:
    """Return a number that was certainly never given out, whatever the journal has lost."""
    used = {record.next_number - 1, *(manifest.number for manifest in adopted)}
    if forgetful:
        names = (*store.folders(), *manifest_directories(store))
        used |= {int(match[1]) for name in names if (match := _NUMBERED.fullmatch(name))}
    return max(used) + 1
