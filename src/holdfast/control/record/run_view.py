"""A run as somebody sees it who only looks on: no lease, no writes, safe beside a live driver."""

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

# What a record may raise that is as somebody wrote it, and does not fit those before it.
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
        identity_problem: What is wrong with the object that says who the run is, if anything.
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
        """Whether somebody writes to the run, or how the last one who did has left it."""
        if self.is_live:
            return "held"
        return "closed" if self.record.closed else "interrupted"

    @property
    def status(self) -> str:
        """How the run goes or has come out; its `state` if nobody has ever driven it."""
        run = self.history.run
        if isinstance(run.phase, Over):
            return str(run.phase.ending)
        if not run.attempts:
            return self.state
        return "running" if self.is_live else "interrupted"


def look(store: Store, clock: Clock = SYSTEM_CLOCK) -> RunView:
    """Return what there is to know of the run in `store`; raise `RunMissing` if there is none."""
    return look_with_records(store, clock)[0]


def look_with_records(store: Store, clock: Clock = SYSTEM_CLOCK) -> tuple[RunView, list[Record]]:
    """Return what `look` does, and the records of the journal that it comes from."""
    identity, problem = find_identity(store)
    records, replay = read_journal(store, identity.run_id)
    good, strange = fitting(records)
    return _view(store, (identity, problem), good, strange, replay, clock), good


def fitting(records: Iterable[Record]) -> tuple[list[Record], list[str]]:
    """Return the records that may be ours, and what is wrong with the others."""
    good, strange = list[Record](), list[str]()
    for event in records:
        odd = problem_with_event(event.kind, event.data)
        if odd is None:
            good.append(event)
        else:
            strange.append(f"record {event.seq} ({event.kind}) is not as we write it: {odd}")
    return good, strange


def _view(
    store: Store,
    known_as: tuple[RunIdentity, str | None],
    records: Iterable[Record],
    strange: list[str],
    replay: Replay,
    clock: Clock,
) -> RunView:
    identity, problem = known_as
    record, history = RunRecord(), RunHistory()
    for event in records:
        record.apply(event.kind, event.data)
        try:
            history.apply(event.kind, event.data)
        except STRANGE as error:
            # Records before it may be lost; what can be shown of the run is shown all the same.
            strange.append(f"record {event.seq} cannot follow those before it: {error}")
    lease = _last_lease(store)
    damage = _journal_damage(replay, lease) + strange
    unreadable = {}
    known = {kept.directory for kept in record.kept.values()}
    for directory, manifest in read_manifests(store, known):
        if isinstance(manifest, Damaged):
            unreadable[directory] = manifest.message
        elif manifest.run_id == identity.run_id and (damage or record.is_current(manifest)):
            record.apply("checkpoint_committed", Kept.of(manifest).to_data())
    is_live = lease is not None and not (
        lease.released or lease.owner.is_proven_dead() or lease.expires() < clock.now()
    )
    return RunView(store, identity, problem, record, lease, is_live, damage, unreadable, history)


def find_runs(store: Store) -> Iterator[tuple[str, RunIdentity | HoldfastError]]:
    """Yield the runs directly below `store`, with who they are or why that cannot be read."""
    for folder in store.folders():
        if store.stat(f"{folder}/{RUN_KEY}") is None:
            continue
        try:
            yield folder, read_identity(child(store, folder))
        except HoldfastError as error:  # one that cannot be read hides no other
            yield folder, error


def _last_lease(store: Store) -> LeaseRecord | None:
    epoch = newest_epoch(store)
    return read_lease(store, epoch) if epoch else None


def _journal_damage(replay: Replay, lease: LeaseRecord | None) -> list[str]:
    damage = [one.what for one in replay.damages]
    promised = lease.journal_next if lease else 0
    if promised > replay.next_seq:
        damage.append(f"records {replay.next_seq} to {promised - 1} are missing")
    return damage


@dataclass(slots=True)
class Verification:
    """The result of reading everything again.

    Attributes:
        damaged: What is not as it was written, by key.
        unread: What could not be read, by key: nobody knows whether it is damaged.
        quarantined: Checkpoints set aside earlier, by folder.
        restorable: Those of them that are whole now.
        foreign: Files in checkpoint folders that no manifest names, and such folders as a whole.
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
    """Read every byte of every checkpoint and all metrics, and say what is not as it was saved."""
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
    for kept in sorted(view.record.kept.values(), key=lambda kept: kept.number):
        try:
            _verify_checkpoint(view.store, kept, result, watch)
        except StoreError as error:
            result.unread[kept.directory] = error.message
    if not view.is_live:
        is_damaged = bool(view.journal_damage)
        result.litter = find_litter(
            view.store, view.identity.run_id, view.record, is_damaged=is_damaged
        )
        result.foreign += find_strays(view.store, view.identity.run_id, view.record)
    return result


def _verify_checkpoint(store: Store, kept: Kept, result: Verification, watch: Watch | None) -> None:
    if kept.problems:
        result.quarantined[kept.directory] = list(kept.problems)
    manifest, problems = verify_checkpoint(store, kept.directory, watch)
    if kept.problems:
        result.restorable += [] if problems else [kept.directory]
        return
    if manifest is None:
        result.damaged[manifest_key(kept.directory)] = problems
        return
    result.checkpoints += 1
    result.files += len(manifest.files)
    result.size += manifest.size
    if problems:
        result.damaged[kept.directory] = problems
    named = {f"{kept.directory}/{entry.path}" for entry in manifest.files}
    result.foreign += [e.key for e in store.entries(kept.directory) if e.key not in named]
