"""Studies from end to end: what trials are given, what is kept, and what comes out."""

from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.control.record.open_run import OpenTrainingRun
from holdfast.errors import CannotResume, ConfigError
from holdfast.storage.locate import open_store
from holdfast.tune import Tuner
from holdfast.tune.schedulers import ASHAScheduler, FIFOScheduler, PopulationBasedTraining
from tests.integration.train.loops import note
from tests.integration.tune.conftest import Lab, last
from tests.integration.tune.trainables import Counter, begin, save


@pytest.mark.req("U-018")
@pytest.mark.req("U-019")
@pytest.mark.req("U-020")
@pytest.mark.req("U-131")
def test_every_point_of_the_grid_is_a_trial_with_its_config(lab: Lab) -> None:
    def train(config: dict[str, Any]) -> None:
        tune.report({"product": config["a"] * config["b"], "epochs": config["num_epochs"]})

    space = {"a": tune.grid_search([1, 2, 3]), "b": tune.grid_search([10, 20]), "num_epochs": 10}
    results = lab.fit(train, space, tune={"metric": "product", "mode": "max"})

    assert sorted(last(one)["product"] for one in results) == [10, 20, 20, 30, 40, 60]
    assert all(last(one)["epochs"] == 10 for one in results)
    best = results.get_best_result()
    assert best.config is not None
    assert (best.config["a"], best.config["b"]) == (3, 20)
    assert results[0].path is not None and Path(results[0].path).parent == lab.study
    assert len([one for one in lab.study.iterdir() if not one.name.startswith(".")]) == 6


@pytest.mark.req("U-013")
@pytest.mark.req("U-014")
@pytest.mark.req("U-016")
@pytest.mark.req("U-017")
@pytest.mark.req("U-081")
def test_what_a_function_saves_is_kept_and_given_back(lab: Lab) -> None:
    notes = lab.notes

    def train(config: dict[str, Any]) -> None:
        for step in range(begin(notes), 4):
            save(step)

    [result] = lab.fit(train)

    assert lab.noted("began") == [
        {"what": "began", "trial": last(result)["trial_id"], "step": None}
    ]
    assert [metrics["step"] for _, metrics in result.best_checkpoints] == [1, 2, 3]
    assert [row["checkpoint_dir_name"] for row in lab.rows("00000")] == [
        f"checkpoint_{number:06d}" for number in range(3)
    ]


@pytest.mark.req("U-080")
@pytest.mark.req("U-083")
def test_a_class_is_advanced_step_by_step_and_saved_as_often_as_wanted(lab: Lab) -> None:
    [result] = lab.fit(
        Counter,
        {"add": 5},
        stop={"training_iteration": 5},
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=2, checkpoint_at_end=True),
    )

    assert last(result)["count"] == 25
    assert [metrics["count"] for _, metrics in result.best_checkpoints] == [10, 20, 25]
    assert [row["count"] for row in lab.rows("00000")] == [5, 10, 15, 20, 25]


@pytest.mark.req("U-114")
@pytest.mark.req("U-115")
def test_the_best_checkpoints_of_each_trial_stay_and_the_newest(lab: Lab) -> None:
    aucs = [0.1, 0.9, 0.5, 0.8, 0.2]

    def train(config: dict[str, Any]) -> None:
        for step, auc in enumerate(aucs, start=1):
            save(step, {"auc": auc * config["times"]})

    results = lab.fit(
        train,
        {"times": tune.grid_search([1, -1])},
        checkpoint_config=tune.CheckpointConfig(
            num_to_keep=2, checkpoint_score_attribute="auc", checkpoint_score_order="max"
        ),
    )

    kept = [sorted(metrics["step"] for _, metrics in one.best_checkpoints) for one in results]
    assert kept == [[2, 4, 5], [1, 5]]


@pytest.mark.req("U-083")
def test_a_population_goes_on_from_the_weights_of_the_best(lab: Lab) -> None:
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=2,
        hyperparam_mutations={"add": [1, 100]},
        quantile_fraction=0.5,
        resample_probability=0.0,
        synch=True,
        seed=1,
    )
    results = lab.fit(
        Counter,
        {"add": tune.grid_search([1, 100])},
        stop={"training_iteration": 8},
        tune={"metric": "count", "mode": "max", "scheduler": scheduler},
    )

    assert results.num_errors == 0
    assert min(last(one)["count"] for one in results) > 8  # no trial counted by ones to the end
    assert list(lab.study.glob("pbt_policy_*.txt")) or list(lab.study.glob("pbt_global.txt"))


