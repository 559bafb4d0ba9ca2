"""Writes the state diagram of a run into docs/architecture.md, from `core.run.machine.advance`.

Every state meets every event, of the current attempt, with a budget that allows another attempt and
with one that is used up. What comes of it is an arrow; an event that changes nothing has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from holdfast.core.run.budget import Budget
from holdfast.core.run.machine import (
    Active,
    CheckpointCommitted,
    DriverStarted,
    Ending,
    Event,
    GroupEnded,
    GroupNotStarted,
    GroupPaused,
    Idle,
    Over,
    Phase,
    RestartWanted,
    Run,
    StartWanted,
    Stopping,
    StopRequested,
    advance,
)
from holdfast.core.run.outcomes import Finished, Raised

PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
BEGIN, END = "<!-- the state diagram begins -->", "<!-- the state diagram ends -->"
_BUDGETS = {"retries left": Budget(failures=1, starts=1), "none left": Budget(failures=0, starts=0)}
_STATES: dict[str, Phase] = {
    "Idle": Idle(),
    "Active": Active(1),
    "Restarting": Stopping(1, None),
    "Stopping": Stopping(1, Ending.STOPPED),
    "Over": Over(Ending.FAILED),
}


def diagram() -> str:
    """Return the diagram in Mermaid's language."""
    arrows: dict[tuple[str, str, str], list[str]] = {}
    for state, label, budget, goal in _transitions():
        budgets = arrows.setdefault((state, goal, label), [])
        if budget not in budgets:
            budgets.append(budget)
    edges: dict[tuple[str, str], list[str]] = {}
    for (state, goal, label), budgets in arrows.items():
        depends = len(budgets) < len(_BUDGETS)
        edges.setdefault((state, goal), []).append(f"{label}, {budgets[0]}" if depends else label)
    lines = ["stateDiagram-v2", "    [*] --> Idle"]
    for (state, goal), labels in edges.items():
        lines.append(f"    {state} --> {goal}: {'<br>'.join(labels)}")
    return "\n".join(lines)


def _transitions() -> Iterator[tuple[str, str, str, str]]:
    """Yield from which state which event leads where, with which budget."""
    for state, phase in _STATES.items():
        for label, event in _events():
            for name, budget in _BUDGETS.items():
                run = Run(phase=phase, attempts=0 if phase == Idle() else 1, budget=budget)
                after = advance(run, event)
                if after.run.phase != phase:
                    yield state, label, name, _name(after.run.phase)


def _events() -> Iterator[tuple[str, Event]]:
    yield "DriverStarted", DriverStarted(Budget())
    yield "StartWanted", StartWanted()
    yield "CheckpointCommitted", CheckpointCommitted(1, 1)
    yield "GroupEnded (finished)", GroupEnded(1, (Finished(0, "node"),))
    yield "GroupEnded (failed)", GroupEnded(1, (Raised(0, "node", "ValueError", ""),))
    yield "GroupNotStarted", GroupNotStarted(1, "no room")
    yield "GroupPaused", GroupPaused(1)
    yield "RestartWanted", RestartWanted(1, "more room")
    yield "StopRequested", StopRequested(Ending.STOPPED)


def _name(phase: Phase) -> str:
    if isinstance(phase, Stopping):
        return "Restarting" if phase.then is None else "Stopping"
    return type(phase).__name__


def with_diagram(page: str) -> str:
    """Return the page with the diagram of today between the marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n```mermaid\n{diagram()}\n```\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_diagram(PAGE.read_text()))
