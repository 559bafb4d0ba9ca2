"""What is asked of studies, where one test of each kind shows too little of it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.tune import Tuner
from holdfast.tune.schedulers import ASHAScheduler
from holdfast.tune.search import BasicVariantGenerator
from tests.integration.train.loops import is_first
from tests.integration.tune.conftest import Lab, last
from tests.integration.tune.trainables import Counter, begin, save


@pytest.mark.req("U-012")
@pytest.mark.req("U-025")
@pytest.mark.req("U-040")
def test_a_bug_fails_as_often_again_when_it_is_resumed_and_then_it_is_an_error_again(
    lab: Lab,
) -> None:
    notes = lab.notes

    def train(config: dict[str, Any]) -> None:
        begin(notes)
        raise ValueError("a bug")

    lab.fit(train, max_failures=2)
    assert len(lab.noted("began")) == 3
    results = lab.restore(train, resume_errored=True)

    assert len(lab.noted("began")) == 6, "a full budget, and no more than that"
    assert results.num_errors == 1 and "a bug" in str(results.errors[0])


@pytest.mark.req("U-040")
def test_a_trial_that_fails_three_times_and_then_does_not_is_done(lab: Lab) -> None:
    notes = lab.notes

    def train(config: dict[str, Any]) -> None:
        begin(notes)
        if len(lab.noted("began")) <= 3:
            raise ValueError("not yet")
        tune.report({"x": 1})

    results = lab.fit(train, max_failures=3)

    assert (results.num_errors, results.num_terminated) == (0, 1)
    assert len(lab.noted("began")) == 4


@pytest.mark.req("U-014")
@pytest.mark.req("U-016")
@pytest.mark.req("U-017")
def test_a_row_with_a_checkpoint_is_never_there_without_the_very_files(lab: Lab) -> None:
    """The folder is written over right after each report; rows are looked at as they come."""
    seen: list[tuple[str, bytes]] = []

    def train(config: dict[str, Any]) -> None:
        folder = lab.folder / "mine"
        folder.mkdir()
        for step in range(1, 6):
            (folder / "state.json").write_text(json.dumps({"step": step, "pad": "x" * 5000}))
            tune.report({"step": step}, checkpoint=tune.Checkpoint.from_directory(folder))
            (folder / "state.json").write_text("something else")

    class Looks(tune.Callback):
        def on_trial_result(
            self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any
        ) -> None:
            name = result["checkpoint_dir_name"]
            folder = lab.study / trial.folder
            assert (folder / ".holdfast" / "manifests" / f"{name}.json").exists()
            seen.append((name, (folder / name / "state.json").read_bytes()))

    [result] = lab.fit(train, callbacks=[Looks()])

    wanted = [json.dumps({"step": step, "pad": "x" * 5000}).encode() for step in range(1, 6)]
    assert seen == [(f"checkpoint_{at:06d}", data) for at, data in enumerate(wanted)]
    for (checkpoint, _), data in zip(result.best_checkpoints, wanted, strict=True):
        with checkpoint.as_directory() as folder:
            assert os.listdir(folder) == ["state.json"]
            assert Path(folder, "state.json").read_bytes() == data


@pytest.mark.req("U-114")
@pytest.mark.req("U-115")
def test_at_every_moment_the_best_and_the_newest_of_each_trial_are_on_disk(lab: Lab) -> None:
    aucs = [0.1, 0.9, 0.5, 0.8, 0.2, 0.95]
    there: dict[int, list[list[int]]] = {0: [], 1: []}

    def train(config: dict[str, Any]) -> None:
        for step, auc in enumerate(aucs, start=1):
            save(step, {"auc": auc * config["times"]})

    class Looks(tune.Callback):
        def on_trial_result(
            self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any
        ) -> None:
            if result["step"] > 1:  # what was saved with the step before has been retained
                folders = sorted((lab.study / trial.folder).glob("checkpoint_*"))
                there[trial.number].append([int(one.name[-6:]) + 1 for one in folders])

    config = tune.CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="auc")
    lab.fit(
        train,
        {"times": tune.grid_search([1, -1])},
        checkpoint_config=config,
        callbacks=[Looks()],
    )

    for number, sign in ((0, 1), (1, -1)):
        for step, kept in enumerate(there[number], start=2):
            before = sorted(range(1, step), key=lambda one: sign * aucs[one - 1])[-2:]
            assert set(before) | {step - 1, step} >= set(kept) >= {*before, step}
    assert len(there[0]) == len(there[1]) == 5


@pytest.mark.req("U-009")
def test_a_study_that_is_restored_has_all_it_was_begun_with(lab: Lab) -> None:
    tuner = lab.tuner(
        Counter,
        {"add": tune.randint(1, 9)},
        max_failures=4,
        stop={"training_iteration": 2},
        checkpoint_config=tune.CheckpointConfig(num_to_keep=3, checkpoint_frequency=1),
        tune={
            "metric": "count",
            "mode": "max",
            "num_samples": 3,
            "scheduler": ASHAScheduler(max_t=7, grace_period=2),
            "search_alg": BasicVariantGenerator(random_state=3, max_concurrent=2),
            "time_budget_s": 600,
        },
    )
    tuner.fit()
    begun, again = tuner._spec, Tuner.restore(str(lab.study), Counter)._spec  # noqa: SLF001

    for name in ("metric", "mode", "num_samples", "time_budget_s", "max_concurrent_trials"):
        assert getattr(again.tune_config, name) == getattr(begun.tune_config, name)
    for name in ("failure_config", "checkpoint_config", "stop", "storage_path", "name"):
        assert getattr(again.run_config, name) == getattr(begun.run_config, name)
    assert again.scheduler().get_state().keys() == begun.scheduler().get_state().keys()
    assert type(again.tune_config.scheduler) is type(begun.tune_config.scheduler)
    assert again.search().total == 3
    drawn = [again.search().next() for _ in range(1)]
    first = begun.search().next()
    assert not isinstance(first, str) and first is not None
    assert [getattr(one, "config", None) for one in drawn] == [first.config]


@pytest.mark.req("U-120")
@pytest.mark.parametrize("how", ["done", "failed", "Ctrl+C"])
def test_however_a_study_has_stopped_it_can_be_restored(lab: Lab, how: str) -> None:
    notes, driver = lab.notes, os.getpid()

    def train(config: dict[str, Any]) -> None:
        for step in range(begin(notes), 4):
            if step == 3 and how != "done" and is_first(notes.with_name("once")):
                if how == "failed":
                    raise RuntimeError("once")
                os.kill(driver, signal.SIGINT)
                while True:
                    tune.report({"step": 2})
            save(step)

    lab.fit(train)
    assert Tuner.can_restore(str(lab.study))
    [result] = lab.restore(train, resume_errored=True)

    assert last(result)["step"] == 3
    wanted: dict[str, list[int | None]] = {"done": [None]}
    assert [fact["step"] for fact in lab.noted("began")] == wanted.get(how, [None, 2])


def test_a_metric_that_nobody_reports_is_told_with_what_was_reported(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    def train(config: dict[str, Any]) -> None:
        tune.report({"accuracy": 1.0, "los": 2.0})

    results = lab.fit(train, tune={"metric": "loss", "mode": "min", "num_samples": 2})

    assert results.num_errors == 0
    assert "reported no 'loss'" in caplog.text
    assert "it reported: accuracy, los, training_iteration" in caplog.text  # the user's own first
    with pytest.raises(RuntimeError, match=r"'loss'; reported were: accuracy, los, iterations"):
        results.get_best_result()


@pytest.mark.parametrize(
    ("stop", "steps"),
    [
        ([{"training_iteration": 3}, {"training_iteration": 5}], 3),
        ({"training_iteration": 5, "count": 2}, 2),
        ([tune.stopper.MaximumIterationStopper(4), {"count": 6}], 4),
        ([lambda trial_id, result: result["count"] >= 1, {"count": 6}], 1),
    ],
)
def test_of_stop_conditions_that_overlap_the_first_that_holds_counts(
    lab: Lab, stop: Any, steps: int
) -> None:
    [result] = lab.fit(Counter, stop=stop)

    assert last(result)["count"] == steps
