"""Accounts: the states that are rebuilt from a run's journal, and its compaction to them."""

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
    """A state that follows from the events of a journal, and from nothing else."""

    def apply(self, kind: str, data: Mapping[str, Any]) -> None:
        """Apply one event; events of other accounts are ignored."""
        ...

    def to_events(self) -> list[Event]:
        """Return the events that lead to this state."""
        ...


class Compaction:
    """Shortens a journal to the events that its accounts need.

    `accounts` makes an empty one of each; there must be one for every event that is to be kept.
    """

    def __init__(self, journal: Journal, accounts: Sequence[Callable[[], Account]]) -> None:
        self._journal, self._accounts = journal, accounts
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Compact the journal now."""
        self._journal.compact(self._reduced)

    def begin(self) -> None:
        """Compact the journal in a thread, if none does so already."""
        if self._thread is not None and self._thread.is_alive():
            return
        self._thread = threading.Thread(
            target=self._run_quietly, name="holdfast-compaction", daemon=True
        )
        self._thread.start()

    def join(self) -> None:
        """Return once no thread compacts the journal."""
        if self._thread is not None:
            self._thread.join()

    def _run_quietly(self) -> None:
        try:
            self.run()
        except HoldfastError as error:
            log.warning("the journal could not be compacted and stays long: %s", error)

    def _reduced(self, records: Iterable[Record]) -> list[Event]:
        accounts = [new() for new in self._accounts]
        for record in records:
            for account in accounts:
                account.apply(record.kind, record.data)
        return [event for account in accounts for event in account.to_events()]
