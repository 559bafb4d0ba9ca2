"""A study is forked: a new one with another space, and nothing of the old one is touched."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast import tune
from holdfast.cli import cli
from holdfast.errors import ConfigError
from holdfast.storage.locate import open_store
from holdfast.tune import Tuner
from holdfast.tune.schedulers import ASHAScheduler
from holdfast.tune.study.fork import read_origin
from holdfast.tune.study.stored_spec import read_study
from tests.integration.train.loops import is_first
from tests.integration.tune.conftest import Lab, last
from tests.integration.tune.trainables import Counter, begin, save


def files_of(folder: Path) -> dict[Path, bytes]:
    return {one: one.read_bytes() for one in folder.rglob("*") if one.is_file()}


def test_a_fork_searches_another_space_and_leaves_the_old_study_as_it_was(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = lab.notes

    def train(config: dict[str, Any]) -> None:
        for step in range(begin(notes), 3):
            save(step, {"loss": config["x"] * config.get("y", 1)})

    tuning = {"metric": "loss", "mode": "min", "scheduler": ASHAScheduler(max_t=2)}
    lab.fit(train, {"x": tune.grid_search([1, 2, 3])}, max_failures=7, tune=tuning)
    before = files_of(lab.study)
    space = {"x": 10, "y": tune.grid_search([4, 5])}
    capsys.readouterr()
    fork = Tuner.restore(str(lab.study), train).fork(param_space=space)

    assert capsys.readouterr().out.splitlines() == [
        "'study-fork' is a new study, with the settings of 'study'.",
        "  kept     3 trials of 'study', unchanged",
        "  space    x, y (y is new)",
        "  new      2 trials",
    ]
    assert not (lab.storage / "study-fork").exists(), "nothing is done before it is fitted"
    results = fork.fit()

    assert [last(one)["loss"] for one in results] == [40, 50]
    assert len(lab.noted("began")) == 3 + 2
    assert files_of(lab.study) == before
    assert results.get_best_result().config == {"x": 10, "y": 4}, "by the old study's metric"
    old, new = (read_study(open_store(lab.storage / name)) for name in ("study", "study-fork"))
    assert (new.tune_config, new.run_config) == (old.tune_config, old.run_config)
    assert new.keys == ["x", "y"]
    origin = read_origin(open_store(lab.storage / "study-fork"))
    assert origin is not None
    assert (origin.name, origin.url) == ("study", str(lab.study))


def test_a_fork_that_was_killed_goes_on_as_any_study(lab: Lab) -> None:
    notes, driver = lab.notes, os.getpid()

    def train(config: dict[str, Any]) -> None:
        for step in range(begin(notes), 4):
            if "y" in config and step == 2 and is_first(notes.with_name("stop")):
                os.kill(driver, signal.SIGINT)
            save(step)

    lab.fit(train, {"x": tune.grid_search([1, 2])})
    space = {"y": tune.grid_search([1, 2, 3])}
    Tuner.restore(str(lab.study), train).fork(param_space=space, name="other").fit()
    before = read_origin(open_store(lab.storage / "other"))

    with pytest.raises(ConfigError, match="already") as refused:
        Tuner.restore(str(lab.study), train).fork(param_space=space, name="other")
    assert f"Tuner.restore('{lab.storage}/other', train).fit()" in str(refused.value)
    again = Tuner.restore(str(lab.study), train)
    results = again.fork(param_space=space, name="other", resume="auto").fit()

    assert [last(one)["step"] for one in results] == [3, 3, 3]
    assert len(lab.noted("began")) <= 2 + 3 + 2, (
        "those that had not been done, from where they were"
    )
    assert read_origin(open_store(lab.storage / "other")) == before
    assert len(Tuner.restore(str(lab.study), train).get_results()) == 2


def test_trials_of_a_fork_can_begin_with_the_best_checkpoint(lab: Lab) -> None:
    tuning = {"metric": "count", "mode": "max"}
    lab.fit(Counter, {"add": tune.grid_search([1, 5])}, tune=tuning, stop={"training_iteration": 2})
    restored = Tuner.restore(str(lab.study), Counter)
    before = files_of(lab.study)
    fork = restored.fork(
        param_space={"add": tune.grid_search([100, 200])},
        storage_path=lab.folder / "elsewhere",
        from_best=True,
        stop={"training_iteration": 4},
    )
    results = fork.fit()

    assert [last(one)["count"] for one in results] == [10 + 200, 10 + 400]
    assert [last(one)["training_iteration"] for one in results] == [4, 4]
    assert (lab.folder / "elsewhere" / "study-fork").is_dir()
    assert files_of(lab.study) == before


def test_a_study_can_be_forked_and_extended_by_the_tuner_that_ran_it(lab: Lab) -> None:
    tuner = lab.tuner(Counter, {"add": tune.uniform(0, 1)}, stop={"training_iteration": 2})
    tuner.fit()

    assert len(tuner.extend(num_samples=2).fit()) == 3
    assert len(tuner.fork(param_space={"add": 7}, num_samples=4).fit()) == 4
    assert len(lab.restore(Counter)) == 3


def test_an_object_in_the_space_of_a_fork_need_not_be_in_the_old_one(lab: Lab) -> None:
    def train(config: dict[str, Any]) -> None:
        tune.report({"x": config["f"](3)})

    lab.fit(train, {"f": abs})
    restored = Tuner.restore(str(lab.study), train)
    [result] = restored.fork(param_space={"f": float}).fit()

    assert last(result)["x"] == 3.0


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"param_space": {}}, "empty param_space"),
        ({"param_space": [1]}, "not a dictionary"),
        ({"param_space": {"add": 1}, "name": "study"}, "where the old one is"),
        ({"param_space": {"add": 1}, "name": "a/b"}, "name"),
        ({"param_space": {"add": 1}, "num_samples": 0}, "num_samples=0"),
        ({"param_space": {"add": 1}, "from_best": True}, "no checkpoint"),
    ],
)
def test_a_fork_that_cannot_work_is_refused_before_anything_is_made(
    lab: Lab, how: dict[str, Any], words: str
) -> None:
    def train(config: dict[str, Any]) -> None:
        tune.report({"x": 1})

    lab.fit(train, {"add": 1})
    restored = Tuner.restore(str(lab.study), train)

    with pytest.raises(ValueError, match=words):
        restored.fork(**how)
    assert [one.name for one in lab.storage.iterdir()] == ["study"]


def test_a_study_that_was_not_begun_can_be_neither_forked_nor_extended(lab: Lab) -> None:
    tuner = lab.tuner(Counter)

    with pytest.raises(ConfigError, match=r"fork\(\) is for a study that has started"):
        tuner.fork(param_space={"x": 1})
    with pytest.raises(ConfigError, match=r"extend\(\) is for a study that has started"):
        tuner.extend(num_samples=1)


@pytest.mark.parametrize("more", [0, -1, 1.5, "3", True])
def test_a_study_is_extended_by_at_least_one_sample(lab: Lab, more: Any) -> None:
    lab.fit(Counter, stop={"training_iteration": 1})
    restored = Tuner.restore(str(lab.study), Counter)

    with pytest.raises(ConfigError, match="must be the number of samples to add, at least 1"):
        restored.extend(num_samples=more)


def test_a_study_without_end_has_no_more_samples_to_take(lab: Lab) -> None:
    notes = lab.notes

    def train(config: dict[str, Any]) -> None:
        begin(notes)
        tune.report({"x": 1})

    class Enough(tune.Stopper):
        def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
            return False

        def stop_all(self) -> bool:
            return len(lab.noted("began")) > 3

    lab.fit(train, tune={"num_samples": -1}, stop=Enough())
    restored = Tuner.restore(str(lab.study), train, run_config=tune.RunConfig(stop=Enough()))

    with pytest.raises(ConfigError, match="its samples have no end"):
        restored.extend(num_samples=5)


def test_what_a_study_was_forked_from_can_be_looked_at(lab: Lab) -> None:
    lab.fit(Counter, {"add": 1}, stop={"training_iteration": 1})
    Tuner.restore(str(lab.study), Counter).fork(param_space={"add": 2}).fit()

    shown = CliRunner().invoke(cli, ["show", str(lab.storage / "study-fork")]).output
    told = CliRunner().invoke(cli, ["show", str(lab.storage / "study-fork"), "--json"]).output
    verified = CliRunner().invoke(cli, ["verify", str(lab.storage / "study-fork")])

    assert f"'study', which was at {lab.study} then" in shown
    assert json.loads(told)["forked_from"]["name"] == "study"
    assert verified.exit_code == 0 and verified.output.startswith("whole:")


def test_forks_that_nobody_named_have_folders_of_their_own(lab: Lab) -> None:
    lab.fit(Counter, {"add": 1}, stop={"training_iteration": 1})

    paths = {
        Tuner.restore(str(lab.study), Counter).fork(param_space={"add": add}).fit().experiment_path
        for add in (1, 2)
    }

    assert len(paths) == 2 and str(lab.storage / "study-fork") in paths
