"""A power cut at every moment of commit, journal, lease, retention and gc, with every loss."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from holdfast.checkpoint.commit import Slot, publish, remove_directory
from holdfast.checkpoint.manifests import put_manifest
from holdfast.control.record import checkpoints, open_run
from holdfast.core.checkpoint.manifest import Manifest, Merged, Part, merge
from holdfast.core.checkpoint.record import RunRecord
from holdfast.errors import HoldfastError
from holdfast.journal.lease import Lease
from holdfast.journal.segments import SegmentReader
from holdfast.storage import transfer, verify
from holdfast.storage.base import Store
from holdfast.testing.crashes import CrashPoint, crash_states, effective_syncs
from holdfast.testing.disk import SimDisk
from holdfast.testing.fates import Effort
from holdfast.testing.faults import Drop
from holdfast.testing.oplog import Synced
from tests.faults.stories import STORIES, Violation, record, recover

# Together more than 10,000 distinct states.
SINGLE_CUTS = {"commits": 900, "named": 1000, "journal": 500, "takeover": 1500}
DOUBLE_CUTS = 1700  # of each story


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are written one after the other, so that a state's number means the same every time."""
    monkeypatch.setattr(transfer, "THREADS_LOCAL", 1)
    monkeypatch.setattr(verify, "THREADS_VERIFY", 1)


def violation(point: CrashPoint, left: SimDisk, *, now: float = 2_000_000.0) -> str | None:
    """Recover from one state; return what it breaks, with how to find it again."""
    try:
        recover(left, point.marks, now=now)
    except (Violation, HoldfastError, AssertionError) as error:
        return f"{point}\n  {type(error).__name__}: {error}"
    return None


def first_violation(disk: SimDisk, *, since: int = 0) -> str | None:
    found = (violation(point, left) for point, left in crash_states(disk, since=since))
    return next((one for one in found if one), None)


@pytest.mark.parametrize("story", STORIES)
def test_no_power_cut_at_any_moment_costs_anything_acknowledged(story: str, tmp_path: Path) -> None:
    count = 0
    for point, left in crash_states(record(STORIES[story], tmp_path)):
        count += 1
        assert (broken := violation(point, left)) is None, broken

    assert count >= SINGLE_CUTS[story], f"only {count} states: is everything recorded?"


@pytest.mark.parametrize("story", STORIES)
def test_no_second_power_cut_during_recovery_costs_anything_either(
    story: str, tmp_path: Path
) -> None:
    count = 0
    for first, second, left in islice(double_cuts(STORIES[story], tmp_path), DOUBLE_CUTS):
        count += 1
        now_marks = (*first.marks, *second.marks)
        try:
            recover(left, now_marks, now=3_000_000.0)
        except (Violation, HoldfastError, AssertionError) as error:
            pytest.fail(f"{first}\nthen {second}\n  {type(error).__name__}: {error}")

    assert count == DOUBLE_CUTS


def double_cuts(story: Callable, sources: Path) -> Iterator[tuple[CrashPoint, CrashPoint, SimDisk]]:
    """Yield states after a cut in the recovery from a cut, spread over the whole story."""
    firsts = list(crash_states(record(story, sources)))
    for point, left in firsts[:: max(1, len(firsts) // 24)]:
        recover(left, point.marks)
        for second, again in islice(crash_states(left, Effort(samples=8)), 0, None, 2):
            yield point, second, again


def kind_of(sync: str) -> str:
    """Return what a sync is for, without the names that differ from one time to the next."""
    return re.sub(r"\d{6,}", "#", re.sub(r"\.[0-9a-f]{16}\.", ".*.", sync))


def is_missed(story: Callable, sources: Path, nth: int) -> bool:
    """Whether a state breaks a promise without the `nth` sync; those before it are not its own."""
    disk = record(story, sources, Drop(nth=nth))
    syncs = [at for at, operation in enumerate(disk.log, 1) if isinstance(operation, Synced)]
    return first_violation(disk, since=syncs[nth - 2] if nth > 1 else 0) is not None


@pytest.mark.slow
@pytest.mark.parametrize("story", ["commits", "journal"])
def test_every_sync_is_needed_and_its_loss_is_noticed(story: str, tmp_path: Path) -> None:
    """Leave out one sync of each kind: the enumeration must find a state that breaks a promise.

    A sync that another one of the same folder follows before anything is promised is not missed,
    so each kind is tried until one of its instances is.
    """
    kinds: dict[str, list[int]] = {}
    for nth, sync in effective_syncs(record(STORIES[story], tmp_path)).items():
        kinds.setdefault(kind_of(sync), []).append(nth)

    unnoticed = [
        kind
        for kind, instances in kinds.items()
        if not any(is_missed(STORIES[story], tmp_path, nth) for nth in reversed(instances))
    ]

    assert unnoticed == []
    assert len(kinds) >= 12, sorted(kinds)


def manifest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    parts_of: dict[Slot, list[Part]] = {}

    def only_merge(store: Store, slot: Slot, parts: list[Part]) -> Merged:
        parts_of[slot] = parts
        return merge(parts)

    def wrong_way_round(store: Store, slot: Slot, manifest: Manifest) -> None:
        put_manifest(store, manifest)
        publish_anyway(store, slot, parts_of[slot])

    def publish_anyway(store: Store, slot: Slot, parts: list[Part]) -> None:
        with monkeypatch.context() as patched:
            patched.setattr("holdfast.checkpoint.commit.has_manifest", lambda *_: False)
            publish(store, slot, parts)

    monkeypatch.setattr(checkpoints, "publish", only_merge)
    monkeypatch.setattr(checkpoints, "commit", wrong_way_round)


def acknowledge_before_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        open_run.OpenRun, "_record", lambda self, events: [self.record.apply(*e) for e in events]
    )


def ignore_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lease, "check", lambda self: None)


def accept_manifests_of_any_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        RunRecord, "is_current", lambda self, manifest: manifest.number not in self.kept
    )


def read_past_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    real = SegmentReader.__init__

    def unlimited(self: SegmentReader, store: Store, segment: object) -> None:
        segment.limit = None  # type: ignore[attr-defined]
        real(self, store, segment)  # type: ignore[arg-type]

    monkeypatch.setattr(SegmentReader, "__init__", unlimited)


def delete_files_before_the_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong_way_round(self: open_run.OpenRun, policy: object) -> None:
        for number in sorted(self.record.kept)[:-2]:
            remove_directory(self.store, self.record.kept[number].directory)

    monkeypatch.setattr(open_run.OpenRun, "retain", wrong_way_round)


@pytest.mark.parametrize(
    ("mutate", "story"),
    [
        (manifest_first, "commits"),
        (acknowledge_before_the_journal, "commits"),
        (delete_files_before_the_manifest, "commits"),
        (ignore_the_epoch, "takeover"),
        (accept_manifests_of_any_epoch, "takeover"),
        (read_past_the_end, "takeover"),
    ],
)
def test_a_wrong_order_or_a_missing_fence_is_noticed(
    mutate: Callable[[pytest.MonkeyPatch], None],
    story: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mutate(monkeypatch)

    assert first_violation(record(STORIES[story], tmp_path)) is not None


@pytest.mark.parametrize("what", ["sync *", "sync_dir *", "sync_dir */manifests", "* */journal*"])
def test_skipping_a_class_of_syncs_is_noticed(what: str, tmp_path: Path) -> None:
    assert first_violation(record(STORIES["commits"], tmp_path, Drop(match=what))) is not None
