"""Begins, commits, verifies and removes the checkpoints of a run or trial, for its one driver.

The order matters everywhere: data before manifest, manifest before acknowledgement, commit of the
new before deletion of the old.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from holdfast.checkpoint.commit import (
    SPOOLED,
    STAGING,
    Slot,
    commit,
    default_directory,
    discard,
    publish,
    publish_beside,
    remove_directory,
)
from holdfast.checkpoint.manifests import has_manifest, manifest_key
from holdfast.checkpoint.verification import verify_checkpoint
from holdfast.clock import Clock
from holdfast.control.record.identity import RUN_KEY
from holdfast.core.checkpoint.manifest import Manifest, Part
from holdfast.core.checkpoint.record import Event, Kept, RunRecord
from holdfast.core.checkpoint.retention import Retention, dispensable
from holdfast.core.names import shown
from holdfast.errors import ConfigError, Conflict, StoreError
from holdfast.storage.base import Store
from holdfast.storage.digest import ALGORITHM
from holdfast.storage.parallel import Watch
from holdfast.storage.transfer import take_stock

log = logging.getLogger(__name__)


class Checkpoints(ABC):
    """The checkpoints below one folder.

    Not to be called from several threads at once.

    Attributes:
        record: The checkpoints according to the journal.
    """

    def __init__(
        self, store: Store, run_id: str, epoch: int, record: RunRecord, clock: Clock
    ) -> None:
        self.store, self.run_id, self.epoch, self.record = store, run_id, epoch, record
        self._clock = clock

    @abstractmethod
    def _record(self, events: Iterable[Event]) -> None:
        """Journal events durably, then apply them to `record`."""

    @abstractmethod
    def _record_soon(self, events: Iterable[Event]) -> None:
        """Apply events that need not be durable before `_settle` has returned."""

    @abstractmethod
    def _settle(self) -> None:
        """Return once all that was recorded is durable."""

    def begin_checkpoint(
        self, *, attempt: int, directory: str | None = None, is_shared: bool = False
    ) -> Slot:
        """Return a new checkpoint number and the folder for its files.

        Neither is ever given out again: a `directory` that was used before gets the number added,
        so that late messages about its first use cannot touch the second. With `is_shared` the
        user's own code has put a part of the checkpoint there, and the name stays as it is.
        """
        number = self.record.next_number
        if directory is None:
            directory = default_directory(number)
        elif is_shared:
            self._must_be_placeable(directory)
        else:
            self._must_be_free(directory)
            if directory in self.record.names:
                directory = f"{directory}-{number:06d}"
        facts = {"number": number, "directory": directory, "attempt": attempt}
        self._record_soon([("checkpoint_begun", facts)])
        return Slot(number, directory, self.epoch, attempt)

    def _must_be_free(self, directory: str) -> None:
        """Raise if a checkpoint cannot have this name, or other files are there."""
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
        placed_by: int = 0,
    ) -> Manifest:
        """Commit what the ranks delivered, and the folder `placed` by the user, as one checkpoint.

        If there are both, the files in the folder count as those of rank `placed_by`. On return the
        checkpoint is durable, and the one that is restored after a crash.
        """
        manifest = self.write_checkpoint(
            slot,
            parts,
            world_size=world_size,
            step=step,
            metrics=metrics,
            placed=placed,
            placed_by=placed_by,
        )
        self._record([("checkpoint_committed", Kept.of(manifest).to_data())])
        return manifest

    def write_checkpoint(
        self,
        slot: Slot,
        parts: Iterable[Part],
        *,
        world_size: int = 1,
        step: int | None = None,
        metrics: Mapping[str, Any] | None = None,
        placed: str | None = None,
        placed_by: int = 0,
    ) -> Manifest:
        """Do everything that `commit_checkpoint` does except journaling the commit.

        May be called from another thread while no thread uses these checkpoints.
        """
        if slot.epoch != self.epoch or slot.number not in self.record.begun:
            raise Conflict(
                f"checkpoint {slot.number} of epoch {slot.epoch} cannot be committed:"
                " its attempt is over, or it was committed before"
            )
        self._settle()
        parts = list(parts)
        if placed is not None:
            self._must_be_placeable(placed, slot)
        if placed is None:
            merged = publish(self.store, slot, parts)
            files, folders = merged.files, merged.folders
        elif parts:
            files, folders = publish_beside(self.store, slot, parts, placed_by)
        else:
            files, folders = take_stock(self.store, placed)
        manifest = Manifest(
            run_id=self.run_id,
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
        return manifest

    def _must_be_placeable(self, placed: str, slot: Slot | None = None) -> None:
        """Raise if the folder that the user's own code has filled cannot be a checkpoint."""
        is_given = slot is not None and placed == slot.directory
        rule = None if is_given else self.record.broken_naming_rule(placed)
        if rule is None and has_manifest(self.store, placed):
            rule = "it is a checkpoint already"
        if rule is not None:
            raise ConfigError(
                f"the folder {shown(placed)} cannot be made a checkpoint: {rule}",
                hint="put every checkpoint into a folder of its own below the run's",
            )

    def abandon_checkpoint(self, slot: Slot) -> None:
        """Remove what was delivered for a checkpoint that is given up; a sweep removes the rest."""
        discard(self.store, slot)

    def discard_unfinished(self) -> None:
        """Remove what earlier groups have left unfinished; only while no worker delivers."""
        for number, directory in self.record.begun.items():
            discard(self.store, Slot(number, directory, self.epoch, 0))
        if self.store.local is not None:
            for folder in self.store.folders(STAGING):
                if folder.startswith(SPOOLED):
                    self.store.local.discard_tree(f"{STAGING}/{folder}")

    def newest_good(
        self, watch: Watch | None = None, *, home: Store | None = None
    ) -> Manifest | None:
        """Return the newest checkpoint whose every byte is as it was saved, None if there is none.

        Newer ones that are damaged are quarantined with a warning: kept for inspection and never
        used. If one cannot be read, that raises `StoreError` and changes nothing: it may be whole.
        `home` is the run or study that these checkpoints are a part of, if they are not all of it.
        """
        for candidate in self.record.usable():
            manifest, problems = verify_checkpoint(self.store, candidate.directory, watch)
            if not problems:
                return manifest
            must_be_there(home or self.store)
            self.quarantine(candidate.number, problems)
        return None

    def quarantine(self, number: int, problems: list[str]) -> None:
        """Never use this checkpoint again, and keep it for inspection."""
        directory = self.record.kept[number].directory
        log.warning(
            "checkpoint %s of %s is damaged and set aside: %s (it is kept; once it is repaired,"
            " holdfast verify --restore %s makes it usable again)",
            directory, self.store.url, "; ".join(problems[:3]), self.store.url,
        )  # fmt: skip
        self._record([("checkpoint_quarantined", {"number": number, "problems": problems})])

    def readmit(self, watch: Watch | None = None) -> list[str]:
        """Make quarantined checkpoints that are whole usable again, and return their folders.

        One that cannot be read stays quarantined, with a warning.
        """
        readmitted = []
        for checkpoint in self.record.quarantined():
            try:
                problems = verify_checkpoint(self.store, checkpoint.directory, watch).problems
            except StoreError as error:
                log.warning("checkpoint %s stays set aside: %s", checkpoint.directory, error)
                continue
            if not problems:
                self._record([("checkpoint_readmitted", {"number": checkpoint.number})])
                readmitted.append(checkpoint.directory)
        return readmitted

    def pin(self, number: int, by: str) -> None:
        """Keep a checkpoint, whatever retention says, until `unpin` with the same `by`."""
        self._record([("checkpoint_pinned", {"number": number, "by": by})])

    def unpin(self, number: int, by: str) -> None:
        self._record([("checkpoint_unpinned", {"number": number, "by": by})])

    def retain(self, policy: Retention, needed: Collection[str] = ()) -> list[str]:
        """Delete the checkpoints that `policy` does not keep; return their folders.

        Those in the folders `needed` are kept.
        """
        numbers = [
            number
            for number in dispensable(policy, self.record.candidates())
            if self.record.kept[number].directory not in needed
        ]
        directories = [self.record.kept[number].directory for number in numbers]
        if numbers:
            self._record([("checkpoint_retired", {"number": number}) for number in numbers])
        for directory in directories:
            # The manifest goes first: with it, a checkpoint counts as whole.
            self.store.delete(manifest_key(directory))
            remove_directory(self.store, directory)
        if numbers:
            self._record([("litter_swept", {"numbers": numbers})])
        return directories


def must_be_there(run: Store) -> None:
    """Raise `StoreError` if a run is not there, as when its disk is not mounted any more.

    Then missing files do not mean that a checkpoint is damaged.
    """
    if run.stat(RUN_KEY) is None:
        raise StoreError(
            f"{run.url} cannot be found any more: {RUN_KEY} is missing",
            key=RUN_KEY,
            hint="check that the disk is mounted, then give the same command again",
        )
