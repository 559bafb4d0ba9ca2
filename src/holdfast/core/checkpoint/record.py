"""The checkpoints of a run, rebuilt from the events of its journal: pure bookkeeping.

No clock, no store. Only `apply` changes a record, so the same events always lead to the same
record. Events of other kinds are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.core.checkpoint.manifest import Manifest
from holdfast.core.checkpoint.retention import Candidate
from holdfast.core.names import broken_path_rule

Event = tuple[str, dict[str, Any]]
_RESERVED = re.compile(r"(\.holdfast|checkpoint_\d+)(/|$)")  # names that only runs give out


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A committed checkpoint that has not been retired.

    Attributes:
        problems: Why it must not be used, if it must not; it is kept for inspection.
        pins: What asked to keep it; it is not retired while there are any.
    """

    number: int
    directory: str
    epoch: int
    attempt: int
    step: int | None
    metrics: Mapping[str, Any]
    created: float
    problems: tuple[str, ...] = ()
    pins: tuple[str, ...] = ()

    @classmethod
    def of(cls, manifest: Manifest) -> Kept:
        return cls(
            number=manifest.number,
            directory=manifest.directory,
            epoch=manifest.epoch,
            attempt=manifest.attempt,
            step=manifest.step,
            metrics=manifest.metrics,
            created=manifest.created,
        )

    def to_data(self) -> dict[str, Any]:
        data = {name: getattr(self, name) for name in self.__slots__}
        return data | {"problems": list(self.problems), "pins": list(self.pins)}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Kept:
        facts: dict[str, Any] = {name: data[name] for name in cls.__slots__ if name in data}
        lists = {name: tuple(data.get(name, ())) for name in ("problems", "pins")}
        return cls(**facts | lists)


