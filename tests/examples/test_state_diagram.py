"""The state diagram in the docs is the one that the run machine has."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import get_args

from holdfast.core.run.machine import Event, Phase

TOOL = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "state_diagram.py"))


def test_the_diagram_in_the_docs_is_the_generated_one() -> None:
    page = TOOL["PAGE"].read_text()

    assert TOOL["with_diagram"](page) == page, "run: python tools/state_diagram.py"


def test_the_diagram_is_made_from_every_state_and_every_event() -> None:
    assert {type(event) for _, event in TOOL["_events"]()} == set(get_args(Event))
    assert {type(phase) for phase in TOOL["_STATES"].values()} == set(get_args(Phase))
