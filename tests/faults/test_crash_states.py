"""A power cut at every moment of commit, journal, lease, retention and gc, with every loss."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import HoldfastError
from holdfast.storage import transfer
from holdfast.testing.crashes import crash_states
from holdfast.testing.disk import SimDisk
from tests.faults.stories import STORIES, Violation, record, recover

STATES_MIN = {"commits": 3000, "named": 2000, "journal": 2500, "takeover": 3000}


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are written one after the other, so that a state's number means the same every time."""
    monkeypatch.setattr(transfer, "THREADS_LOCAL", 1)


def first_violation(disk: SimDisk) -> tuple[int, str | None]:
    """Recover from every state; return how many there were and the first that breaks a promise."""
    count = 0
    for point, left in crash_states(disk):
        count += 1
        try:
            recover(left, point.marks)
        except (Violation, HoldfastError, AssertionError) as error:
            return count, f"{point}\n  {type(error).__name__}: {error}"
    return count, None


@pytest.mark.timeout(300)
@pytest.mark.parametrize("story", STORIES)
def test_no_power_cut_at_any_moment_costs_anything_acknowledged(story: str, tmp_path: Path) -> None:
    count, violation = first_violation(record(STORIES[story], tmp_path))

    assert violation is None, violation
    assert count >= STATES_MIN[story], f"only {count} states: is everything recorded?"
