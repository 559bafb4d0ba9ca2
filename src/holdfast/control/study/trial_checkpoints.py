"""Checkpoints of a trial: recorded in the study's journal, taken over from other trials, swept."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from holdfast.checkpoint import Checkpoint
from holdfast.checkpoint.manifests import read_manifests
from holdfast.checkpoint.verification import verify_checkpoint
from holdfast.clock import Clock
from holdfast.control.record.checkpoints import Checkpoints, must_be_there
from holdfast.control.record.litter import find_litter, remove_litter, warn_of_strays
from holdfast.core.checkpoint.manifest import Manifest
from holdfast.core.checkpoint.record import Event, Kept
from holdfast.core.study.events import DonorReplaced, StudyEvent, TrialCheckpointChanged
from holdfast.core.study.trial import Donor, Trial
from holdfast.storage import locate
from holdfast.storage.base import Store

log = logging.getLogger(__name__)

_NUMBER = re.compile(r"(\d+)$")


class Scribe(Protocol):
    """Journals the events of a study.

    Attributes:
        has_lost_records: Whether the journal is damaged, so that it may lack commits.
    """

    @property
    def has_lost_records(self) -> bool: ...

    def happen(self, event: StudyEvent) -> None:
        """Have the study take in an event that will be durable soon."""
        ...

    def settle(self) -> None:
        """Return once everything so far is durable."""
        ...

    def check(self) -> None:
        """Raise `LeaseLost` if another driver has taken over."""
        ...


class TrialCheckpoints(Checkpoints):
    """The checkpoints of one trial, recorded in the study's journal."""

    def __init__(
        self, trial: Trial, store: Store, run_id: str, epoch: int, scribe: Scribe, clock: Clock
    ) -> None:
        super().__init__(store, run_id, epoch, trial.checkpoints, clock)
        self._trial, self._scribe = trial, scribe
        self._has_warned = False  # of checkpoints that are neither used nor removed

    def _record(self, events: Iterable[Event]) -> None:
        self._record_soon(events)
        self._scribe.settle()

    def _record_soon(self, events: Iterable[Event]) -> None:
        for what, facts in events:
            self._scribe.happen(TrialCheckpointChanged(self._trial.trial_id, what, facts))

    def _settle(self) -> None:
        self._scribe.settle()

    def note_commit(self, manifest: Manifest) -> None:
        """Record a commit."""
        self._record_soon([("checkpoint_committed", Kept.of(manifest).to_data())])

    def beginning(
        self, study: Store, first: Checkpoint | None
    ) -> tuple[Checkpoint | None, int, Mapping[str, Any]]:
        """Return what to carry on from, how many steps count by then, and the result of then.

        `first` is for a trial without checkpoints.
        """
        self._step_back(study)
        donor = self._trial.donor
        if donor is not None:
            store = locate.child(study, donor.folder)
            return Checkpoint.in_run(store, donor.directory), donor.step, donor.result
        newest = self.newest_good(home=study)
        if newest is None:
            if first is not None:
                first.verify()
            return first, 0, {}
        return Checkpoint.in_run(self.store, newest.directory), newest.step or 0, newest.metrics

    def _step_back(self, study: Store) -> None:
        """If the donor's checkpoint is damaged, take an earlier one, or keep the own weights."""
        trial = self._trial
        if trial.donor is None:
            return
        directory, result, problems = find_whole(study, self.run_id, trial.donor)
        if not problems:
            return
        log.warning(
            "%s was to go on from %s/%s, which is damaged: %s; it %s",
            trial, trial.donor.folder, trial.donor.directory, "; ".join(problems[:3]),
            f"goes on from {directory} instead" if directory else
            "goes on with its own weights" + (" and config" if trial.former else ""),
        )  # fmt: skip
        stays = directory is None
        self._scribe.happen(DonorReplaced(trial.trial_id, directory, result, stays=stays))
        self._scribe.settle()

    def sweep(self, *, looks: bool, needed: Collection[str] = ()) -> None:
        """Remove files that never became a checkpoint; only while the trial has no process.

        With `looks`, also those that no record mentions: a driver may have died before the record
        was durable, or a process before it had delivered. The folders `needed` stay, even if they
        are retired: another trial is to go on from them.
        """
        unfinished = {**self.record.begun, **self.record.retired}
        numbers = sorted(n for n, directory in unfinished.items() if directory not in needed)
        if looks or numbers:
            litter = find_litter(
                self.store, self.run_id, self.record, is_damaged=self._scribe.has_lost_records
            )
            self._scribe.check()  # it may be another driver's by now
            remove_litter(self, [item for item in litter if item.key not in needed])
        if looks and not self._has_warned:
            self._has_warned = True
            warn_of_strays(self.store, self.run_id, self.record)
        if numbers:
            self._record_soon([("litter_swept", {"numbers": numbers})])


class Donation(NamedTuple):
    """What a trial can take over.

    Attributes:
        directory: The checkpoint, None if none is whole.
        result: What was reported with it; {} if it is the intended one.
        problems: What is wrong with the intended one, [] if it is whole.
    """

    directory: str | None
    result: Mapping[str, Any]
    problems: list[str]


def find_whole(study: Store, run_id: str, donor: Donor) -> Donation:
    """Return the intended checkpoint, or else the newest whole one before it.

    Raises `StoreError` if one cannot be read: it may be whole.
    """
    store = locate.child(study, donor.folder)
    manifest, problems = verify_checkpoint(store, donor.directory)
    if not problems:
        return Donation(donor.directory, {}, [])
    must_be_there(study)
    number = _number_of(donor.directory) if manifest is None else manifest.number
    others = [
        other
        for directory, other in read_manifests(store, {donor.directory})
        if isinstance(other, Manifest) and other.run_id == run_id
        if number is None or other.number < number
    ]
    for other in sorted(others, key=lambda other: -other.number):
        if not verify_checkpoint(store, other.directory).problems:
            return Donation(other.directory, other.metrics, problems)
    return Donation(None, {}, problems)


def _number_of(directory: str) -> int | None:
    """Return the number in the name of a checkpoint, None if the user has named it."""
    match = _NUMBER.search(directory)
    return None if match is None else int(match[1])
