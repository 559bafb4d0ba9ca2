"""Reads and verifies a run without holding it: no lease, no writes, safe beside a live driver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from holdfast.checkpoint.manifests import manifest_key, read_manifests
from holdfast.checkpoint.verification import verify_checkpoint
from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.control.metrics.reader import read_metric_rows
from holdfast.control.metrics.writer import METRICS
from holdfast.control.record.identity import RUN_KEY, RunIdentity, find_identity, read_identity
from holdfast.control.record.litter import Litter, find_litter, find_strays
from holdfast.control.record.shapes import problem_with_event
from holdfast.core.checkpoint.record import Kept, RunRecord
from holdfast.core.run.history import RunHistory
from holdfast.core.run.machine import Over
from holdfast.errors import Damaged, HoldfastError, StoreError
from holdfast.journal.lease import LeaseRecord, newest_epoch, read_lease
from holdfast.journal.replay import Replay, read_journal
from holdfast.journal.segments import Record
from holdfast.storage.base import Store
from holdfast.storage.locate import child
from holdfast.storage.parallel import Watch

# What applying a record may raise that does not fit the records before it.
STRANGE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    HoldfastError,
)


@dataclass(frozen=True, slots=True)
class RunView:
    """What can be known of a run without holding it.

    Attributes:
        identity_problem: What is wrong with `run.json`, None if nothing is.
        lease: The last lease taken, None if none was or it cannot be read.
        is_live: Whether a driver seems to hold the run at this moment.
        journal_damage: What is wrong with the journal, one line each.
        unreadable: Folders whose manifest cannot be read, with the reason.
        history: Its attempts, what was lost to what, and how it came out.
    """

    store: Store
    identity: RunIdentity
    identity_problem: str | None
    record: RunRecord
    lease: LeaseRecord | None
    is_live: bool
    journal_damage: list[str]
    unreadable: dict[str, str]
    history: RunHistory

    @property
    def state(self) -> str:
        """Whether a driver holds the run, or how the last driver has left it."""
        if self.is_live:
            return "held"
        return "closed" if self.record.closed else "interrupted"

    @property
    def status(self) -> str:
        """How the run is going or came out; its `state` if no attempt was ever made."""
        run = self.history.run
        if isinstance(run.phase, Over):
            return str(run.phase.ending)
        if not run.attempts:
            return self.state
        return "running" if self.is_live else "interrupted"


def look(store: Store, clock: Clock = SYSTEM_CLOCK) -> RunView:
    """Return a view of the run in `store`; raise `RunMissing` if there is none."""
    return look_with_records(store, clock)[0]


def look_with_records(store: Store, clock: Clock = SYSTEM_CLOCK) -> tuple[RunView, list[Record]]:
    """Return what `look` does, and the records of the journal that it is made of."""
    identity, identity_problem = find_identity(store)
    records, replay = read_journal(store, identity.run_id)
    good, problems = _well_formed(records)
    record, history = RunRecord(), RunHistory()
    for event in good:
        record.apply(event.kind, event.data)
        try:
            history.apply(event.kind, event.data)
        except STRANGE as error:
            # Records before it may be lost; the rest of the run can still be shown.
            problems.append(f"record {event.seq} cannot follow those before it: {error}")
    lease = _last_lease(store)
    damage = _journal_damage(replay, lease) + problems
    unreadable = {}
    recorded = {checkpoint.directory for checkpoint in record.kept.values()}
    for directory, manifest in read_manifests(store, recorded):
        if isinstance(manifest, Damaged):
            unreadable[directory] = manifest.message
        elif manifest.run_id == identity.run_id and (damage or record.is_current(manifest)):
            record.apply("checkpoint_committed", Kept.of(manifest).to_data())
    is_live = lease is not None and not (
        lease.released or lease.owner.is_proven_dead() or lease.expires() < clock.now()
    )
    view = RunView(
        store, identity, identity_problem, record, lease, is_live, damage, unreadable, history
    )
    return view, good


def _well_formed(records: Iterable[Record]) -> tuple[list[Record], list[str]]:
    """Return the records that have the right shape, and what is wrong with the others."""
    good, problems = list[Record](), list[str]()
    for event in records:
        problem = problem_with_event(event.kind, event.data)
        if problem is None:
            good.append(event)
        else:
            problems.append(f"record {event.seq} ({event.kind}) has an unknown form: {problem}")
    return good, problems


def find_runs(store: Store) -> Iterator[tuple[str, RunIdentity | HoldfastError]]:
    """Yield the folders of the runs directly below `store`, with identity or reading error."""
    for folder in store.folders():
        if store.stat(f"{folder}/{RUN_KEY}") is None:
            continue
        try:
            yield folder, read_identity(child(store, folder))
        except HoldfastError as error:  # an unreadable run must not hide others
            yield folder, error


def _last_lease(store: Store) -> LeaseRecord | None:
    epoch = newest_epoch(store)
    return read_lease(store, epoch) if epoch else None


def _journal_damage(replay: Replay, lease: LeaseRecord | None) -> list[str]:
    damage = [segment.what for segment in replay.damages]
    promised = lease.journal_next if lease else 0
    if promised > replay.next_seq:
        damage.append(f"records {replay.next_seq} to {promised - 1} are missing")
    return damage


@dataclass(slots=True)
class Verification:
    """The result of reading everything again.

    Attributes:
        damaged: Problems of what is not as it was written, by key.
        unread: Errors of what could not be read, by key; it may be whole.
        quarantined: Problems of checkpoints that were set aside earlier, by folder.
        restorable: Quarantined checkpoints that are whole now.
        foreign: Files in checkpoint folders that no manifest names, and stray folders.
        litter: What a sweep would remove; empty for a live run, where it may be in use.
    """

    checkpoints: int = 0
    files: int = 0
    size: int = 0
    damaged: dict[str, list[str]] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    quarantined: dict[str, list[str]] = field(default_factory=dict)
    restorable: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    litter: list[Litter] = field(default_factory=list)


def verify(view: RunView, watch: Watch | None = None) -> Verification:
    """Read every byte of every checkpoint and all metrics, and return what is damaged."""
    result = Verification()
    if view.identity_problem is not None:
        result.damaged[RUN_KEY] = [view.identity_problem]
    if view.journal_damage:
        result.damaged[".holdfast/journal"] = view.journal_damage
    if damage := read_metric_rows(view.store).damages:
        result.damaged[METRICS] = damage
    for directory, reason in view.unreadable.items():
        result.damaged[manifest_key(directory)] = [reason]
    if newest_epoch(view.store) and view.lease is None:
        result.damaged[".holdfast/lease"] = ["the newest lease cannot be read"]
    for checkpoint in sorted(view.record.kept.values(), key=lambda each: each.number):
        try:
            _verify_checkpoint(view.store, checkpoint, result, watch)
        except StoreError as error:
            result.unread[checkpoint.directory] = error.message
    if not view.is_live:
        is_damaged = bool(view.journal_damage)
        result.litter = find_litter(
            view.store, view.identity.run_id, view.record, is_damaged=is_damaged
        )
        result.foreign += find_strays(view.store, view.identity.run_id, view.record)
    return result


def _verify_checkpoint(
    store: Store, checkpoint: Kept, result: Verification, watch: Watch | None
) -> None:
    folder = checkpoint.directory
    if checkpoint.problems:
        result.quarantined[folder] = list(checkpoint.problems)
    manifest, problems = verify_checkpoint(store, folder, watch)
    if checkpoint.problems:
        result.restorable += [] if problems else [folder]
        return
    if manifest is None:
        result.damaged[manifest_key(folder)] = problems
        return
    result.checkpoints += 1
    result.files += len(manifest.files)
    result.size += manifest.size
    if problems:
        result.damaged[folder] = problems
    named = {f"{folder}/{entry.path}" for entry in manifest.files}
    result.foreign += [entry.key for entry in store.entries(folder) if entry.key not in named]
