"""Runs and studies that nobody named: their names are never taken."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.clock import SYSTEM_CLOCK
from holdfast.control.record.identity import read_identity
from holdfast.control.record.new_names import claim
from holdfast.storage.locate import open_store
from holdfast.storage.prefix import child
from holdfast.train import DataParallelTrainer, RunConfig
from holdfast.tune import Tuner
from tests.integration.tune.conftest import last
from tests.servers.storage import S3Server

LOOK = "2026-11-17_14-08-15"
SCRIPT = """
import sys, json, time
from holdfast import tune

def train(config):
    return {"x": config["x"]}

time.strftime = lambda *given: "2026-11-17_14-08-15"
storage, x = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
run = tune.RunConfig(storage_path=storage, verbose=0)
grid = tune.Tuner(train, param_space={"x": x}, run_config=run).fit()
print(json.dumps([grid.experiment_path, [one.metrics["x"] for one in grid]]))
"""


def train(config: dict[str, Any]) -> dict[str, Any]:
    return {"x": config["x"]}


@pytest.fixture
def one_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have everything that reads the clock for a name happen in the same second."""
    monkeypatch.setattr("time.strftime", lambda *_: LOOK)


@pytest.mark.usefixtures("one_second")
def test_studies_of_one_second_have_folders_of_their_own(tmp_path: Path) -> None:
    def fit(x: int) -> tune.ResultGrid:
        run = tune.RunConfig(storage_path=str(tmp_path), verbose=0)
        return Tuner(train, param_space={"x": x}, run_config=run).fit()

    grids = [fit(0), fit(1)]

    first, second = (Path(one.experiment_path) for one in grids)
    assert first.name == f"train_{LOOK}"
    assert second.name.startswith(f"train_{LOOK}_") and second.parent == first.parent
    assert [[last(one)["x"] for one in grid] for grid in grids] == [[0], [1]]
    again = Tuner.restore(str(second), train).fit()
    assert [last(one)["x"] for one in again] == [1]


@pytest.mark.usefixtures("one_second")
def test_calls_of_tune_run_leave_what_earlier_ones_came_to_where_it_is(tmp_path: Path) -> None:
    first, second = (
        tune.run(train, config={"x": x}, storage_path=str(tmp_path), verbose=0) for x in (0, 1)
    )

    assert Path(first.experiment_path).name == f"train_{LOOK}"
    assert len(list(tmp_path.iterdir())) == 2
    assert [one.trials[0].last_result["x"] for one in (first, second)] == [0, 1]
    assert all(Path(one.trials[0].local_path).is_dir() for one in (first, second))


def test_resume_without_a_name_finds_the_newest_study_of_the_trainable(tmp_path: Path) -> None:
    common: dict[str, Any] = {"storage_path": str(tmp_path), "verbose": 0}
    first = tune.run(train, config={"x": 0}, **common)
    second = tune.run(train, config={"x": 1}, resume=False, **common)

    again = tune.run(train, config={"x": 1}, resume=True, **common)
    begun = tune.run(train, config={"x": 2}, resume="AUTO", storage_path=str(tmp_path / "new"))

    assert first.experiment_path != second.experiment_path == again.experiment_path
    assert begun.trials[0].last_result["x"] == 2


@pytest.mark.usefixtures("one_second")
def test_a_trainer_never_takes_the_run_of_another_for_its_own(tmp_path: Path) -> None:
    config = RunConfig(storage_path=str(tmp_path))  # one config, as a script shares it
    trainers = [DataParallelTrainer(lambda: None, run_config=config) for _ in range(2)]
    results = [trainer.fit() for trainer in trainers]
    again = trainers[1].fit()

    assert results[0].path != results[1].path
    assert again.path == results[1].path, "a trainer carries on with a run of its own"


def test_processes_that_begin_at_once_have_studies_of_their_own(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    storage = tmp_path / "storage"
    drivers = [
        subprocess.Popen(
            [sys.executable, script, storage, str(x)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for x in range(2)
    ]
    for driver in drivers:
        assert driver.stdout is not None and driver.stdout.readline() == "ready\n"
    answers = [json.loads(out) for out, _ in map(_go, drivers)]

    assert [values for _, values in answers] == [["0"], ["1"]]
    assert len({path for path, _ in answers}) == 2


def _go(driver: subprocess.Popen[str]) -> tuple[str, str]:
    assert driver.stdin is not None
    driver.stdin.write("\n")
    driver.stdin.flush()
    return driver.communicate()


@pytest.mark.s3
@pytest.mark.parametrize("server", ["s3_server", "moto_server", None])
def test_of_many_that_race_for_one_name_each_has_another(
    server: str | None,
    request: pytest.FixtureRequest,
    new_folder: Callable[[], str],
    tmp_path: Path,
) -> None:
    where = str(tmp_path)
    if server is not None:
        running: S3Server = request.getfixturevalue(server)
        where = running.uri("lab", new_folder())
    start = threading.Barrier(12)

    def take(_: int) -> str:
        storage = open_store(where)
        start.wait()
        return claim(storage, f"train_{LOOK}", kind="tune", clock=SYSTEM_CLOCK)

    with ThreadPoolExecutor(12) as pool:
        names = list(pool.map(take, range(12)))

    storage = open_store(where)
    assert len(set(names)) == 12 and f"train_{LOOK}" in names
    assert sorted(storage.folders()) == sorted(names)
    assert [read_identity(child(storage, name)).name for name in names] == names


def test_a_folder_with_files_of_somebody_else_is_taken(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "thesis.tex").write_text("years of work")

    name = claim(open_store(tmp_path), "train", kind="tune", clock=SYSTEM_CLOCK)

    assert name.startswith("train_")
    assert [path.name for path in (tmp_path / "train").iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("name", ["ü" * 300, "a/b", "..", "nul\0", "x" * 300])
def test_a_trainable_may_have_any_name(name: str, tmp_path: Path) -> None:
    tune.register_trainable(name, train)
    run = tune.RunConfig(storage_path=str(tmp_path), verbose=0)

    [result] = Tuner(name, param_space={"x": 1}, run_config=run).fit()

    assert result.error is None and result.metrics is not None and result.metrics["x"] == 1
