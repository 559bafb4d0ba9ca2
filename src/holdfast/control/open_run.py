"""A run that this process may write to: lease held, journal replayed, checkpoints accounted for.

The order matters everywhere: journal before act, data before manifest, manifest before
acknowledgement, commit of the new before deletion of the old.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

from holdfast.checkpoint.commit import (
    SPOOLED,
    STAGING,
    Slot,
    commit,
    default_directory,
    discard,
    publish,
    remove_directory,
)
from holdfast.checkpoint.manifests import (
    get_manifest,
    has_manifest,
    manifest_key,
)
from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.control.accounts import Account, Compaction
from holdfast.control.adoption import first_free_number, unrecorded_commits
from holdfast.control.identity import (
    RUN_KEY,
    RunIdentity,
    create_identity,
    find_identity,
    restore_identity,
)
from holdfast.core.manifest import FileEntry, Manifest, Part
from holdfast.core.names import shown
from holdfast.core.record import Event, Kept, RunRecord
from holdfast.core.retention import Retention, dispensable
from holdfast.core.run_history import RunHistory
from holdfast.core.validation import ValidationLedger
from holdfast.errors import (
    ConfigError,
    Conflict,
    Damaged,
    LeaseLost,
    ObjectMissing,
    RunMissing,
    StoreBusy,
    StoreDenied,
    StoreError,
    StoreForked,
)
from holdfast.journal.journal import Journal
from holdfast.journal.lease import TIME_TO_LIVE_S, Heartbeat, Lease, take_lease
from holdfast.storage.base import Store
from holdfast.storage.damage import damage_of
from holdfast.storage.digest import ALGORITHM
from holdfast.storage.stock import take_stock
from holdfast.storage.watching import Watch

log = logging.getLogger(__name__)

QUARANTINE = ".holdfast/quarantine"
# Whoever compacts a journal must know all that it amounts to, or the rest of it is lost.
ACCOUNTS: Sequence[Callable[[], Account]] = (RunHistory, ValidationLedger)


def open_run(
    store: Store,
    *,
    name: str | None = None,
    kind: str = "train",
    clock: Clock = SYSTEM_CLOCK,
    time_to_live_s: float = TIME_TO_LIVE_S,
    beats: bool = True,
    accounts: Sequence[Callable[[], Account]] = ACCOUNTS,
    waits: bool = False,
) -> OpenRun:
    """Become the one writer of the run in `store`, which is made if it does not exist.

    The lease is renewed from a thread of its own until the run is closed, unless `beats` is
    false; then whoever opened the run renews it. `accounts` are made of the same journal beside
    the record of checkpoints.

    With `waits`, a driver on another machine gets its lease's time to show that it lives.

    Raises `RunHeld` if a live driver holds it, `FormatTooNew` if a newer version wrote it.
    """
    store.probe(writable=True)
    name = name or os.path.basename(store.url.rstrip("/"))
    problem = None
    try:
        identity, problem = find_identity(store)
    except RunMissing:
        identity = create_identity(store, name=name, kind=kind, clock=clock)
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
        run = OpenRun(store, identity, lease, clock, accounts)
    except BaseException:
        _release_quietly(lease)
        raise
    if beats:
        run.heartbeat()
    return run


def _release_quietly(lease: Lease) -> None:
    try:
        lease.release(lease.record.journal_next)
    except StoreError as error:
        log.warning("the lease could not be given back and has to run out: %s", error)


class OpenRun:
    """The checkpoints of a run, for the one driver that holds it.

    Not to be called from several threads at once.

    Attributes:
        lost: Set if another driver has taken the run.
    """

    def __init__(
        self,
        store: Store,
        identity: RunIdentity,
        lease: Lease,
        clock: Clock,
        accounts: Sequence[Callable[[], Account]] = ACCOUNTS,
    ) -> None:
        self.store, self.identity, self.lease = store, identity, lease
        self._clock = clock
        self.journal = Journal(store, lease, identity.run_id, clock=clock)
        self.record = RunRecord()
        self.accounts: list[Account] = [new() for new in accounts]
        self.lost: LeaseLost | None = None
        self._heartbeat: Heartbeat | None = None
        self._compaction = Compaction(self.journal, [RunRecord, *accounts])
        for event in self.journal.replay():
            self._take_in(event.kind, event.data)
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        """Say in the journal that this epoch has begun, with everything that was found out."""
        forgetful = any(
            damage.lost and damage.identity not in self.record.known_damage
            for damage in self.journal.damages
        )
        adopted = unrecorded_commits(self.store, self.identity, self.record, forgetful=forgetful)
        first = first_free_number(self.store, self.record, adopted, forgetful=forgetful)
        events: list[Event] = [
            (
                "run_opened",
                {
                    "epoch": self.lease.epoch,
                    "owner": str(self.lease.record.owner),
                    "next_number": first,
                },
            )
        ]
        for damage in self.journal.damages:
            if damage.identity in self.record.known_damage:
                continue
            log.warning("the journal of %s is damaged: %s", self.store.url, damage.what)
            if damage.remains:
                self.store.put(f"{QUARANTINE}/journal-{damage.identity}", damage.remains)
            facts = {"identity": damage.identity, "what": damage.what, "lost": damage.lost}
            events.append(("journal_damaged", facts))
        events += [("checkpoint_committed", Kept.of(manifest).to_data()) for manifest in adopted]
        self._record(events)

    # ------------------------------------------------------------------ checkpoints

    def begin_checkpoint(self, *, attempt: int, directory: str | None = None) -> Slot:
        """Give out a checkpoint number, never to be given out again, and say where files go.

        A folder is never given out again either: a name of the user's own that was used before
        gets the number added, so that late news of its first use cannot touch the second.
        """
        number = self.record.next_number
        if directory is None:
            directory = default_directory(number)
        else:
            self._must_be_free(directory)
            if directory in self.record.names:
                directory = f"{directory}-{number:06d}"
        facts = {"number": number, "directory": directory, "attempt": attempt}
        self._record([("checkpoint_begun", facts)])
        return Slot(number, directory, self.lease.epoch, attempt)

    def _must_be_free(self, directory: str) -> None:
        """Raise if a checkpoint cannot have this name; no other file may suffer for it."""
        rule = self.record.broken_naming_rule(directory)
        if rule is None and directory not in self.record.names:
            is_used = self.store.stat(directory) or next(self.store.entries(directory), None)
            rule = "there are other files of that name" if is_used else None
        if rule is not None:
            raise ConfigError(
                f"a checkpoint cannot be named {shown(directory)}: {rule}",
                hint="choose another name, or none and let it be numbered",
            )

    def commit_checkpoint(
        self,
        slot: Slot,
        parts: Iterable[Part],
        *,
        world_size: int = 1,
        step: int | None = None,
        metrics: Mapping[str, Any] | None = None,
        placed: str | None = None,
    ) -> Manifest:
        """Make one checkpoint of what the ranks delivered, or of the folder `placed` by the user.

        On return it is durable and the one offered after any crash.
        """
        if slot.epoch != self.lease.epoch or slot.number not in self.record.begun:
            raise Conflict(
                f"checkpoint {slot.number} of epoch {slot.epoch} cannot be committed:"
                f" it is of an attempt that is over, or was committed before"
            )
        if placed is None:
            merged = publish(self.store, slot, list(parts))
            files, folders = merged.files, merged.folders
        else:
            files, folders = self._stock_of(placed, slot)
        manifest = Manifest(
            run_id=self.identity.run_id,
            directory=slot.directory if placed is None else placed,
            number=slot.number,
            epoch=slot.epoch,
            attempt=slot.attempt,
            world_size=world_size,
            step=step,
            created=self._clock.now(),
            metrics=dict(metrics or {}),
            algorithm=ALGORITHM,
            files=files,
            folders=folders,
        )
        commit(self.store, slot, manifest)
        self._record([("checkpoint_committed", Kept.of(manifest).to_data())])
        return manifest

    def _stock_of(self, placed: str, slot: Slot) -> tuple[tuple[FileEntry, ...], tuple[str, ...]]:
        rule = None if placed == slot.directory else self.record.broken_naming_rule(placed)
        if rule is None and has_manifest(self.store, placed):
            rule = "it is a checkpoint already"
        if rule is not None:
            raise ConfigError(
                f"the folder {shown(placed)} cannot be made a checkpoint: {rule}",
                hint="put every checkpoint into a folder of its own below the run's",
            )
        return take_stock(self.store, placed)

    def abandon_checkpoint(self, slot: Slot) -> None:
        """Remove what was delivered for a checkpoint that will not be; what is missed is litter."""
        discard(self.store, slot)

    def discard_unfinished(self) -> None:
        """Remove what groups before have left unfinished; only while nobody delivers anything."""
        for number, directory in self.record.begun.items():
            discard(self.store, Slot(number, directory, self.lease.epoch, 0))
        if self.store.local is not None:
            for folder in self.store.folders(STAGING):
                if folder.startswith(SPOOLED):
                    self.store.local.discard_tree(f"{STAGING}/{folder}")

    def newest_good(self, watch: Watch | None = None) -> Manifest | None:
        """Return the newest checkpoint whose every byte is as it was saved, None if there is none.

        One that is not is quarantined: kept for inspection, never used, and the user is told.
        """
        for kept in self.record.usable():
            try:
                manifest = get_manifest(self.store, kept.directory)
                problems = damage_of(self.store, kept.directory, manifest.files, watch)
                if not problems:
                    return manifest
            except ObjectMissing:
                problems = ["its manifest is missing"]
            except (StoreBusy, StoreDenied, StoreForked):
                raise  # it may be whole; only nobody can look at it now
            except (Damaged, StoreError) as error:
                problems = [error.message]
            self.quarantine(kept.number, problems)
        return None

    def quarantine(self, number: int, problems: list[str]) -> None:
        """Never use this checkpoint again, and keep it for inspection."""
        directory = self.record.kept[number].directory
        log.warning(
            "checkpoint %s of %s is damaged and set aside: %s",
            directory, self.store.url, "; ".join(problems[:3]),
        )  # fmt: skip
        self._record([("checkpoint_quarantined", {"number": number, "problems": problems})])

    def pin(self, number: int, by: str) -> None:
        """Keep a checkpoint, whatever retention says, until `by` lets go of it."""
        self._record([("checkpoint_pinned", {"number": number, "by": by})])

    def unpin(self, number: int, by: str) -> None:
        self._record([("checkpoint_unpinned", {"number": number, "by": by})])

    def retain(self, policy: Retention) -> list[str]:
        """Delete the checkpoints that `policy` does not keep; return their folders."""
        numbers = dispensable(policy, self.record.candidates())
        directories = [self.record.kept[number].directory for number in numbers]
        if numbers:
            self._record([("checkpoint_retired", {"number": number}) for number in numbers])
        for directory in directories:
            # The manifest goes first: without it the files are litter, with it they are promised.
            self.store.delete(manifest_key(directory))
            remove_directory(self.store, directory)
        if numbers:
            self._record([("litter_swept", {"numbers": numbers})])
        return directories

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

        Happens by itself, off the path of commits, whenever the journal has grown long.
        """
        self._compaction.run()

    def close(self) -> None:
        """Leave in good order, so that the next driver can begin at once."""
        if self._heartbeat is not None:
            self._heartbeat.stop()
        self._compaction.join()
        if self.lost is None:
            self._record([("run_closed", {})])
            self.journal.close()
            self.lease.release(self.journal.next_seq)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take_in(self, kind: str, data: Mapping[str, Any]) -> None:
        self.record.apply(kind, data)
        for account in self.accounts:
            account.apply(kind, data)

    def note(self, kind: str, data: dict[str, Any]) -> None:
        """Journal one event durably and take it in."""
        self._record([(kind, data)])

    def _record(self, events: Iterable[Event]) -> None:
        """Journal events durably, then believe them."""
        tickets = [(self.journal.append(kind, data), kind, data) for kind, data in events]
        for ticket, _, _ in tickets:
            ticket.wait()
        for _, kind, data in tickets:
            self._take_in(kind, data)
        if self.journal.wants_compaction():
            self._compaction.begin()
