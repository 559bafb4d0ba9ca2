"""Trainables of tests: they count, save what they have counted to, and note what they saw."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast import tune
from tests.integration.train.loops import note


def begin(notes: Path) -> int:
    """Note that a trial's process begins, and return the first step to do."""
    checkpoint = tune.get_checkpoint()
    step = None if checkpoint is None else load(checkpoint)
    note(notes, what="began", trial=tune.get_context().get_trial_id(), step=step)
    return 1 if step is None else step + 1


def load(checkpoint: tune.Checkpoint) -> int:
    with checkpoint.as_directory() as folder:
        return int(json.loads(Path(folder, "state.json").read_text())["step"])


def save(step: int, metrics: Mapping[str, Any] | None = None) -> None:
    """Report a step with a checkpoint of it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "state.json").write_text(json.dumps({"step": step}))
        checkpoint = tune.Checkpoint.from_directory(folder)
        tune.report({"step": step, **(metrics or {})}, checkpoint=checkpoint)


class Counter(tune.Trainable):
    """Counts, in a config of its own; saved as a dictionary."""

    def setup(self, config: dict[str, Any]) -> None:
        self.count = 0
        self.add = config.get("add", 1)

    def step(self) -> dict[str, Any]:
        self.count += self.add
        return {"count": self.count}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"count": self.count}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.count = checkpoint["count"]
