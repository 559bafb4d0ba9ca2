"""Drivers of a real study, killed at boundaries of its journal: what it decides stays the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults.campaign.decisions_script import PAIRS, TRIALS

pytestmark = pytest.mark.slow

# After how many events drivers die, one after the other; others for each pair.
LIVES = [(4, 7, 9, 6, 11), (5, 8, 3, 12, 7), (6, 9, 10, 5, 8), (7, 3, 13, 8, 6)]


def played(folder: Path, pair: str, *lives: int) -> dict[str, Any]:
    folder.mkdir()
    script = [sys.executable, "-m", "tests.faults.campaign.decisions_script", str(folder), pair]
    done = subprocess.run([*script, *map(str, lives)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


@pytest.mark.req("U-078")
@pytest.mark.parametrize(("pair", "lives"), [*zip(PAIRS, LIVES, strict=True)])
def test_a_real_study_whose_drivers_are_killed_decides_as_if_they_had_not_been(
    pair: str, lives: tuple[int, ...], tmp_path: Path
) -> None:
    wanted = played(tmp_path / "whole", pair)
    found = played(tmp_path / "killed", pair, *lives)

    assert found.pop("kills") == len(lives)
    assert wanted.pop("kills") == 0
    assert len(wanted["rows"]) == TRIALS
    assert found == wanted
