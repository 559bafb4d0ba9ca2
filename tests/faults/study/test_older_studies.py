"""Studies as they were written before trials had the count of their weights: they open and end.

Recorded in commit 82e495f: a state, and what happened since.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.study_play import play
from tests.faults.study.plays import script

OLDER: dict[str, list[Any]] = json.loads(
    Path(__file__).with_name("older_studies.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("scheduler", OLDER)
def test_an_older_study_opens_at_every_event_and_comes_to_its_end(scheduler: str) -> None:
    events = [(kind, data) for kind, data in OLDER[scheduler]]
    assert events[0][0] == "study_state"
    samples = 4 if scheduler in ("PBT", "synchronous PBT") else None
    told = script(scheduler, "random", **({} if samples is None else {"samples": samples}))
    for cut in range(1, len(events) + 1):
        played = play(told, past=events[:cut])

        assert played.trials, f"cut after {cut} events"
        assert {one["status"] for one in played.trials.values()} == {"TERMINATED"}
