"""Stoppers: what stops a trial or the study, and that a crash changes nothing about it."""

from __future__ import annotations

import datetime as dt
import json
import logging
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ConfigError
from holdfast.tune.stopper import (
    CombinedStopper,
    DictStopper,
    ExperimentPlateauStopper,
    FunctionStopper,
    MaximumIterationStopper,
    NoopStopper,
    Stopper,
    TimeoutStopper,
    TrialPlateauStopper,
    stopper_of,
)
from tests.clocks import FakeClock


def at(iteration: int, **metrics: Any) -> dict[str, Any]:
    return {"training_iteration": iteration, **metrics}


def first_stop(stopper: Stopper, values: list[float], trial: str = "t") -> int | None:
    """Return the iteration at which a trial with these losses is stopped."""
    for iteration, value in enumerate(values, 1):
        if stopper(trial, at(iteration, loss=value)):
            return iteration
    return None


# ---------------------------------------------------------------------- iterations


def test_a_trial_stops_after_so_many_iterations() -> None:
    assert first_stop(MaximumIterationStopper(3), [1.0] * 9) == 3


def test_iterations_that_are_done_again_do_not_count_twice() -> None:
    stopper = MaximumIterationStopper(4)
    story = [1, 2, 3, 2, 3, 2, 3, 4]

    assert [stopper("t", at(i)) for i in story] == [False] * 7 + [True]


def test_where_results_have_no_iteration_calls_are_counted_and_forgotten() -> None:
    stopper = MaximumIterationStopper(2)

    assert not stopper("a", {"loss": 1})
    assert not stopper("b", {"loss": 1})
    assert stopper("a", {"loss": 1})
    stopper.forget("a")
    assert stopper.get_state() == {"calls": {"b": 1}}


# ---------------------------------------------------------------------- dictionaries


