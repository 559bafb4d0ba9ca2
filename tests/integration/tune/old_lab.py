"""A place for studies of `tune.run`'s era: storage, notes, and drivers that are killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from tests.families import end_family
from tests.integration.train.loops import read_notes
from tests.integration.tune import classes
from tests.integration.tune.classes import Counter
from tests.patience import pause


class OldLab:
    """Runs studies, always with the same place and name unless told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.storage = folder / "storage"
        self.study = self.storage / "study"
        self.notes = folder / "notes"
        self.drivers: list[subprocess.Popen[str]] = []

    def run(self, trainable: Any = Counter, config: Any = None, **given: Any) -> Any:
        """Call `tune.run`, without a word of what is deprecated."""
        usual = {"name": "study", "local_dir": str(self.storage)}
        if trainable is Counter:
            usual["stop"] = {"training_iteration": 6}  # type: ignore[assignment]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            config = {"notes": str(self.notes), **(config or {})}
            return tune.run(trainable, config=config, **{**usual, **given})

    # ------------------------------------------------------------------ drivers of their own

    def launch(self, config: Any = None, **given: Any) -> subprocess.Popen[str]:
        usual = {"name": "study", "local_dir": str(self.storage), "config": config or {}}
        process = subprocess.Popen(
            [sys.executable, "-m", classes.__name__, str(self.notes), json.dumps(usual | given)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.drivers.append(process)
        return process

    def finish(self, config: Any = None, **given: Any) -> tuple[list[Any], str]:
        """Run a driver to its end; return its trials, and what it said."""
        process = self.launch(config, **given)
        output, errors = process.communicate()
        assert process.returncode == 0, errors
        return json.loads(output), errors

    def interrupt(
        self,
        driver: subprocess.Popen[str],
        *,
        waiting: int = 1,
        number: signal.Signals = signal.SIGKILL,
    ) -> str:
        """Signal a driver once so many trials wait; return what it said, when all is gone."""
        while len(self.noted("waits")) < waiting:
            assert driver.poll() is None, driver.communicate()[1]
            pause()
        _, errors = end_family(driver, number)
        return errors

    def open_gate(self) -> None:
        """Let trials pass that wait."""
        (self.folder / "gate").touch()

    # ------------------------------------------------------------------ what there is

    def noted(self, what: str) -> list[dict[str, Any]]:
        return read_notes(self.notes, what)

    def counts(self, what: str = "step") -> list[int]:
        """Return what the trial, if there is but one, was at whenever it noted something."""
        assert len({one["trial"] for one in self.noted(what)}) <= 1
        return [one["count"] for one in self.noted(what)]

    def close(self) -> None:
        for driver in self.drivers:
            driver.kill()
            driver.communicate()


@pytest.fixture
def old_lab(tmp_path: Path) -> Iterator[OldLab]:
    lab = OldLab(tmp_path)
    yield lab
    lab.close()


def saved(trial: Any) -> list[int]:
    """Return at which iterations the checkpoints were made that a trial has."""
    return sorted(metrics["training_iteration"] for _, metrics in trial.checkpoints)
