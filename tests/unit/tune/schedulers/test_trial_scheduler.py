from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.study.trial import Status
from holdfast.errors import ConfigError, Damaged
from holdfast.testing.fake_study import FakeStudy
from holdfast.tune import schedulers
from holdfast.tune.schedulers import (
    PB2,
    AsyncHyperBandScheduler,
    FIFOScheduler,
    HyperBandForBOHB,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    ResourceChangingScheduler,
    TrialScheduler,
    create_scheduler,
)

OURS: list[TrialScheduler] = [
    FIFOScheduler(),
    AsyncHyperBandScheduler(),
    HyperBandScheduler(),
    HyperBandForBOHB(),
    MedianStoppingRule(),
    PopulationBasedTraining(hyperparam_mutations={"lr": [1, 2]}),
    PB2(hyperparam_bounds={"lr": [0, 1]}),
    ResourceChangingScheduler(),
]


def test_fifo_runs_what_is_pending_before_what_is_paused() -> None:
    study = FakeStudy(FIFOScheduler(), slots=1)
    first, second = study.add(), study.add()
    first.status = Status.PAUSED

    assert study.choose() is second
    second.status = Status.TERMINATED
    assert study.choose() is first


def test_fifo_passes_over_what_does_not_fit() -> None:
    study = FakeStudy(FIFOScheduler(), slots=2)
    study.add(cpus=3)
    small = study.add(cpus=1)

    assert study.choose() is small


def test_fifo_lets_everything_go_on() -> None:
    study = FakeStudy(FIFOScheduler(), slots=1)
    trial = study.add()
    study.fill()

    assert study.report(trial) == "CONTINUE"
    assert study.choose() is None


def test_a_metric_that_is_given_twice_is_refused() -> None:
    scheduler = FIFOScheduler()

    assert scheduler.set_search_properties("loss", "min")
    assert scheduler.metric == "loss"
    assert not scheduler.set_search_properties("acc", None)
    assert not scheduler.set_search_properties(None, "max")
    assert scheduler.set_search_properties(None, None)
    assert scheduler.metric == "loss"


def test_a_metric_may_come_in_parts() -> None:
    scheduler = AsyncHyperBandScheduler(metric="loss")

    assert scheduler.set_search_properties(None, "min")
    FakeStudy(scheduler).add()


@pytest.mark.parametrize("scheduler", OURS, ids=lambda scheduler: type(scheduler).__name__)
def test_our_schedulers_name_all_they_keep(scheduler: TrialScheduler) -> None:
    """What is not declared would be taken for an attribute of a user's subclass."""
    assert scheduler.get_state()["attributes"] == {}


@pytest.mark.req("U-078")
def test_a_users_class_is_saved_without_code_of_its_own() -> None:
    class Every(FIFOScheduler):
        def __init__(self) -> None:
            self.seen: dict[str, int] = {}

        def on_trial_result(self, view: Any, trial: Any, result: dict[str, Any]) -> str:
            self.seen[trial.trial_id] = self.seen.get(trial.trial_id, 0) + 1
            return self.STOP if self.seen[trial.trial_id] == 3 else self.CONTINUE

    study = FakeStudy(Every(), remade=Every)
    trial = study.add()
    study.fill()

    assert [study.report(trial) for _ in range(3)] == ["CONTINUE", "CONTINUE", "STOP"]


@pytest.mark.req("U-078")
def test_what_a_subclass_of_ours_adds_is_saved_with_the_rest() -> None:
    class Counting(AsyncHyperBandScheduler):
        def __init__(self) -> None:
            self.before = 0
            super().__init__(metric="score", mode="max", seed=1)
            self.after = [0]

    scheduler, other = Counting(), Counting()
    scheduler.before, scheduler.after = 7, [8]
    other.set_state(json.loads(json.dumps(scheduler.get_state())))

    assert (other.before, other.after) == (7, [8])


@pytest.mark.req("U-078")
@pytest.mark.parametrize(
    "held", [{1, 2}, (1, 2), {1: "a"}, object(), [{"a": (1,)}], {"a": lambda: 0}]
)
def test_what_json_would_change_is_refused_by_name(held: object) -> None:
    class Mine(FIFOScheduler):
        def __init__(self) -> None:
            self.fine = {"a": [1, 2.0, None, True, "x", float("nan")]}
            self.held = held

    with pytest.raises(ConfigError) as caught:
        Mine().get_state()

    assert "held=" in str(caught.value)
    assert "fine" not in str(caught.value)
    assert "Mine.get_state and .set_state" in str(caught.value)


def test_a_state_is_a_copy() -> None:
    class Mine(FIFOScheduler):
        def __init__(self) -> None:
            self.seen = [1]

    scheduler, other = Mine(), Mine()
    state = scheduler.get_state()
    scheduler.seen.append(2)
    other.set_state(state)
    other.seen.append(3)

    assert state["attributes"] == {"seen": [1]}


