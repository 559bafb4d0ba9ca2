"""What workers ask about the checkpoints of their run, answered once the answer is known."""

from __future__ import annotations

from typing import Any

from holdfast.control.group import Group
from holdfast.control.open_run import OpenRun
from holdfast.control.plan import Plan
from holdfast.core.retention import ranked
from holdfast.core.validation import ValidationLedger
from holdfast.engine.base import Engine
from holdfast.wire import Asked, Listed


class Questions:
    """The questions of one group at a time that wait for an answer."""

    def __init__(self, run: OpenRun, engine: Engine, plan: Plan, ledger: ValidationLedger) -> None:
        self._run, self._engine, self._plan, self._ledger = run, engine, plan, ledger
        self._asked: dict[tuple[int, int], Asked] = {}  # by rank and index

    def begin(self) -> None:
        """Forget what the group before has asked."""
        self._asked = {}

    def add(self, rank: int, asked: Asked) -> None:
        """Take in a question, and that the time of another was up."""
        self._asked.pop((rank, asked.instead_of), None)
        self._asked[rank, asked.index] = asked

    @property
    def asking(self) -> set[int]:
        """The ranks that wait for an answer."""
        return {rank for rank, _ in self._asked}

    def answer(self, group: Group) -> None:
        """Answer what can be: the reports it is about are settled, and so is their validation."""
        is_validated = self._plan.validator is None or not self._ledger.pending
        for (rank, index), asked in list(self._asked.items()):
            if group.has_reported(asked.reports) and (is_validated or not asked.validated):
                del self._asked[rank, index]
                self._engine.send(group.attempt, rank, Listed(index, self._kept_ones()))

    def _kept_ones(self) -> list[tuple[str, dict[str, Any], str]]:
        """Return the checkpoints there are, from worst to best, and how far validation is."""
        record = self._run.record
        order = ranked(self._plan.retention, record.candidates())
        kept = [record.kept[one.number] for one in order]
        verdict = self._ledger.verdict
        return [(one.directory, dict(one.metrics), str(verdict(one.number))) for one in kept]
