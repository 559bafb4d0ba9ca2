"""Studies that were interrupted go on; those that are done do nothing."""

from __future__ import annotations

import os
import shutil
import signal
from typing import Any

import pytest

import holdfast
from holdfast import tune
from holdfast.core.study.trial import Status
from holdfast.errors import ConfigError
from holdfast.tune import RunConfig, Tuner
from tests.integration.train.loops import is_first
from tests.integration.tune.conftest import Lab, last
from tests.integration.tune.trainables import begin, save


def interrupted_study(lab: Lab) -> Any:
    """Return a trainable after its study was stopped with a trial of each kind.

    0 is done, 1 has failed, 2 was running after step 2, 3 was never started.
    """
    notes, driver = lab.notes, os.getpid()

    def train(config: dict[str, Any]) -> None:
        for step in range(begin(notes), 5):
            if config["x"] == 1 and step == 2 and is_first(notes.with_name("failure")):
                raise RuntimeError("the first time only")
            if config["x"] == 2 and step == 3 and is_first(notes.with_name("stop")):
                os.kill(driver, signal.SIGINT)
            save(step, {"x": config["x"]})

    space = {"x": tune.grid_search([0, 1, 2, 3])}
    results = lab.fit(train, space, tune={"max_concurrent_trials": 1})
    statuses = [trial.status for trial in results._trials]  # noqa: SLF001
    assert statuses[:2] == [Status.TERMINATED, Status.ERROR]
    assert Status.TERMINATED not in statuses[2:]
    assert results.interrupted
    return train


