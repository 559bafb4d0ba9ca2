"""The `holdfast` command in tests, and studies to look at with it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.cli import main
from tests.integration.train.loops import is_first
from tests.integration.tune.conftest import Lab
from tests.integration.tune.trainables import begin, save

REUSE = {"reuse_actors": True, "max_concurrent_trials": 1}


class Ran:
    """What one run of the command did."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def fact(self, name: str) -> str | None:
        """Return what is printed beside a name."""
        lines = [line.strip() for line in self.out.splitlines()]
        return next((x.removeprefix(f"{name}  ") for x in lines if x.startswith(f"{name}  ")), None)


class Holdfast:
    """Runs the command as a user does."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> Ran:
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        out, err = self._capsys.readouterr()
        return Ran(int(ended.value.code or 0), out, err)


def search(lab: Lab, *, failing: int | None = None) -> Any:
    """Return a trainable after three trials of two checkpoints each, one of them failed if told."""
    notes = lab.notes

    def train(config: dict[str, Any]) -> None:
        print("x is", config["x"])  # noqa: T201
        for step in range(begin(notes), 3):
            if config["x"] == failing:
                raise RuntimeError("not this one")
            save(step, {"loss": 10 * config["x"] + step})

    space = {"x": tune.grid_search([0, 1, 2])}
    lab.fit(train, space, tune={"metric": "loss", "mode": "min", **REUSE})
    return train


def stopped_search(lab: Lab) -> Any:
    """Return a trainable whose driver was told to stop while the second of three trials ran."""
    notes, driver = lab.notes, os.getpid()

    def train(config: dict[str, Any]) -> None:
        for step in range(begin(notes), 4):
            if config["x"] == 1 and step == 3 and is_first(notes.with_name("stop")):
                os.kill(driver, signal.SIGINT)
                signal.pause()
            save(step, {"loss": config["x"]})

    space = {"x": tune.grid_search([0, 1, 2])}
    lab.fit(train, space, tune=REUSE)
    return train


def trial_folders(lab: Lab) -> list[Path]:
    return sorted(one for one in lab.study.iterdir() if not one.name.startswith("."))


def flip(file: Path, place: int = 0) -> None:
    """Damage one byte."""
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(bytes(data))
