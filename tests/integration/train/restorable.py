"""Training functions that can be imported, and runs of them that were cut off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.train import TrainingFailedError
from tests.integration.train.conftest import Lab
from tests.integration.train.loops import STATE, begin, die, is_first, load, save


def fail_once(config: dict[str, Any]) -> int:
    """Train for some steps; the first launch fails after step 1."""
    notes = Path(config["notes"])
    first = begin(notes)
    for step in range(first, config["steps"]):
        save(step)
        if step == 1 and is_first(notes.with_name("failed")):
            die("ValueError")
    return first


def say_word(config: dict[str, Any]) -> str:
    return f"{config['word']} after step {load()}"


def interrupted(lab: Lab, **run: Any) -> TrainingFailedError:
    """Run until it fails, with two steps saved."""
    config = {"notes": str(lab.notes), "steps": 4}
    with pytest.raises(TrainingFailedError) as failed:
        lab.fit(fail_once, config=config, **run)
    return failed.value


def steps_begun_with(lab: Lab) -> list[int | None]:
    return [fact["step"] for fact in lab.begun()]


def read_given(config: dict[str, Any]) -> str:
    with config["begin_with"].as_directory() as folder:
        return Path(folder, STATE).read_text()


def fail_less(config: dict[str, Any]) -> int | None:
    """Save two steps, unless there is something to begin with; return what there was."""
    notes = Path(config["notes"])
    first = begin(notes)
    for step in range(first, first + config.get("steps", 2)):
        save(step)
    return None if first == 0 else first - 1


def everything(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
