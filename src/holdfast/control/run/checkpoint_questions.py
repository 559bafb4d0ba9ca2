"""Answers workers that ask for the checkpoints of their run, once the list is settled."""

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
        """Add a question; it replaces one that the worker has stopped waiting for."""
        self._open.pop((rank, asked.instead_of), None)
        self._open[rank, asked.index] = _Question(asked, now)

    def asking(self, group: Group) -> set[int]:
        """Return the ranks that wait for this driver only, not for other ranks."""
        return {
            rank
            for (rank, _), question in self._open.items()
            if not group.behind(question.asked.reports)
        }

    def answer(self, group: Group, now: float) -> None:
        """Answer the questions whose reports are settled, and their validations if asked for.

        A report is settled once every rank has made it, because each may bring the checkpoint. A
        rank that has returned, or waits at a meeting for the one that asks, is not waited for.
        """
        is_validated = self._plan.validator is None or not self._run.validations.pending
        for (rank, index), question in list(self._open.items()):
            asked = question.asked
            if asked.validated and not is_validated:
                continue
            if group.is_settled(asked.reports) and not self._waits(group, rank, question, now):
                del self._open[rank, index]
                self._engine.send(group.attempt, rank, Listed(index, self._listed()))

    def _waits(self, group: Group, rank: int, question: _Question, now: float) -> bool:
        """Whether a question still waits for ranks that have not reported as often."""
        asked = question.asked
        behind = group.behind(asked.reports)
        wait = f"list of checkpoints that rank {rank} asked for after report {asked.reports}"
        is_too_late = group.is_too_late(wait, asked.index, question.since, behind, wait, now)
        return bool(behind) and not is_too_late

    def _listed(self) -> list[tuple[str, dict[str, Any], str]]:
        """Return the checkpoints from worst to best: folder, metrics and state of validation."""
        record, verdict = self._run.record, self._run.validations.verdict
        order = ranked(self._plan.retention, record.candidates())
        checkpoints = [record.kept[candidate.number] for candidate in order]
        return [
            (checkpoint.directory, dict(checkpoint.metrics), str(verdict(checkpoint.number)))
            for checkpoint in checkpoints
        ]
