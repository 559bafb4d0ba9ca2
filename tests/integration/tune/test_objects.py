"""Studies whose search space holds objects: references, models, datasets."""

from __future__ import annotations

import os
import pickle
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
from holdfast import tune
from holdfast.errors import ConfigError
from holdfast.tune import RunConfig, Trainable, Tuner
from tests.families import end_family
from tests.integration.train.loops import BELL, read_notes

SCRIPT = "tests.integration.tune.objects_script"
LARGE = 8 << 20


def study(
    folder: Path, trainable: Any, space: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Run a study and return what its trials have reported."""
    config = RunConfig(storage_path=str(folder), name="study")
    results = Tuner(trainable, param_space=space, run_config=config).fit()
    assert results.errors == []
    return [result.metrics or {} for result in results]


class Model:
    """Counts how often it is serialised."""

    pickled = 0

    def __init__(self, model_id: int) -> None:
        self.model_id = model_id

    def __getstate__(self) -> dict[str, Any]:
        Model.pickled += 1
        return self.__dict__


# ---------------------------------------------------------------------- shared


@pytest.mark.req("U-035", "U-036")
def test_every_trial_gets_its_own_object_and_each_is_serialised_once(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> dict[str, Any]:
        return {"model": holdfast.get(config["ref"]).model_id, "row": config["row"]}

    Model.pickled = 0
    refs = [holdfast.put(Model(number)) for number in (7, 8)]
    results = study(
        tmp_path, train, {"ref": tune.grid_search(refs), "row": tune.grid_search([1, 2, 3])}
    )

    assert sorted((one["model"], one["row"]) for one in results) == [
        (number, row) for number in (7, 8) for row in (1, 2, 3)
    ]
    assert Model.pickled == 2


@pytest.mark.req("U-035")
def test_large_parameters_are_put_once_and_read_without_a_copy(tmp_path: Path) -> None:
    def train(config: dict[str, Any], data: Any, few: list[int]) -> dict[str, Any]:
        return {"sum": float(data.sum()), "few": few, "writes": data.flags.writeable}

    data = np.ones(LARGE // 8)
    trainable = tune.with_parameters(train, data=data, few=[1, 2])
    del data
    results = study(tmp_path, trainable, {"x": tune.grid_search([1, 2, 3])})

    assert [one["sum"] for one in results] == [LARGE // 8] * 3
    assert [one["few"] for one in results] == [[1, 2]] * 3
    assert not any(one["writes"] for one in results)


class Summing(Trainable):
    def setup(self, config: dict[str, Any], **parameters: Any) -> None:
        self.data = parameters["data"]

    def step(self) -> dict[str, Any]:
        return {"sum": float(self.data.sum()), "writes": self.data.flags.writeable, "done": True}


def test_the_setup_of_a_class_is_given_large_parameters_as_they_are(tmp_path: Path) -> None:
    trainable = tune.with_parameters(Summing, data=np.ones(LARGE // 8))

    (result,) = study(tmp_path, trainable)

    assert result["sum"] == LARGE // 8
    assert not result["writes"]


def test_a_reference_that_is_a_parameter_is_given_as_a_reference(tmp_path: Path) -> None:
    def train(config: dict[str, Any], ref: Any) -> dict[str, Any]:
        return {"sum": float(holdfast.get(ref).sum())}

    ref = holdfast.put(np.ones(LARGE // 8))
    (result,) = study(tmp_path, tune.with_parameters(train, ref=ref))

    assert result["sum"] == LARGE // 8


# ---------------------------------------------------------------------- restored


@pytest.fixture
def bell(tmp_path: Path) -> int:
    os.mkfifo(tmp_path / BELL)
    return os.open(tmp_path / BELL, os.O_RDWR | os.O_NONBLOCK)


@pytest.fixture
def killed(tmp_path: Path, bell: int) -> Path:
    """The folder of a study whose driver was killed when two of its trials had saved."""
    driver = launch(tmp_path, 1, "new")
    death = os.pidfd_open(driver.pid)
    while len(read_notes(tmp_path / "notes", "saw")) < 2:
        rung, _, _ = select.select([bell, death], [], [])
        assert death not in rung, driver.communicate()[1]
        os.read(bell, 1 << 16)
    os.close(death)
    os.close(bell)
    end_family(driver, signal.SIGKILL)
    return tmp_path


def launch(folder: Path, generation: int, how: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", SCRIPT, str(folder), str(generation), how],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def holders(token: str) -> list[str]:
    """Return what a census finds of an object: names in shared memory, and files held open."""
    found = [name for name in os.listdir("/dev/shm") if token in name]
    for process in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if token in os.readlink(process):
                found.append(str(process))
        except OSError:
            continue  # it has just been closed, or is another user's
    return found


@pytest.mark.req("U-034", "U-035", "U-037", "U-038")
def test_new_objects_in_the_same_places_go_to_the_trials_that_had_the_old_ones(
    killed: Path,
) -> None:
    before = {fact["trial"]: fact for fact in read_notes(killed / "notes", "saw")}

    driver = launch(killed, 2, "again")
    _, errors = driver.communicate()

    assert driver.returncode == 0, errors
    after = {
        fact["trial"]: fact
        for fact in read_notes(killed / "notes", "saw")
        if fact["generation"] == 2
    }
    assert len(before) == 2
    assert sorted((fact["model"], fact["factor"]) for fact in after.values()) == [
        (1, 2),
        (1, 3),
        (2, 2),
        (2, 3),
    ]
    for trial, old in before.items():
        new = after[trial]
        assert (new["model"], new["factor"], new["lr"]) == (old["model"], old["factor"], old["lr"])
        assert (old["generation"], old["rows"], old["is_resumed"]) == (1, 1, False)
        assert (new["generation"], new["rows"], new["is_resumed"]) == (2, 2, True)
    assert all(fact["weights"] == 1_000_000 * fact["model"] for fact in after.values())
    pickled = read_notes(killed / "notes", "pickled")
    assert sorted((fact["model"], fact["pid"] == driver.pid) for fact in pickled) == [
        (1, False),
        (1, True),
        (2, False),
        (2, True),
    ], "each model is serialised once by each of the two drivers"


@pytest.mark.req("U-032", "U-033")
def test_objects_that_are_not_given_again_are_told_before_anything_starts(killed: Path) -> None:
    before = len(read_notes(killed / "notes", "saw"))

    driver = launch(killed, 2, "bare")
    _, errors = driver.communicate()

    assert driver.returncode != 0
    assert "the study has objects that are gone with the process that made them" in errors
    assert "model_ref" in errors
    assert "datasets/train" in errors
    assert "param_space=" in errors
    assert len(read_notes(killed / "notes", "saw")) == before


def test_nothing_is_left_of_the_objects_of_a_driver_that_was_killed(killed: Path) -> None:
    tokens = [fact["token"] for fact in read_notes(killed / "notes", "put")]

    assert len(tokens) == 2
    assert [holders(token) for token in tokens] == [[], []]


@pytest.mark.req("U-032")
def test_a_reference_to_nothing_is_told_before_anything_starts(tmp_path: Path) -> None:
    ref = holdfast.put(1)
    sent = pickle.dumps(ref)
    del ref

    with pytest.raises(ConfigError, match=r"are gone .*: deep/ref\[1\]"):
        study(
            tmp_path,
            lambda config: None,
            {"deep": {"ref": tune.grid_search([2, pickle.loads(sent)])}},
        )
