"""Trials that die: they go on, others do not notice, and what happened is told."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from typing import Any

import pytest

from holdfast import tune
from holdfast.errors import ConfigError
from holdfast.tune.search import Searcher
from tests.integration.train.hang_clock import watch_for_hangs_while
from tests.integration.train.loops import is_first
from tests.integration.tune.conftest import Lab, last
from tests.integration.tune.trainables import Counter, begin, save


@pytest.mark.req("U-040")
@pytest.mark.req("U-012")
def test_a_trial_that_always_fails_is_tried_as_often_as_allowed_and_no_more(lab: Lab) -> None:
    notes = lab.notes

    def train(config: dict[str, Any]) -> None:
        begin(notes)
        raise ValueError("no such luck")

    results = lab.fit(train, max_failures=3)

    assert len(lab.noted("began")) == 4
    assert results.num_errors == 1
    assert "no such luck" in str(results.errors[0])


@pytest.mark.req("U-001")
@pytest.mark.req("U-039")
@pytest.mark.req("U-041")
@pytest.mark.parametrize("how", ["SIGKILL", "MemoryError", "ENOSPC", "exit"])
def test_a_trial_that_dies_goes_on_from_its_checkpoint(lab: Lab, how: str) -> None:
    notes = lab.notes

    def die() -> None:
        match how:
            case "SIGKILL":
                os.kill(os.getpid(), signal.SIGKILL)
            case "MemoryError":
                raise MemoryError
            case "ENOSPC":
                raise OSError(28, "No space left on device")
            case "exit":
                os._exit(0)

    def train(config: dict[str, Any]) -> None:
        for step in range(begin(notes), 6):
            if step == 4 and is_first(notes.with_name("death")):
                die()
            save(step)

    [result] = lab.fit(train, max_failures=1)

    assert [fact["step"] for fact in lab.noted("began")] == [None, 3]
    assert result.error is None and last(result)["step"] == 5
    assert [row["training_iteration"] for row in lab.rows("00000")] == [1, 2, 3, 4, 5]


@pytest.mark.req("U-043")
def test_others_do_not_notice_and_the_study_goes_on(lab: Lab) -> None:
    notes = lab.notes

    def train(config: dict[str, Any]) -> None:
        for step in range(begin(notes), 4):
            if config["x"] == 1:
                raise RuntimeError("only this one")
            save(step)

    results = lab.fit(train, {"x": tune.grid_search([0, 1, 2])})

    assert (results.num_errors, results.num_terminated) == (1, 2)
    assert len(lab.noted("began")) == 3


@pytest.mark.req("U-002")
@pytest.mark.req("U-082")
def test_killed_again_and_again_a_class_ends_as_if_undisturbed(lab: Lab) -> None:
    notes = lab.notes

    class Mortal(Counter):
        def step(self) -> dict[str, Any]:
            if self.iteration % 3 == 2 and is_first(notes.with_name(f"death-{self.iteration}")):
                os.kill(os.getpid(), signal.SIGKILL)
            return super().step()

    [result] = lab.fit(
        Mortal,
        {"add": 3},
        max_failures=-1,
        stop={"training_iteration": 10},
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=2),
    )

    assert last(result)["count"] == 30
    assert [row["count"] for row in lab.rows("00000")] == list(range(3, 31, 3))


def test_the_first_failure_can_end_the_study(lab: Lab) -> None:
    def train(config: dict[str, Any]) -> None:
        if config["x"] == 0:
            raise RuntimeError("the first")
        while True:
            tune.report({"x": 1})

    results = lab.fit(train, {"x": tune.grid_search([0, 1, 2])}, fail_fast=True)

    assert results.num_errors == 1
    assert len(results) <= 3


def test_the_first_failure_can_be_raised(lab: Lab) -> None:
    def train(config: dict[str, Any]) -> None:
        raise RuntimeError("the very error")

    with pytest.raises(RuntimeError, match="the very error"):
        lab.fit(train, fail_fast="raise")


def test_a_damaged_checkpoint_is_passed_over(lab: Lab) -> None:
    notes, study = lab.notes, lab.study

    def train(config: dict[str, Any]) -> None:
        for step in range(begin(notes), 5):
            if step == 4 and is_first(notes.with_name("death")):
                [newest] = study.glob("*/checkpoint_000002/state.json")
                newest.write_text("garbage")
                raise RuntimeError("now it is damaged")
            save(step)

    [result] = lab.fit(train, max_failures=1)

    assert [fact["step"] for fact in lab.noted("began")] == [None, 2]
    assert last(result)["step"] == 4


@pytest.mark.parametrize("how", ["SIGSTOP", "deadlock"])
def test_a_trial_that_hangs_is_found_and_goes_on(
    lab: Lab, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = lab.notes
    hangs = notes.with_name("hang")
    watch_for_hangs_while(monkeypatch, lambda: hangs.exists() and len(lab.noted("began")) == 1)

    def hang() -> None:
        if how == "SIGSTOP":
            os.kill(os.getpid(), signal.SIGSTOP)
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()

    def train(config: dict[str, Any]) -> None:
        for step in range(begin(notes), 5):
            if step == 3 and is_first(hangs):
                hang()
            save(step)

    failures = tune.FailureConfig(max_failures=1, hang_timeout_s=1.0, backoff_max_s=0.0)
    [result] = lab.fit(train, failure_config=failures)

    assert last(result)["step"] == 4
    assert [fact["step"] for fact in lab.noted("began")] == [None, 2]
    [stacks] = lab.study.glob("*/logs/stacks-1.txt")
    assert how == "SIGSTOP" or "in hang" in stacks.read_text()


class Failing(Searcher):
    """Fails from its second proposal on."""

    def suggest(self, trial_id: str) -> dict[str, Any]:
        if trial_id.endswith("_00000"):
            return {"x": 1}
        raise RuntimeError("no idea")

    def on_trial_complete(self, *args: Any, **more: Any) -> None:
        pass


def test_a_searcher_that_fails_ends_the_study_only_when_no_trial_is_left(lab: Lab) -> None:
    def train(config: dict[str, Any]) -> None:
        for step in (1, 2, 3):
            save(step)

    with pytest.raises(RuntimeError, match="no idea"):
        lab.fit(train, tune={"search_alg": Failing(), "num_samples": 3})

    [result] = tune.Tuner.restore(str(lab.study), train).get_results()
    assert last(result)["step"] == 3


def test_a_trial_that_asks_for_too_much_fails_and_the_others_go_on(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(config: dict[str, Any]) -> None:
        tune.report({"x": config["x"]})

    greedy = tune.with_resources(train, lambda config: {"cpu": 4096 if config["x"] == 1 else 1})
    results = lab.fit(greedy, {"x": tune.grid_search([0, 1, 2])})

    assert [one.error is None for one in results] == [True, False, True]
    assert "a trial needs [{'CPU': 4096.0}] at once, but only CPU=" in str(results[1].error)
    assert "it cannot start; the other trials go on" in " ".join(capsys.readouterr().err.split())
    again = lab.restore(greedy, resume_errored=True)
    assert [one.error is None for one in again] == [True, False, True]
    modest = tune.with_resources(train, lambda _: {"cpu": 1})
    assert lab.restore(modest, resume_errored=True).num_errors == 0


def test_what_even_the_first_trial_cannot_have_is_refused_at_once(lab: Lab) -> None:
    def train(config: dict[str, Any]) -> None:
        tune.report({"x": config["x"]})

    greedy = tune.with_resources(train, lambda _: {"cpu": 4096})
    with pytest.raises(ConfigError, match="only CPU="):
        lab.fit(greedy, {"x": tune.grid_search([0, 1, 2])})


def test_a_restore_finishes_the_trials_that_the_first_failure_has_cut_off(lab: Lab) -> None:
    notes, saved, again = lab.notes, lab.folder / "saved", lab.folder / "again"

    def train(config: dict[str, Any]) -> None:
        first = begin(notes)
        while config["x"] == 1 and not again.exists():
            if saved.exists():
                raise RuntimeError("the first")
            tune.report({"step": 0})
        for step in itertools.count(first):
            save(step)
            saved.touch()
            if again.exists():
                return

    small = tune.with_resources(train, {"cpu": 0.5})
    results = lab.fit(small, {"x": tune.grid_search([0, 1])}, fail_fast=True)
    assert results.num_errors == results.num_terminated == 1
    again.touch()
    done = len(lab.rows("00000"))

    results = lab.restore(small)
    assert results.num_errors == 1  # only resume_errored tries that one again
    assert last(results[0])["step"] == done + 1
    assert lab.restore(small, resume_errored=True).num_errors == 0
    began = [note["trial"][-1] for note in lab.noted("began")]
    assert sorted(began[:2]) == ["0", "1"]  # at once, so that either may be first
    assert began[2:] == ["0", "1"]
