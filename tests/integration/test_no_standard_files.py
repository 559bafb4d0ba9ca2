"""Drivers without input and outputs, as services and schedulers may start them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = {
    "train": """
import sys
from holdfast.train import DataParallelTrainer, RunConfig, ScalingConfig, report

def train(config):
    print("a word")
    report({"loss": 0.5})

if __name__ == "__main__":
    trainer = DataParallelTrainer(
        train,
        scaling_config=ScalingConfig(num_workers=int(sys.argv[2])),
        run_config=RunConfig(name="run", storage_path=sys.argv[1]),
    )
    result = trainer.fit()
    with open(sys.argv[1] + "/told", "w") as told:
        told.write(str(result.metrics["loss"]))
""",
    "tune": """
import sys
from holdfast import tune

def train(config):
    print("a word")
    tune.report({"loss": 0.5})

if __name__ == "__main__":
    run = tune.RunConfig(name="run", storage_path=sys.argv[1])
    [result] = tune.Tuner(train, run_config=run).fit()
    with open(sys.argv[1] + "/told", "w") as told:
        told.write(str(result.metrics["loss"]))
""",
}


@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.parametrize(("kind", "workers"), [("train", 2), ("train", 0), ("tune", 1)])
def test_a_driver_needs_no_standard_files(
    kind: str, workers: int, start: str, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPTS[kind])
    arguments = [sys.executable, str(script), str(tmp_path), str(workers)]

    done = subprocess.run(
        ["env", f"HOLDFAST_START={start}", "sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *arguments],
        check=False,
    )

    assert done.returncode == 0
    assert (tmp_path / "told").read_text() == "0.5"
    printed = [log.read_text() for log in tmp_path.glob("run/**/logs/**/*.log")]
    assert printed == ["a word\n"] * workers
    journal = [path.read_text() for path in tmp_path.glob("run/.holdfast/journal/*")]
    assert journal and "a word" not in "".join(journal)
