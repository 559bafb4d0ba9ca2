"""What workers ask about the checkpoints of their run, answered once the answer is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.control.record.open_run import OpenTrainingRun
from holdfast.control.run.group import Group
from holdfast.control.run.plan import Plan
from holdfast.core.checkpoint.retention import ranked
from holdfast.engine.base import Engine
from holdfast.wire import Asked, Listed


@dataclass(frozen=True, slots=True)
class _Question:
    """A question that waits for its answer, and since when."""

    asked: Asked
    since: float


class CheckpointQuestions:
    """The questions of one group that wait for an answer."""

    def __init__(self, run: OpenTrainingRun, engine: Engine, plan: Plan) -> None:
        self._run, self._engine, self._plan = run, engine, plan
        self._open: dict[tuple[int, int], _Question] = {}  # by rank and index

    def add(self, rank: int, asked: Asked, now: float) -> None:
        """Take in a question, and that the time of another was up."""
        self._open.pop((rank, asked.instead_of), None)
        self._open[rank, asked.index] = _Question(asked, now)

    def asking(self, group: Group) -> set[int]:
        """Return the ranks that wait for nothing but this driver; others may have stopped."""
        return {
            rank for (rank, _), one in self._open.items() if not group.behind(one.asked.reports)
        }

    def answer(self, group: Group, now: float) -> None:
        """Answer what can be: the reports it is about are settled, and so is their validation.

        A report is settled once every rank has made it, because each may bring the checkpoint; a
        rank that has returned, or waits at a meeting for the one that asks, will not.
        """
        is_validated = self._plan.validator is None or not self._run.validations.pending
        for (rank, index), one in list(self._open.items()):
            reports, is_content = one.asked.reports, is_validated or not one.asked.validated
            if is_content and group.is_settled(reports) and not self._waits(group, rank, one, now):
                del self._open[rank, index]
                self._engine.send(group.attempt, rank, Listed(index, self._kept_ones()))

    def _waits(self, group: Group, rank: int, one: _Question, now: float) -> bool:
        """Whether a question still waits for ranks that have not reported as often."""
        behind = group.behind(one.asked.reports)
        what = f"list of checkpoints that rank {rank} asked for after report {one.asked.reports}"
        is_too_late = group.is_too_late(what, one.asked.index, one.since, behind, what, now)
        return bool(behind) and not is_too_late

    def _kept_ones(self) -> list[tuple[str, dict[str, Any], str]]:
        """Return the checkpoints there are, from worst to best, and how far validation is."""
        record = self._run.record
        order = ranked(self._plan.retention, record.candidates())
        kept = [record.kept[one.number] for one in order]
        verdict = self._run.validations.verdict
        return [(one.directory, dict(one.metrics), str(verdict(one.number))) for one in kept]
