"""Runs that trials launch: on what `init` said in the driver, and never on the same GPUs."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import train, tune
from holdfast.train import DataParallelTrainer, RunConfig, ScalingConfig
from tests.integration.train.loops import note, read_notes, wait_for


@pytest.fixture(autouse=True)
def nothing_chosen() -> Iterator[None]:
    holdfast.shutdown()
    yield
    holdfast.shutdown()


class Lab:
    """A study whose trials launch runs, and notes of which GPUs their workers saw and when."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.notes = folder, folder / "notes"

    def launch(self, needs: dict[str, float], meet: int = 0) -> Callable[[dict[str, Any]], None]:
        """Return a trial that runs workers with these needs; `meet` runs wait for each other."""
        folder, notes = self.folder, self.notes

        def trial(config: dict[str, Any]) -> None:
            name = tune.get_context().get_trial_id()

            def loop() -> None:
                note(
                    notes,
                    what="began",
                    trial=name,
                    gpus=os.environ.get("CUDA_VISIBLE_DEVICES"),
                )
                if meet:  # only now: a run that has begun holds its GPUs until it ends
                    (folder / f"all-{config['x']}").touch()
                    for other in range(meet):
                        wait_for(folder / f"all-{other}")
                note(notes, what="ended", trial=name)

            DataParallelTrainer(
                loop,
                scaling_config=ScalingConfig(
                    num_workers=config.get("n", 1),
                    use_gpu="GPU" in needs,
                    resources_per_worker={"CPU": 0.1, **needs},
                ),
                run_config=RunConfig(storage_path=str(folder), name=f"run-{name}"),
            ).fit()

        return trial

    def fit(self, trial: Any, space: dict[str, Any]) -> tune.ResultGrid:
        return tune.Tuner(
            trial,
            param_space=space,
            run_config=RunConfig(storage_path=str(self.folder), name="s"),
        ).fit()

    def gpus(self) -> dict[str, list[str]]:
        """Return the GPUs that the workers of each trial's run saw."""
        found: dict[str, list[str]] = {}
        for fact in read_notes(self.notes, "began"):
            found.setdefault(fact["trial"], []).append(fact["gpus"])
        return found


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_runs_of_two_trials_at_once_have_different_gpus(lab: Lab) -> None:
    holdfast.init(num_cpus=2, num_gpus=4)

    grid = lab.fit(
        lab.launch({"GPU": 1}, meet=2),
        {"x": tune.grid_search([0, 1]), "n": 2},
    )

    assert not grid.errors, grid.errors
    seen = [gpu for gpus in lab.gpus().values() for gpu in gpus]
    assert sorted(seen) == ["0", "1", "2", "3"]


def test_a_run_waits_until_the_run_of_another_trial_gives_its_gpus_back(lab: Lab) -> None:
    holdfast.init(num_cpus=3, num_gpus=1)

    grid = lab.fit(lab.launch({"GPU": 1}), {"x": tune.grid_search([0, 1, 2])})

    assert not grid.errors, grid.errors
    facts = [fact for fact in _in_order(lab.notes) if fact["what"] in ("began", "ended")]
    assert [fact["what"] for fact in facts] == ["began", "ended"] * 3
    assert all(facts[i]["trial"] == facts[i + 1]["trial"] for i in (0, 2, 4))


def test_what_init_has_given_a_name_is_there_for_runs_of_trials(lab: Lab) -> None:
    holdfast.init(num_cpus=2, resources={"licence": 1})

    grid = lab.fit(lab.launch({"licence": 1}), {"x": tune.grid_search([0, 1])})

    assert not grid.errors, grid.errors
    facts = [fact for fact in _in_order(lab.notes) if fact["what"] in ("began", "ended")]
    assert [fact["what"] for fact in facts] == ["began", "ended"] * 2


def test_what_there_is_not_enough_of_is_refused_and_not_waited_for(lab: Lab) -> None:
    holdfast.init(num_cpus=1, num_gpus=2)

    grid = lab.fit(lab.launch({"GPU": 1}), {"x": 0, "n": 3})

    [error] = grid.errors
    assert "3 workers with 1 GPU each do not fit: there is room for 2" in str(error)