def test_a_state_is_kept_in_a_file(tmp_path: Path) -> None:
    scheduler = AsyncHyperBandScheduler(metric="score", mode="max", seed=3)
    study = FakeStudy(scheduler, slots=2)
    first, second = study.add(), study.add()
    study.fill()
    study.report(second)
    scheduler.save(tmp_path / "state.json")
    study.scheduler = AsyncHyperBandScheduler(metric="score", mode="max")
    study.scheduler.restore(str(tmp_path / "state.json"))

    assert study.report(first) == "STOP"
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_a_file_that_holds_no_state_is_called_damaged(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text('{"attributes": ')
    with pytest.raises(Damaged, match=r"state\.json"):
        FIFOScheduler().restore(tmp_path / "state.json")


@pytest.mark.parametrize("hook", ["on_trial_error", "on_trial_remove"])
@pytest.mark.parametrize("scheduler", OURS[:-1], ids=lambda scheduler: type(scheduler).__name__)
def test_calls_about_an_unknown_trial_do_no_harm(scheduler: TrialScheduler, hook: str) -> None:
    study = FakeStudy(FIFOScheduler())
    stranger = study.add()
    stranger.status = Status.ERROR
    getattr(scheduler, hook)(study, stranger)
    scheduler.on_trial_complete(study, stranger, {})
    answer = scheduler.on_trial_result(study, stranger, {"training_iteration": 1})

    assert answer == "CONTINUE"
    assert scheduler.choose_trial_to_run(study) is None


@pytest.mark.req("U-049")
def test_those_that_pause_or_copy_trials_say_that_trials_must_save() -> None:
    need = {type(scheduler).__name__ for scheduler in OURS if scheduler.requires_checkpoints}

    assert need == {
        "HyperBandScheduler", "HyperBandForBOHB", "MedianStoppingRule", "PopulationBasedTraining",
        "PB2", "ResourceChangingScheduler",
    }  # fmt: skip
    assert not MedianStoppingRule(min_time_slice=float("inf")).requires_checkpoints
    assert MedianStoppingRule(min_time_slice=float("inf"), hard_stop=False).requires_checkpoints


def test_those_that_change_configs_say_that_no_searcher_may() -> None:
    refuse = {type(scheduler).__name__ for scheduler in OURS if not scheduler.accepts_searcher}

    assert refuse == {"PopulationBasedTraining", "PB2"}
    inner = PopulationBasedTraining(hyperparam_mutations={"lr": [1]})
    assert not ResourceChangingScheduler(inner).accepts_searcher


def test_those_that_compare_trials_want_some_to_wait() -> None:
    assert FIFOScheduler().trials_ahead == AsyncHyperBandScheduler().trials_ahead == 0
    assert HyperBandScheduler().trials_ahead == MedianStoppingRule().trials_ahead == 1
    assert PB2(hyperparam_bounds={"lr": [0, 1]}).trials_ahead == 1000
    assert ResourceChangingScheduler(HyperBandScheduler()).trials_ahead == 1


def test_a_missing_metric_or_mode_is_refused_before_there_is_a_trial() -> None:
    FIFOScheduler().check_ready()
    AsyncHyperBandScheduler(metric="a", mode="max").check_ready()
    with pytest.raises(ConfigError, match="metric='a' and mode=None"):
        AsyncHyperBandScheduler(metric="a").check_ready()
    with pytest.raises(ConfigError, match="metric=None and mode=None"):
        ResourceChangingScheduler(HyperBandScheduler()).check_ready()


@pytest.mark.parametrize(
    ("name", "kwargs", "kind"),
    [
        ("fifo", {}, "FIFOScheduler"),
        ("async_hyperband", {"max_t": 10}, "AsyncHyperBandScheduler"),
        ("asynchyperband", {}, "AsyncHyperBandScheduler"),
        ("median_stopping_rule", {}, "MedianStoppingRule"),
        ("medianstopping", {}, "MedianStoppingRule"),
        ("hyperband", {}, "HyperBandScheduler"),
        ("hb_bohb", {}, "HyperBandForBOHB"),
        ("pbt", {"hyperparam_mutations": {"lr": [1]}}, "PopulationBasedTraining"),
        ("pb2", {"hyperparam_bounds": {"lr": [0, 1]}}, "PB2"),
        ("resource_changing", {}, "ResourceChangingScheduler"),
    ],
)
def test_a_scheduler_is_made_by_its_name(name: str, kwargs: dict[str, Any], kind: str) -> None:
    assert type(create_scheduler(name, **kwargs)).__name__ == kind


def test_an_unknown_name_lists_the_known_and_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        create_scheduler("hyperbandd")

    assert "fifo, async_hyperband" in str(caught.value)
    assert caught.value.hint == "hyperband for hyperbandd"


def test_an_unknown_argument_is_not_dropped() -> None:
    with pytest.raises(ConfigError) as caught:
        create_scheduler("async_hyperband", max_time=3, whatever=1)

    assert "'max_time', 'whatever'" in str(caught.value)
    assert caught.value.hint == "max_t for max_time"


def test_an_argument_that_is_needed_is_named() -> None:
    with pytest.raises(ConfigError, match="needs policy_file"):
        create_scheduler("pbt_replay")


def test_every_name_of_the_package_is_there() -> None:
    assert all(hasattr(schedulers, name) for name in schedulers.__all__)