class CopiesLate(FIFOScheduler):
    """Has the first trial go on from the second as it was after 2 steps, once that is over."""

    trials_ahead = 2

    def on_trial_result(self, view: Any, trial: Any, result: dict[str, Any]) -> str:
        step = result["training_iteration"]
        if trial.number == 0 and step == 1:
            donor = next(one for one in view.get_trials() if one.number == 1)
            assert view.exploit(trial, donor, {"add": 100}, "copied")
            return self.NOOP
        return self.PAUSE if trial.number == 1 and step == 2 else self.CONTINUE

    def choose_trial_to_run(self, view: Any) -> Any:
        first, *others = view.get_trials()
        is_turn_of_first = not others or (others[0].status == "PAUSED" and first.donor is None)
        chosen = first if is_turn_of_first else others[0]
        return chosen if chosen.status in ("PENDING", "PAUSED") else None


@pytest.mark.req("U-083")
def test_the_checkpoint_that_a_trial_is_to_go_on_from_is_kept_until_it_has(lab: Lab) -> None:
    results = lab.fit(
        Counter,
        {"add": tune.grid_search([7, 1])},
        stop={"training_iteration": 6},
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1, num_to_keep=1),
        tune={"metric": "count", "mode": "max", "scheduler": CopiesLate()},
    )

    # The first has the 2 steps of the second in it, and the 4 that were left since.
    assert [last(one)["count"] for one in results] == [2 + 4 * 100, 6]


def test_hopeless_trials_are_stopped_early(lab: Lab) -> None:
    def train(config: dict[str, Any]) -> None:
        for _ in range(16):
            tune.report({"score": config["x"]})

    results = lab.fit(
        train,
        {"x": tune.grid_search([4, 3, 2, 1])},
        tune={
            "metric": "score",
            "mode": "max",
            "max_concurrent_trials": 1,
            "scheduler": ASHAScheduler(max_t=16, grace_period=2, reduction_factor=2),
        },
    )

    assert [last(one)["training_iteration"] for one in results] == [16, 2, 2, 2]


def test_a_process_can_do_one_trial_after_the_other(lab: Lab) -> None:
    notes = lab.notes

    def train(config: dict[str, Any]) -> None:
        import os

        note(notes, what="pid", pid=os.getpid())
        print("this is trial", config["x"])  # noqa: T201
        tune.report({"x": config["x"]})

    results = lab.fit(
        train,
        {"x": tune.grid_search(list(range(8)))},
        tune={"reuse_actors": True, "max_concurrent_trials": 1},
    )

    assert sorted(last(one)["x"] for one in results) == list(range(8))
    assert len({one["pid"] for one in lab.noted("pid")}) == 1
    for number in range(8):
        [log] = lab.study.glob(f"*_{number:05d}_*/logs/attempt-1.log")
        assert log.read_text() == f"this is trial {number}\n"


def test_a_class_in_the_same_process_takes_up_another_config(lab: Lab) -> None:
    class Reset(Counter):
        resets = 0

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self.setup(new_config)
            self.resets += 1
            return True

        def step(self) -> dict[str, Any]:
            return {**super().step(), "resets": self.resets}

    results = lab.fit(
        Reset,
        {"add": tune.grid_search([1, 2, 3])},
        stop={"training_iteration": 2},
        tune={"reuse_actors": True, "max_concurrent_trials": 1},
    )

    assert [last(one)["count"] for one in results] == [2, 4, 6]
    assert sorted(last(one)["resets"] for one in results) == [0, 1, 2]


def test_what_a_function_returns_is_its_last_result(lab: Lab) -> None:
    results = lab.fit(lambda config: {"double": 2 * config["x"]}, {"x": tune.grid_search([1, 2])})

    assert [last(one)["double"] for one in results] == [2, 4]


def test_nan_and_missing_metrics_end_nothing(lab: Lab) -> None:
    def train(config: dict[str, Any]) -> None:
        tune.report({"loss": math.nan} if config["x"] == 1 else {"other": 1.0})
        tune.report({"loss": config["x"]})

    results = lab.fit(
        train,
        {"x": tune.grid_search([1, 2, 3])},
        tune={
            "metric": "loss",
            "mode": "min",
            "scheduler": ASHAScheduler(),
            "max_concurrent_trials": 1,  # else NaN may be compared, and is worse than anything
        },
    )

    assert results.num_errors == 0
    assert last(results.get_best_result())["loss"] == 1


