"""What else a run's journal can amount to, beside the record of its checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from holdfast.core.record import Event


class Account(Protocol):
    """One thing that a journal amounts to: made of its events, and of nothing else."""

    def apply(self, kind: str, data: Mapping[str, Any]) -> None:
        """Take in one event; of those that are not its own, nothing."""
        ...

    def to_events(self) -> list[Event]:
        """Return the events that lead to where it is."""
        ...
