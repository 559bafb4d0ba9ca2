"""Which checkpoints are to be validated, and what came of it: an account of the journal."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

WANTED = "validation_wanted"
DONE = "checkpoint_validated"
SNAPSHOT = "validation_snapshot"


class Verdict(enum.StrEnum):
    """How far the validation of a checkpoint has come."""

    NOT_WANTED = "committed"
    PENDING = "pending_validation"
    VALIDATED = "validated"
    TIMED_OUT = "validation_timeout"
    FAILED = "validation_failed"


@dataclass
class ValidationLedger:
    """The validations of a run.

    Attributes:
        pending: Checkpoints that wait for theirs, oldest first, with how it is to be done.
    """

    pending: dict[int, dict[str, Any]] = field(default_factory=dict)
    _verdicts: dict[int, Verdict] = field(default_factory=dict)

    def verdict(self, number: int) -> Verdict:
        """Return how far the validation of a checkpoint has come."""
        if number in self.pending:
            return Verdict.PENDING
        return self._verdicts.get(number, Verdict.NOT_WANTED)

    def apply(self, kind: str, data: Mapping[str, Any]) -> None:
        """Take in one record of the journal."""
        match kind:
            case "validation_wanted":
                self.pending[data["number"]] = dict(data["how"])
            case "checkpoint_validated":
                if self.pending.pop(data["number"], None) is not None:
                    self._verdicts[data["number"]] = Verdict(data["verdict"])
            case "checkpoint_retired":
                self.pending.pop(data["number"], None)
                self._verdicts.pop(data["number"], None)
            case "validation_snapshot":
                self.pending = dict(data["pending"])
                self._verdicts = {number: Verdict(one) for number, one in data["verdicts"]}
            case _:
                pass

    def to_events(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the records that lead to where it is."""
        if not self.pending and not self._verdicts:
            return []
        pending = [[number, how] for number, how in self.pending.items()]
        verdicts = [[number, str(one)] for number, one in self._verdicts.items()]
        return [(SNAPSHOT, {"pending": pending, "verdicts": verdicts})]
