"""A study over objects, as its users write it; the first launch hangs in its trials until killed.

python -m tests.integration.tune.objects_script FOLDER GENERATION [again|bare]
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import holdfast
from holdfast import tune
from holdfast.data import Dataset, from_items
from holdfast.tune import Checkpoint, RunConfig, TuneConfig, Tuner
from tests.integration.train.loops import note


class LargeModel:
    """Notes whenever it is serialised."""

    def __init__(self, model_id: int, generation: int, notes: Path) -> None:
        self.model_id, self.generation, self.notes = model_id, generation, notes
        self.weights = np.full(1_000_000, float(model_id))

    def __getstate__(self) -> dict[str, Any]:
        note(self.notes, what="pickled", model=self.model_id, pid=os.getpid())
        return self.__dict__


def dataset(factor: int, generation: int) -> Dataset:
    return from_items([{"x": i, "y": factor * i, "g": generation} for i in range(16)])


def train(config: dict[str, Any]) -> None:
    """Report twice; in the first generation, hang after the first report."""
    model, notes = holdfast.get(config["model_ref"]), Path(config["notes"])
    rows = config["datasets"]["train"].take_all()
    checkpoint = tune.get_checkpoint()
    seen = {
        "trial": tune.get_context().get_trial_id(),
        "model": model.model_id,
        "weights": float(model.weights.sum()),
        "factor": rows[1]["y"],
        "generation": model.generation,
        "rows": rows[0]["g"],
        "lr": config["lr"],
        "is_resumed": checkpoint is not None,
    }
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "state.json").write_text(json.dumps({"step": 1}))
        tune.report({"model_id": model.model_id}, checkpoint=Checkpoint.from_directory(folder))
    note(notes, what="saw", **seen)
    if model.generation == 1:
        signal.pause()
    tune.report({"model_id": model.model_id, "generation": model.generation})


def space(folder: Path, generation: int) -> dict[str, Any]:
    notes = folder / "notes"
    refs = [holdfast.put(LargeModel(number, generation, notes)) for number in (1, 2)]
    for ref in refs:
        note(notes, what="put", token=ref.id)
    return {
        "model_ref": tune.grid_search(refs),
        "datasets": {"train": tune.grid_search([dataset(n, generation) for n in (2, 3)])},
        "lr": tune.uniform(0, 1),
        "notes": str(notes),
    }


def main() -> None:
    folder, generation, how = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    if how == "new":
        tuner = Tuner(
            train,
            param_space=space(folder, generation),
            tune_config=TuneConfig(max_concurrent_trials=2),
            run_config=RunConfig(storage_path=str(folder), name="study"),
        )
    else:
        given = None if how == "bare" else space(folder, generation)
        tuner = Tuner.restore(str(folder / "study"), train, param_space=given)
    tuner.fit()


if __name__ == "__main__":
    main()