@dataclass(slots=True)
class RunRecord:
    """The checkpoints of a run according to its journal.

    Attributes:
        epoch: The last epoch that opened the run.
        next_number: The next checkpoint number to give out.
        kept: Committed checkpoints by number, including quarantined ones.
        begun: Folders by number that were given out and have not been committed.
        names: All folders ever given out with a name chosen by the user.
        retired: Folders by number whose checkpoint was given up and may not be deleted yet.
        burnt: Numbers that were given out, never committed, and swept: files that appear in their
            folders later come from a writer that was replaced.
        known_damage: Damage of the journal that has been reported already.
        closed: Whether the last driver closed the run properly.
    """

    epoch: int = 0
    next_number: int = 0
    kept: dict[int, Kept] = field(default_factory=dict)
    begun: dict[int, str] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    retired: dict[int, str] = field(default_factory=dict)
    burnt: set[int] = field(default_factory=set)
    known_damage: dict[str, str] = field(default_factory=dict)
    closed: bool = False

    def apply(self, kind: str, data: Mapping[str, Any]) -> None:
        """Apply one event of the journal."""
        match kind:
            case "run_opened":
                self.open(data["epoch"])
                self.next_number = max(self.next_number, data["next_number"])
            case "run_closed":
                self.closed = True
            case "checkpoint_begun":
                self.next_number = max(self.next_number, data["number"] + 1)
                self.begun[data["number"]] = data["directory"]
                if not _RESERVED.fullmatch(data["directory"]):
                    self.names.add(data["directory"])
            case "checkpoint_committed":
                committed = Kept.from_data(data)
                self.next_number = max(self.next_number, committed.number + 1)
                self.kept[committed.number] = committed
                self.begun.pop(committed.number, None)
                self.burnt.discard(committed.number)
            case "checkpoint_retired":
                self._retire(data["number"])
            case "checkpoint_quarantined" | "checkpoint_readmitted":
                self._change(data["number"], problems=tuple(data.get("problems", ())))
            case "checkpoint_pinned":
                pins = self._pins(data["number"])
                self._change(data["number"], pins=tuple(dict.fromkeys((*pins, data["by"]))))
            case "checkpoint_unpinned":
                pins = self._pins(data["number"])
                self._change(data["number"], pins=tuple(p for p in pins if p != data["by"]))
            case "checkpoint_validated":
                self._add_metrics(data["number"], data["metrics"])
            case "litter_swept":
                self._sweep(data["numbers"])
            case "journal_damaged":
                self.known_damage[data["identity"]] = data["what"]
            case "record_snapshot":
                self._restore(data)
            case _:
                pass  # for another account of the journal

    def open(self, epoch: int) -> None:
        """Begin an epoch: what the driver of an earlier one commits from now on does not count."""
        self.epoch, self.closed = epoch, False

    def usable(self) -> list[Kept]:
        """Return the checkpoints that may be restored, newest first."""
        whole = (checkpoint for checkpoint in self.kept.values() if not checkpoint.problems)
        return sorted(whole, key=lambda checkpoint: -checkpoint.number)

    def newest(self) -> Kept | None:
        """Return the newest checkpoint that may be restored, None if there is none."""
        newest = self.kept.get(max(self.kept, default=-1))
        if newest is None or not newest.problems:
            return newest
        return next(iter(self.usable()), None)

    def quarantined(self) -> list[Kept]:
        """Return the checkpoints that must not be used, oldest first."""
        bad = (checkpoint for checkpoint in self.kept.values() if checkpoint.problems)
        return sorted(bad, key=lambda checkpoint: checkpoint.number)

    def candidates(self) -> list[Candidate]:
        """Return the usable checkpoints as retention sees them."""
        return [Candidate(k.number, k.metrics, bool(k.pins)) for k in self.usable()]

    def is_current(self, manifest: Manifest) -> bool:
        """Whether a manifest is a commit of this epoch that the journal does not have.

        Its driver was cut off before the journal entry. A manifest of an earlier epoch was put by a
        driver that had been replaced, after its successor had looked: its commit was never
        acknowledged, and training has gone on without it.
        """
        is_known = manifest.number in self.kept or manifest.number in self.retired
        return manifest.epoch >= self.epoch and not is_known

    def broken_naming_rule(self, directory: str) -> str | None:
        """Return why no checkpoint of this run can have the name `directory`."""
        if rule := broken_path_rule(directory):
            return rule
        if _RESERVED.match(directory):
            return "names of this form are given out by the run itself"
        for taken in {checkpoint.directory for checkpoint in self.kept.values()} | self.names:
            if taken != directory and f"{taken}/".startswith(f"{directory}/"):
                return f"a checkpoint cannot hold another, and there is {taken!r}"
            if taken != directory and f"{directory}/".startswith(f"{taken}/"):
                return f"a checkpoint cannot lie inside another, and there is {taken!r}"
        return None

    def to_events(self) -> list[Event]:
        """Return the shortest list of events that leads to this record."""
        return [
            (
                "record_snapshot",
                {
                    "epoch": self.epoch,
                    "next_number": self.next_number,
                    "kept": [checkpoint.to_data() for checkpoint in self.kept.values()],
                    "begun": [[number, folder] for number, folder in self.begun.items()],
                    "retired": [[number, folder] for number, folder in self.retired.items()],
                    "burnt": sorted(self.burnt),
                    "names": sorted(self.names),
                    "known_damage": dict(self.known_damage),
                    "closed": self.closed,
                },
            )
        ]

    def _restore(self, data: Mapping[str, Any]) -> None:
        self.epoch, self.next_number = data["epoch"], data["next_number"]
        self.kept = {facts["number"]: Kept.from_data(facts) for facts in data["kept"]}
        self.begun = dict(data["begun"])
        self.retired = dict(data["retired"])
        self.burnt = set(data.get("burnt", ()))
        self.names = set(data["names"])
        self.known_damage, self.closed = dict(data["known_damage"]), data["closed"]

    def _pins(self, number: int) -> tuple[str, ...]:
        checkpoint = self.kept.get(number)
        return checkpoint.pins if checkpoint else ()

    def _sweep(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            if self.begun.pop(number, None) is not None:
                self.burnt.add(number)
            self.retired.pop(number, None)

    def _retire(self, number: int) -> None:
        retired = self.kept.pop(number, None)
        if retired is not None:
            self.retired[number] = retired.directory

    def _add_metrics(self, number: int, metrics: Mapping[str, Any]) -> None:
        checkpoint = self.kept.get(number)
        if checkpoint is not None:
            self._change(number, metrics={**checkpoint.metrics, **metrics})

    def _change(self, number: int, **changes: Any) -> None:
        checkpoint = self.kept.get(number)
        if checkpoint is not None:
            self.kept[number] = replace(checkpoint, **changes)


def record_of(events: Iterable[tuple[str, Mapping[str, Any]]]) -> RunRecord:
    """Return the record that a list of events leads to."""
    record = RunRecord()
    for kind, data in events:
        record.apply(kind, data)
    return record