def test_parameters_and_resources_go_with_a_trainable(lab: Lab) -> None:
    def train(config: dict[str, Any], data: list[int]) -> None:
        needs = tune.get_context().get_trial_resources()
        tune.report({"sum": sum(data), "cpus": needs.required_resources["CPU"]})

    given = tune.with_resources(tune.with_parameters(train, data=[1, 2, 3]), {"cpu": 2})
    [result] = lab.fit(given)

    assert (last(result)["sum"], last(result)["cpus"]) == (6, 2.0)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no samples": ({"tune": {"num_samples": 0}}, "num_samples=0"),
    "a wrong mode": ({"tune": {"mode": "maximum"}}, "mode='maximum'"),
    "two modes of checkpoints": (
        {"checkpoint_config": tune.CheckpointConfig(checkpoint_frequency=1)},
        "checkpoint_frequency=1",
    ),
    "a stop that is none": ({"stop": 3}, "stop=3"),
    "a callback that is none": ({"callbacks": [5]}, "callbacks holds 5"),
    "a verbosity there is not": ({"verbose": 7}, "verbose=7"),
    "a verbosity in words": ({"verbose": "loud"}, "verbose='loud'"),
    "a reporter that is none": ({"progress_reporter": 5}, "progress_reporter=5 is not a"),
    "a lock to be sent": (
        {"space": {"net": {"lock": threading.Lock(), "width": tune.grid_search([1, 2])}}},
        "param_space has .*lock.* at net/lock, which cannot be sent",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_is_refused_before_anything_runs(lab: Lab, what: str) -> None:
    given, said = BAD[what]
    notes = lab.notes

    def train(config: dict[str, Any]) -> None:
        note(notes, what="ran")

    with pytest.raises(ConfigError, match=said) as refusal:
        lab.fit(train, **given)
    assert lab.noted("ran") == []
    assert not hasattr(refusal.value, "__notes__")  # on how to go on: there is nothing
    assert not Tuner.can_restore(lab.study)  # so the same place can be tried again


def test_a_trainable_that_cannot_be_sent_is_told_by_its_name(lab: Lab) -> None:
    lock = threading.Lock()

    def train(config: dict[str, Any]) -> None:
        with lock:
            tune.report({"x": 1})

    with pytest.raises(ConfigError, match=r"`train` cannot be sent .*variable `lock`"):
        lab.fit(train)
    assert not Tuner.can_restore(lab.study)


@pytest.mark.parametrize("what", ["tune_config", "run_config"])
def test_a_config_of_another_kind_is_refused(what: str) -> None:
    given: dict[str, Any] = {what: {"num_samples": 3}}
    with pytest.raises(ConfigError, match=f"{what}={{'num_samples': 3}} is not a"):
        Tuner(lambda config: {"x": 1}, **given)


def test_more_than_there_is_is_refused_at_once(lab: Lab) -> None:
    def train(config: dict[str, Any]) -> None:
        tune.report({"x": 1})

    with pytest.raises(ConfigError, match=r"a trial needs .*only CPU="):
        lab.fit(tune.with_resources(train, {"cpu": 4096}))


def test_a_training_run_is_not_taken_for_a_study(lab: Lab) -> None:
    OpenTrainingRun.open(open_store(lab.study)).close()
    before = sorted(lab.study.rglob("*"))

    for resume in ("auto", None):
        with pytest.raises(CannotResume, match="there is a training run at"):
            lab.fit(lambda config: None, resume=resume)

    assert sorted(lab.study.rglob("*")) == before


@pytest.mark.parametrize("name", ["a/b", ""])
def test_a_folder_that_is_not_one_name_is_refused_before_the_study_is_begun(
    name: str, lab: Lab
) -> None:
    with pytest.raises(ConfigError, match=rf"trial_dirname_creator returned '{name}', which is"):
        lab.fit(Counter, tune={"trial_dirname_creator": lambda _: name})

    assert not Tuner.can_restore(str(lab.study))
    lab.fit(Counter, stop={"training_iteration": 1})  # its place can be used


def test_a_trial_whose_folder_is_not_one_name_fails_and_the_others_go_on(lab: Lab) -> None:
    results = lab.fit(
        Counter,
        {"add": tune.grid_search([1, 2, 3])},
        stop={"training_iteration": 1},
        tune={"trial_dirname_creator": lambda trial: "/" if trial.config["add"] == 2 else "one"},
    )

    assert [one.error is None for one in results] == [True, False, True]
    assert "not the name of a folder" in str(results[1].error)


def test_a_trial_is_the_only_rank_of_its_own(lab: Lab) -> None:
    def train(config: dict[str, Any]) -> None:
        here = tune.get_context()
        ranks = (here.get_world_rank(), here.get_local_rank(), here.get_node_rank())
        sizes = (here.get_world_size(), here.get_local_world_size())
        tune.report({"ranks": list(ranks), "sizes": list(sizes)})

    [result] = lab.fit(train)

    assert (last(result)["ranks"], last(result)["sizes"]) == ([0, 0, 0], [1, 1])
    assert tune.get_context().get_world_size() is None
