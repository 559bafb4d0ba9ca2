"""Which checkpoints are to be validated, and their verdicts, rebuilt from the journal."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

WANTED = "validation_wanted"
DONE = "checkpoint_validated"
SNAPSHOT = "validation_snapshot"


class ValidationStatus(enum.StrEnum):
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
        pending: Checkpoints that wait for theirs, oldest first, with the user's settings for it.
    """

    pending: dict[int, dict[str, Any]] = field(default_factory=dict)
    _verdicts: dict[int, ValidationStatus] = field(default_factory=dict)

    def verdict(self, number: int) -> ValidationStatus:
        """Return how far the validation of a checkpoint has come."""
        if number in self.pending:
            return ValidationStatus.PENDING
        return self._verdicts.get(number, ValidationStatus.NOT_WANTED)

    def apply(self, kind: str, data: Mapping[str, Any]) -> None:
        """Apply one record of the journal."""
        match kind:
            case "validation_wanted":
                self.pending[data["number"]] = dict(data["how"])
            case "checkpoint_validated":
                if self.pending.pop(data["number"], None) is not None:
                    self._verdicts[data["number"]] = ValidationStatus(data["verdict"])
            case "checkpoint_retired":
                self.pending.pop(data["number"], None)
                self._verdicts.pop(data["number"], None)
            case "validation_snapshot":
                self.pending = dict(data["pending"])
                verdicts = data["verdicts"]
                self._verdicts = {number: ValidationStatus(name) for number, name in verdicts}
            case _:
                pass

    def to_events(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the records that lead to this state."""
        if not self.pending and not self._verdicts:
            return []
        pending = [[number, settings] for number, settings in self.pending.items()]
        verdicts = [[number, str(verdict)] for number, verdict in self._verdicts.items()]
        return [(SNAPSHOT, {"pending": pending, "verdicts": verdicts})]