def test_a_run_uses_the_gpus_that_its_trial_has_reserved(lab: Lab) -> None:
    holdfast.init(num_cpus=2, num_gpus=4)
    trial = tune.with_resources(lab.launch({"GPU": 1}, meet=2), {"cpu": 1, "gpu": 2})

    grid = lab.fit(trial, {"x": tune.grid_search([0, 1]), "n": 2})

    assert not grid.errors, grid.errors
    assert sorted(map(sorted, lab.gpus().values())) == [["0", "1"], ["2", "3"]]


def test_trials_that_reserve_gpus_see_their_own(tmp_path: Path) -> None:
    holdfast.init(num_cpus=2, num_gpus=2)

    def trial(config: dict[str, Any]) -> dict[str, Any]:
        (tmp_path / f"all-{config['x']}").touch()
        for other in range(2):
            wait_for(tmp_path / f"all-{other}")
        return {"gpus": os.environ["CUDA_VISIBLE_DEVICES"]}

    grid = tune.Tuner(
        tune.with_resources(trial, {"cpu": 1, "gpu": 1}),
        param_space={"x": tune.grid_search([0, 1])},
        run_config=RunConfig(storage_path=str(tmp_path), name="s"),
    ).fit()

    assert not grid.errors, grid.errors
    assert sorted(str((result.metrics or {})["gpus"]) for result in grid) == ["0", "1"]


def test_trainers_in_a_study_have_different_gpus(tmp_path: Path) -> None:
    holdfast.init(num_cpus=4, num_gpus=4)
    notes = tmp_path / "notes"

    def loop(config: dict[str, Any]) -> None:
        (tmp_path / f"all-{config['x']}").touch()
        for other in range(2):
            wait_for(tmp_path / f"all-{other}")
        note(notes, what="began", x=config["x"], gpus=os.environ["CUDA_VISIBLE_DEVICES"])
        train.report({"loss": 1.0})

    trainer = DataParallelTrainer(
        loop,
        scaling_config=ScalingConfig(
            num_workers=2, use_gpu=True, resources_per_worker={"CPU": 0.5, "GPU": 1}
        ),
    )
    grid = tune.Tuner(
        trainer,
        param_space={"train_loop_config": {"x": tune.grid_search([0, 1])}},
        run_config=RunConfig(storage_path=str(tmp_path), name="s"),
    ).fit()

    assert not grid.errors, grid.errors
    assert sorted(fact["gpus"] for fact in read_notes(notes, "began")) == ["0", "1", "2", "3"]


def test_a_run_whose_trial_was_killed_gives_its_gpus_back(lab: Lab) -> None:
    """The first attempt of the trial dies while its run has the only GPU."""
    holdfast.init(num_cpus=1, num_gpus=1)
    died, pid = lab.folder / "died", os.getpid()
    inner = lab.launch({"GPU": 1})

    def trial(config: dict[str, Any]) -> None:
        if not died.exists():

            def loop() -> None:
                died.touch()
                wait_for(lab_folder / "never")

            def kill() -> None:
                wait_for(died)
                assert os.getpid() != pid
                os.kill(os.getpid(), signal.SIGKILL)

            threading.Thread(target=kill).start()
            DataParallelTrainer(
                loop,
                scaling_config=ScalingConfig(num_workers=1, use_gpu=True),
                run_config=RunConfig(storage_path=str(lab_folder), name="first"),
            ).fit()
        inner(config)

    lab_folder = lab.folder
    grid = tune.Tuner(
        trial,
        param_space={"x": 0},
        run_config=RunConfig(
            storage_path=str(lab.folder),
            name="s",
            failure_config=train.FailureConfig(max_failures=1, backoff_max_s=0.0),
        ),
    ).fit()

    assert not grid.errors, grid.errors
    assert list(lab.gpus().values()) == [["0"]]


def _in_order(notes: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in notes.read_text().splitlines()]
