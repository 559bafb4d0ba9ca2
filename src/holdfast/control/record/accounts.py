"""What else a run's journal can amount to, beside the record of its checkpoints."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from holdfast.core.checkpoint.record import Event
from holdfast.errors import HoldfastError
from holdfast.journal.journal import Journal
from holdfast.journal.segments import Record

log = logging.getLogger(__name__)


class Account(Protocol):
    """One thing that a journal amounts to: made of its events, and of nothing else."""

    def apply(self, kind: str, data: Mapping[str, Any]) -> None:
        """Take in one event; of those that are not its own, nothing."""
        ...

    def to_events(self) -> list[Event]:
        """Return the events that lead to where it is."""
        ...


class Compaction:
    """Shortens a journal to what it amounts to in all accounts, off the path of commits."""

    def __init__(self, journal: Journal, accounts: Sequence[Callable[[], Account]]) -> None:
        self._journal, self._accounts = journal, accounts
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Do it now."""
        self._journal.compact(self._reduced)

    def begin(self) -> None:
        """Do it aside; nothing happens if it is being done."""
        if self._thread is not None and self._thread.is_alive():
            return
        self._thread = threading.Thread(
            target=self._run_quietly, name="holdfast-compaction", daemon=True
        )
        self._thread.start()

    def join(self) -> None:
        """Return once none is being done."""
        if self._thread is not None:
            self._thread.join()

    def _run_quietly(self) -> None:
        try:
            self.run()
        except HoldfastError as error:
            log.warning("the journal could not be compacted, it stays long: %s", error)

    def _reduced(self, records: Iterable[Record]) -> list[Event]:
        accounts = [new() for new in self._accounts]
        for record in records:
            for account in accounts:
                account.apply(record.kind, record.data)
        return [event for account in accounts for event in account.to_events()]
