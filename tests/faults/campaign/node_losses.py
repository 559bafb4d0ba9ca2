"""Simulated nodes that are lost in the middle of a run, and those that come in their place."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import holdfast
from holdfast.engine.nodes import LocalNodes
from holdfast.train import UserCallback
from tests.integration.train.loops import note

Loss = tuple[
    int, list[int], str
]  # from which step, which of the nodes that are there, who comes when

BEFORE = "new ones have joined before"
AFTER = "new ones join when the loss is told"
WAITED_FOR = "new ones join when the run says that it waits"


def losing_nodes(
    losses: Sequence[Loss], notes: Path, *, nodes: int, workers: int
) -> list[UserCallback]:
    """Have this process place workers on simulated nodes, if it is to lose some."""
    if not losses:
        return []
    there = holdfast.init(nodes=nodes, num_cpus=workers)
    return [_LosesNodes(there, losses, notes)]


class _LosesNodes(UserCallback):
    """Loses nodes when steps have been reported by all, each time once, and one loss after another.

    Workers may report a few more steps until they are gone; what is due then comes with the next
    attempt.
    """

    def __init__(self, nodes: LocalNodes, losses: Sequence[Loss], notes: Path) -> None:
        self._nodes, self._notes = nodes, notes
        self._due = list(losses)
        self._is_losing = False
        self._missing = 0

    def after_report(self, run_context: object, metrics: Any, checkpoint: object) -> None:
        if self._is_losing or not self._due or metrics[0]["step"] < self._due[0][0]:
            return
        self._is_losing = True
        step, places, when = self._due.pop(0)
        there = [node.name for node in self._nodes.now()]
        for place in places:
            note(self._notes, what="loses", node=there[place], step=step)
            if when == BEFORE:
                self._nodes.join()
            self._nodes.fail(there[place])
        if when == WAITED_FOR:
            logging.getLogger("holdfast").addHandler(_Joins(self._nodes, len(places), self._notes))
        elif when == AFTER:
            self._missing = len(places)

    def after_exception(self, run_context: object, worker_exceptions: object) -> None:
        for _ in range(self._missing):
            self._nodes.join()
        self._missing, self._is_losing = 0, False


class _Joins(logging.Handler):
    """Has nodes join when the run says that it waits for room, once."""

    def __init__(self, nodes: LocalNodes, count: int, notes: Path) -> None:
        super().__init__()
        self._nodes, self._count, self._notes = nodes, count, notes

    def emit(self, record: logging.LogRecord) -> None:
        if "waiting for room" in record.getMessage():
            note(self._notes, what="waits", said=record.getMessage())
            for _ in range(self._count):
                self._nodes.join()
            self._count = 0