def test_a_script_can_see_whether_a_study_was_interrupted(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    train = interrupted_study(lab)
    assert (
        "Interrupted: 1 of 4 trials are done. fit() returns the results so far"
        in capsys.readouterr().err
    )
    assert Tuner.restore(str(lab.study), train).get_results().interrupted
    assert tune.ExperimentAnalysis(lab.study).interrupted
    assert tune.ExperimentAnalysis(lab.study).result_grid.interrupted

    results = lab.restore(train)

    assert not results.interrupted  # one has failed, and that is how it has come out
    assert "Interrupted" not in capsys.readouterr().err
    assert not tune.ExperimentAnalysis(lab.study).interrupted
    assert not Tuner.restore(str(lab.study), train).get_results().interrupted


def test_tune_run_tells_of_an_interrupt_too(lab: Lab) -> None:
    notes, driver = lab.notes, os.getpid()

    def train(config: dict[str, Any]) -> None:
        for step in range(begin(notes), 3):
            if step == 1 and is_first(notes.with_name("stop")):
                os.kill(driver, signal.SIGINT)
            save(step, {})

    given: dict[str, Any] = {"storage_path": str(lab.storage), "name": "study", "num_samples": 3}
    given |= {"max_concurrent_trials": 1, "raise_on_failed_trial": False}

    assert tune.run(train, **given).interrupted
    assert not tune.run(train, **given, resume=True).interrupted


FLAGS = [
    (unfinished, errored, restart)
    for unfinished in (True, False)
    for errored in (True, False)
    for restart in (True, False)
]


@pytest.mark.req("U-023")
@pytest.mark.req("U-024")
@pytest.mark.req("U-025")
@pytest.mark.req("U-026")
@pytest.mark.req("U-027")
@pytest.mark.req("U-028")
@pytest.mark.req("U-121")
@pytest.mark.req("U-006")
@pytest.mark.parametrize(("unfinished", "errored", "restart"), FLAGS)
def test_the_flags_say_which_trials_go_on(
    lab: Lab,
    capsys: pytest.CaptureFixture[str],
    *,
    unfinished: bool,
    errored: bool,
    restart: bool,
) -> None:
    train = interrupted_study(lab)
    before = len(lab.noted("began"))
    capsys.readouterr()

    results = lab.restore(
        train,
        resume_unfinished=unfinished,
        resume_errored=errored,
        restart_errored=restart,
    )

    plan = capsys.readouterr().err
    assert "kept: 1 finished trial" in plan
    assert ("not tried again" in plan) == (not errored and not restart)
    assert ("not continued" in plan) == (not unfinished)
    began: dict[int, int | None] = {}
    for fact in lab.noted("began")[before:]:
        began.setdefault(int(fact["trial"][-5:]), fact["step"])
    assert 0 not in began, "a trial that was done was run again"
    assert (1 in began) == (errored or restart)
    if 1 in began:
        assert began[1] == (1 if errored else None)
        assert results[1].error is None and last(results[1])["step"] == 4
    else:
        assert results[1].error is not None
    assert (2 in began) == unfinished
    if unfinished:
        assert began[2] in (2, 3)
        assert [last(one)["step"] for one in results][2:] == [4, 4]
        for number in (2, 3):
            assert [row["step"] for row in lab.rows(f"0000{number}")] == [1, 2, 3, 4]


@pytest.mark.req("U-010")
@pytest.mark.req("U-120")
@pytest.mark.req("U-031")
def test_a_study_that_is_done_does_nothing_more(lab: Lab) -> None:
    notes = lab.notes

    def train(config: dict[str, Any]) -> None:
        begin(notes)
        tune.report({"x": 1})

    first = lab.fit(train, tune={"num_samples": 3})
    again = lab.restore(train)

    assert len(lab.noted("began")) == 3
    assert [one.metrics for one in again] == [one.metrics for one in first]


@pytest.mark.req("U-029")
@pytest.mark.req("U-030")
@pytest.mark.req("U-021")
def test_it_can_be_told_whether_there_is_something_to_go_on_with(lab: Lab) -> None:
    def train(config: dict[str, Any]) -> None:
        tune.report({"x": 1})

    assert not Tuner.can_restore(str(lab.study))
    tuner = lab.tuner(train)
    assert not Tuner.can_restore(str(lab.study))
    tuner.fit()
    assert Tuner.can_restore(str(lab.study))
    (lab.study / ".holdfast" / "study.json").write_text("damaged")
    assert not Tuner.can_restore(str(lab.study))


@pytest.mark.req("U-112")
@pytest.mark.req("U-125")
def test_the_same_name_again_is_refused_or_goes_on_as_told(lab: Lab) -> None:
    notes = lab.notes

    def train(config: dict[str, Any]) -> None:
        begin(notes)
        tune.report({"x": 1})

    lab.fit(train)
    with pytest.raises(ConfigError, match=r"already") as caught:
        lab.fit(train)
    assert f"Tuner.restore('{lab.study}', train)" in str(caught.value)
    results = lab.fit(train, resume="auto")

    assert len(lab.noted("began")) == 1
    assert len(results) == 1


@pytest.mark.req("U-008")
def test_another_space_is_refused_with_both_sides_listed(lab: Lab) -> None:
    def train(config: dict[str, Any]) -> None:
        tune.report({"x": config["x"]})

    lab.fit(train, {"x": tune.uniform(0, 1)})

    with pytest.raises(ValueError, match=r"(?s)'x'.*'y'"):
        Tuner.restore(lab.study, train, param_space={"y": tune.uniform(0, 1)})  # before any fit


def test_another_trainable_and_another_folder_are_refused(lab: Lab) -> None:
    def train(config: dict[str, Any]) -> None:
        tune.report({"x": 1})

    def other(config: dict[str, Any]) -> None:
        tune.report({"x": 1})

    lab.fit(train)

    with pytest.raises(ValueError, match="runs 'train', and the trainable given is 'other'"):
        lab.restore(other)
    with pytest.raises(ValueError, match=str(lab.study)):
        Tuner.restore(str(lab.storage), train)
    shutil.copytree(lab.study, lab.storage / "copy")
    with pytest.raises(ValueError, match=f"{lab.storage}/copy or {lab.study}"):
        Tuner.restore(str(lab.storage), train)
    [trial] = lab.study.glob("train_*")
    with pytest.raises(ValueError, match="folder of a trial"):
        Tuner.restore(str(trial), train)


def test_a_study_can_be_moved(lab: Lab) -> None:
    train = interrupted_study(lab)
    moved = lab.folder / "elsewhere" / "moved"
    moved.parent.mkdir()
    shutil.move(lab.study, moved)

    results = Tuner.restore(str(moved), train).fit()

    assert [last(one)["step"] for one in results][2:] == [4, 4]
    assert all(str(moved) in str(one.path) for one in results)
    assert not lab.study.exists()


@pytest.mark.req("U-011")
def test_a_checkpoint_can_be_given_to_another_study_and_stays_as_it_is(lab: Lab) -> None:
    notes = lab.notes

    def first(config: dict[str, Any]) -> None:
        for step in range(begin(notes), 3):
            save(step)

    [result] = lab.fit(first)
    assert result.checkpoint is not None
    path = result.checkpoint.path
    files = {one: one.read_bytes() for one in lab.study.glob("**/checkpoint_*/*")}

    def second(config: dict[str, Any]) -> None:
        from tests.integration.tune.trainables import load

        start = load(tune.Checkpoint.from_directory(config["from"])) + 1
        for step in range(start, start + 3):
            save(step)

    [more] = lab.fit(second, {"from": path}, name="second")

    assert last(more)["step"] == 5
    assert {one: one.read_bytes() for one in lab.study.glob("**/checkpoint_*/*")} == files


def test_trials_that_go_on_reserve_what_the_trainable_needs_now(lab: Lab) -> None:
    """As on another machine, where there is no room for what they reserved before."""
    notes, driver = lab.notes, os.getpid()

    def train(config: dict[str, Any]) -> None:
        for step in range(begin(notes), 4):
            if step == 2 and is_first(notes.with_name("stop")):
                os.kill(driver, signal.SIGINT)
            save(step, tune.get_context().get_trial_resources().required_resources)

    holdfast.init(num_cpus=2)
    try:
        lab.fit(tune.with_resources(train, {"cpu": 2}), tune={"max_concurrent_trials": 1})
        holdfast.shutdown()
        holdfast.init(num_cpus=1)
        with pytest.raises(ConfigError, match="only CPU=1"):
            lab.restore(tune.with_resources(train, {"cpu": 2}))
        [result] = lab.restore(tune.with_resources(train, {"cpu": 0.5}))
    finally:
        holdfast.shutdown()

    assert (last(result)["step"], last(result)["CPU"]) == (3, 0.5)


def test_there_must_be_a_study_if_that_is_said(lab: Lab) -> None:
    config = RunConfig(name="study", storage_path=str(lab.storage), resume="must")

    with pytest.raises(ValueError, match="there is no study"):
        Tuner(lambda config: {"x": 1}, run_config=config).fit()


def test_a_study_that_is_done_can_be_extended_by_more_samples(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = lab.notes

    def train(config: dict[str, Any]) -> None:
        begin(notes)
        tune.report({"x": config["x"]})

    first = lab.fit(train, {"x": tune.uniform(0, 1)}, tune={"num_samples": 3})
    more = Tuner.restore(str(lab.study), train).extend(num_samples=2).fit()

    assert "2 more samples, 5 in total" in capsys.readouterr().out
    assert len(lab.noted("began")) == 5
    assert [last(one)["x"] for one in more][:3] == [last(one)["x"] for one in first]
    assert len(lab.restore(train)) == 5  # and there is nothing more to do
    assert len(lab.noted("began")) == 5


def test_trials_that_had_ended_go_on_when_they_may_do_more(lab: Lab) -> None:
    from tests.integration.tune.trainables import Counter

    lab.fit(Counter, stop={"training_iteration": 3})
    [result] = Tuner.restore(str(lab.study), Counter).extend(stop={"training_iteration": 5}).fit()

    assert last(result)["count"] == 5
    assert [row["count"] for row in lab.rows("00000")] == [1, 2, 3, 4, 5]
    [again] = lab.restore(Counter)
    assert last(again)["count"] == 5


def test_a_machine_that_goes_lets_every_trial_save_itself_first(lab: Lab) -> None:
    from tests.integration.tune.trainables import Counter

    notes, driver = lab.notes, os.getpid()

    class Preempted(Counter):
        def step(self) -> dict[str, Any]:
            if self.iteration == 5 and is_first(notes.with_name("notice")):
                os.kill(driver, signal.SIGTERM)
            return super().step()

    # It saves itself only when it is told to.
    with pytest.raises(SystemExit) as left:
        lab.fit(Preempted, stop={"training_iteration": 400})
    assert left.value.code == 75
    [result] = Tuner.restore(str(lab.study), Preempted).fit()

    rows = [row["count"] for row in lab.rows("00000")]
    assert rows == list(range(1, 401))
    assert last(result)["iterations_since_restore"] < 396


class Tally(tune.Callback):
    """Counts results, over all drivers of its study."""

    def __init__(self) -> None:
        self.count = 0

    def on_trial_result(self, *_: Any, **__: Any) -> None:
        self.count += 1

    def get_state(self) -> dict[str, Any]:
        return {"count": self.count}

    def set_state(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


def test_a_callback_gets_its_state_back_when_its_study_goes_on(lab: Lab) -> None:
    notes, driver = lab.notes, os.getpid()

    def train(config: dict[str, Any]) -> None:
        for step in range(begin(notes), 5):
            if config["x"] == 1 and step == 2 and is_first(notes.with_name("stop")):
                os.kill(driver, signal.SIGINT)
            save(step, {})

    first, second = Tally(), Tally()
    given: dict[str, Any] = {"space": {"x": tune.grid_search([0, 1])}, "resume": "auto"}
    given["tune"] = {"max_concurrent_trials": 1}

    assert lab.fit(train, **given, callbacks=[first]).interrupted
    assert not lab.fit(train, **given, callbacks=[second]).interrupted

    steps_done_again = second.count - 8
    assert 0 <= steps_done_again <= 1
    assert first.count >= 5