def test_a_criterion_stops_at_its_value_and_above() -> None:
    stopper = DictStopper({"acc": 0.5})

    assert [stopper("t", at(1, acc=acc)) for acc in (0.4, 0.5, 0.6, math.nan)] == [
        False,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize("criteria", [{"eval/acc": 0.5}, {"eval": {"acc": 0.5}}])
@pytest.mark.parametrize("reported", [{"eval/acc": 0.9}, {"eval": {"acc": 0.9}}])
def test_nested_metrics_are_found_however_they_are_written(
    criteria: dict[str, Any], reported: dict[str, Any]
) -> None:
    assert DictStopper(criteria)("t", at(1, **reported))


def test_any_one_criterion_is_enough() -> None:
    stopper = DictStopper({"training_iteration": 3, "done_enough": True})

    assert stopper("t", at(3, done_enough=False))
    assert stopper("t", at(1, done_enough=True))
    assert not stopper("t", at(1, done_enough=False))


def test_a_metric_that_is_not_reported_causes_one_warning_with_the_reported_names(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stopper = DictStopper({"accuracy": 0.5})
    for iteration in range(5):
        assert not stopper("t7", at(iteration, acc=0.9, eval={"loss": 1}, config={"lr": 1}))

    (record,) = caplog.records
    assert "'accuracy'" in record.message and "t7" in record.message
    assert "acc, eval/loss, training_iteration" in record.message


@pytest.mark.parametrize("bad", [{"a": "1"}, {"a": None}, {"a": [1]}, {"a": math.nan}, {1: 2}])
def test_a_criterion_that_cannot_be_compared_is_refused(bad: dict[Any, Any]) -> None:
    with pytest.raises(ConfigError, match="stop"):
        DictStopper(bad)


# ---------------------------------------------------------------------- time


def test_time_counts_from_the_first_look_and_only_while_a_driver_runs() -> None:
    clock = FakeClock(0.0)
    stopper = TimeoutStopper(10, clock=clock)
    clock.time = 100.0  # the study begins long after the stopper was made
    assert not stopper.stop_all()
    clock.time = 106.0
    assert not stopper("t", at(1)) and not stopper.stop_all()
    clock.time = 107.0
    state = json.loads(json.dumps(stopper.get_state()))

    later = FakeClock(0.0)
    later.time = 5000.0
    again = TimeoutStopper(10, clock=later)
    again.set_state(state)
    later.time = 5005.0
    assert not again.stop_all(), "the time before the study went on was counted"
    later.time = 5007.9
    assert not again.stop_all()
    later.time = 5008.1
    assert again.stop_all() and again.stop_all()


def test_what_is_left_is_known_between_two_looks() -> None:
    clock = FakeClock(0.0)
    stopper = TimeoutStopper(dt.timedelta(minutes=1), clock=clock)
    assert stopper.get_state() == {"remaining_s": 60.0}
    stopper.stop_all()
    clock.time = 15.0

    assert stopper.get_state() == {"remaining_s": 45.0}


@pytest.mark.parametrize("bad", [-1, "5", None, math.nan, True])
def test_a_time_that_is_none_is_refused(bad: Any) -> None:
    with pytest.raises(ConfigError, match="number of seconds"):
        TimeoutStopper(bad)


# ---------------------------------------------------------------------- plateaus


def test_a_trial_stops_when_its_metric_no_longer_moves() -> None:
    assert first_stop(TrialPlateauStopper("loss"), [5, 4, 3, 2, 1, 1, 1, 1, 1]) == 8


def test_nothing_stops_within_the_grace_period() -> None:
    assert first_stop(TrialPlateauStopper("loss", grace_period=7), [1] * 9) == 7


@pytest.mark.parametrize(("mode", "level"), [("min", 0.4), ("max", 0.6)])
def test_nothing_stops_before_the_metric_has_got_somewhere(mode: str, level: float) -> None:
    stopper = TrialPlateauStopper("loss", metric_threshold=0.5, mode=mode)

    assert first_stop(stopper, [1.0 - level] * 10) is None
    stopper.forget("t")
    assert first_stop(stopper, [level] * 10) == 4


def test_results_done_again_are_judged_once() -> None:
    stopper = TrialPlateauStopper("loss")
    for iteration, loss in [(1, 9.0), (2, 1.0), (3, 1.0), (2, 1.0), (3, 1.0), (3, 1.0)]:
        assert not stopper("t", at(iteration, loss=loss))
    assert not stopper("t", at(4, loss=1.0)), "the 9.0 of the first iteration was forgotten"
    assert stopper("t", at(5, loss=1.0))


def test_a_trial_that_is_over_leaves_nothing_behind() -> None:
    stopper = TrialPlateauStopper("loss")
    stopper("a", at(1, loss=1.0))
    stopper.forget("a")

    assert stopper.get_state() == TrialPlateauStopper("loss").get_state()


def test_the_study_stops_when_its_best_results_are_alike() -> None:
    stopper = ExperimentPlateauStopper("loss", top=3, std=0.01)

    assert first_stop(stopper, [1.0, 0.5, 0.5, 0.5]) == 4
    assert stopper.stop_all()


def test_patience_waits_for_some_results_more() -> None:
    stopper = ExperimentPlateauStopper("loss", top=2, patience=3, mode="max")

    assert first_stop(stopper, [1.0] * 9) == 4


def test_a_result_done_again_is_not_a_second_good_result() -> None:
    stopper = ExperimentPlateauStopper("loss", top=3, std=0.001)
    for iteration in (1, 2, 1, 2, 2, 2):
        assert not stopper("t", at(iteration, loss=1.0))
    assert not stopper.stop_all()
    assert stopper("t", at(3, loss=1.0))


def test_a_missing_or_nan_metric_lets_the_trial_go_on_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for stopper in (TrialPlateauStopper("loss"), ExperimentPlateauStopper("loss", top=2)):
        caplog.clear()
        for iteration in range(1, 9):
            assert not stopper("t", at(iteration, other=1.0))
            assert not stopper("t", at(iteration, loss=math.nan))
        assert len(caplog.records) == 1
        assert "other, training_iteration" in caplog.text


@pytest.mark.parametrize(
    "make",
    [
        lambda: MaximumIterationStopper(0),
        lambda: MaximumIterationStopper(1.5),  # type: ignore[arg-type]
        lambda: TrialPlateauStopper("loss", std=-1),
        lambda: TrialPlateauStopper("loss", mode="maximum"),
        lambda: TrialPlateauStopper("loss", metric_threshold=1.0),
        lambda: TrialPlateauStopper("loss", num_results=0),
        lambda: TrialPlateauStopper("", num_results=0),
        lambda: ExperimentPlateauStopper("loss", top=1),
        lambda: ExperimentPlateauStopper("loss", mode="best"),
        lambda: ExperimentPlateauStopper("loss", patience=-1),
        lambda: CombinedStopper(MaximumIterationStopper),  # type: ignore[arg-type]
    ],
    ids=range(11),
)
def test_what_cannot_work_is_refused_at_once(make: Callable[[], Stopper]) -> None:
    with pytest.raises(ConfigError):
        make()


# ---------------------------------------------------------------------- the user's own


class Picky(Stopper):
    """Fails now and then, as the user's code does."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        self.seen += 1
        return bool(result["accuracy"] > 0.5)

    def stop_all(self) -> bool:
        raise RuntimeError("out of order")

    def get_state(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def set_state(self, state: Any) -> None:
        self.seen = state["seen"]


def test_an_error_in_a_stop_function_stops_nothing_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def enough(trial_id: str, result: dict[str, Any]) -> bool:
        return bool(result["accuracy"] > 0.5)

    stopper = FunctionStopper(enough)
    assert [stopper("t", at(i, acc=1.0)) for i in range(4)] == [False] * 4
    assert stopper("t", at(5, accuracy=1.0))

    (record,) = caplog.records
    assert "enough" in record.message and "acc, training_iteration" in record.message
    assert record.exc_info is not None


@pytest.mark.parametrize("wrapped", [False, True])
def test_an_error_in_a_users_stopper_stops_nothing(
    caplog: pytest.LogCaptureFixture, wrapped: bool
) -> None:
    own = Picky()
    stopper = stopper_of(CombinedStopper(own) if wrapped else own)
    assert not any(stopper("t", at(i)) or stopper.stop_all() for i in range(3))
    assert stopper("t", at(4, accuracy=1))

    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2
    assert "Picky" in caplog.text
    again = stopper_of(CombinedStopper(Picky()) if wrapped else Picky())
    again.set_state(json.loads(json.dumps(stopper.get_state())))
    assert again.get_state() == stopper.get_state()


def test_every_form_that_users_pass_becomes_a_stopper() -> None:
    assert isinstance(stopper_of(None), NoopStopper)
    assert isinstance(stopper_of({}), NoopStopper)
    assert isinstance(stopper_of({"a": 1}), DictStopper)
    assert isinstance(stopper_of(lambda trial_id, result: True), FunctionStopper)
    own = MaximumIterationStopper(1)
    assert stopper_of(own) is own
    several = stopper_of([{"loss": 10}, own, lambda trial_id, result: result["x"] == 3])
    assert several("t", at(0, loss=11, x=0))
    assert several("t", at(1, loss=0, x=0))
    assert several("t", at(0, loss=0, x=3))
    assert not several("t", at(0, loss=0, x=0))


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (5, "pass a dictionary"),
        ("loss", "pass a dictionary"),
        ([5], "pass a dictionary"),
        (MaximumIterationStopper, r"stop=MaximumIterationStopper\(…\)"),
        (lambda result: True, "two arguments"),
    ],
    ids=["number", "text", "list", "class", "one argument"],
)
def test_what_is_no_form_of_stopping_is_refused_with_a_hint(bad: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        stopper_of(bad)


def test_of_several_stoppers_each_sees_every_result() -> None:
    own = Picky()
    several = CombinedStopper(DictStopper({"training_iteration": 0}), own)

    assert several("t", at(1, accuracy=0)) and several("t", at(2, accuracy=0))
    assert own.seen == 2


# ---------------------------------------------------------------------- crashes


MAKERS: dict[str, Callable[[], Stopper]] = {
    "iterations": lambda: MaximumIterationStopper(4),
    "dictionary": lambda: DictStopper({"loss": 3}),
    "trial plateau": lambda: TrialPlateauStopper("loss", std=0.6, num_results=3),
    "study plateau": lambda: ExperimentPlateauStopper("loss", std=0.6, top=3, patience=2),
    "several": lambda: CombinedStopper(
        MaximumIterationStopper(5),
        TrialPlateauStopper("loss", num_results=2, grace_period=2),
        ExperimentPlateauStopper("loss", top=2),
    ),
    "noop": NoopStopper,
}

calls = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.one_of(st.none(), st.integers(1, 6)),
        st.sampled_from([0.0, 1.0, 2.0, math.nan, math.inf, None]),
    ),
    max_size=14,
)


@pytest.mark.parametrize("kind", MAKERS)
@given(script=calls)
def test_a_crash_at_any_moment_changes_no_decision(kind: str, script: list[Any]) -> None:
    def decide(stopper: Stopper, report: Any) -> tuple[bool, bool]:
        trial, iteration, loss = report
        result = {"training_iteration": iteration, "loss": loss}
        reported = {name: value for name, value in result.items() if value is not None}
        return stopper(trial, reported), stopper.stop_all()

    whole = MAKERS[kind]()
    expected = [decide(whole, report) for report in script]
    crashing = MAKERS[kind]()
    decisions = []
    for report in script:
        fresh = MAKERS[kind]()
        fresh.set_state(json.loads(json.dumps(crashing.get_state())))
        crashing = fresh
        decisions.append(decide(crashing, report))

    assert decisions == expected


def test_the_state_of_one_that_is_no_longer_there_is_not_taken_by_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = CombinedStopper(TimeoutStopper(5), MaximumIterationStopper(2))
    after = CombinedStopper(MaximumIterationStopper(2))
    after.set_state(before.get_state())

    assert "starts afresh" in caplog.text
    assert after("t", at(2))
