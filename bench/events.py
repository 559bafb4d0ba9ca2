"""Events as a study writes them, and journals filled with them."""

from __future__ import annotations

from typing import Any

from holdfast.journal.journal import Journal, Ticket

BATCH = 1000


def event(number: int) -> tuple[str, dict[str, Any]]:
    """Return an event of the size and shape that state changes of a trial have."""
    return "trial_reported", {
        "trial": f"{number % 1000:05d}",
        "attempt": 1,
        "step": number,
        "metrics": {"loss": 1 / (number + 1), "accuracy": number % 97 / 97},
    }


def fill(journal: Journal, count: int, *, in_flight: int = BATCH) -> None:
    """Append `count` events from one thread, with up to `in_flight` of them not yet durable."""
    tickets: list[Ticket] = []
    for number in range(count):
        tickets.append(journal.append(*event(number)))
        if len(tickets) == in_flight:
            tickets[-1].wait()
            tickets.clear()
    if tickets:
        tickets[-1].wait()
