from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.testing.fake_study import FakeStudy
from holdfast.tune.errors import TuneError
from holdfast.tune.schedulers import AsyncHyperBandScheduler, ResourceChangingScheduler
from holdfast.tune.schedulers.resource_changing_scheduler import (
    DistributeResources,
    DistributeResourcesToTopJob,
    evenly_distribute_cpus_gpus,
)


def study_of(function: Any, *, trials: int, slots: int = 8, cpus: float = 1) -> FakeStudy:
    study = FakeStudy(ResourceChangingScheduler(None, function), slots=slots)
    for _ in range(trials):
        study.add(cpus=cpus)
    study.fill()
    return study


def test_what_is_free_is_shared_evenly() -> None:
    study = study_of(DistributeResources(), trials=3)

    assert [study.report(trial) for trial in study.trials] == ["NOOP"] * 3
    assert [trial.resources for trial in study.trials] == [({"CPU": 2.0},)] * 3  # 8 // 3


def test_a_trial_that_has_its_share_continues() -> None:
    study = study_of(DistributeResources(), trials=2)
    for trial in study.trials:
        study.report(trial)
    study.fill()

    assert [study.report(trial) for trial in study.trials] == ["CONTINUE", "CONTINUE"]
    assert [trial.resources for trial in study.trials] == [({"CPU": 4.0},)] * 2


def test_a_trial_gets_what_others_leave_behind() -> None:
    study = study_of(evenly_distribute_cpus_gpus, trials=2)
    study.complete(study.trials[0])
    study.report(study.trials[1])

    assert study.trials[1].resources == ({"CPU": 8.0},)
    assert study.choose() is study.trials[1]


def test_what_waits_keeps_what_it_needs_to_start() -> None:
    study = study_of(DistributeResources(), trials=8, slots=6)

    assert study.report(study.trials[0]) == "CONTINUE"


def test_a_trial_gives_back_what_new_ones_need() -> None:
    study = study_of(DistributeResources(), trials=1, slots=4)
    study.report(study.trials[0])
    study.fill()
    assert study.trials[0].resources == ({"CPU": 4.0},)
    study.add()

    assert study.report(study.trials[0]) == "NOOP"
    assert study.trials[0].resources == ({"CPU": 2.0},)


def test_a_grown_trial_that_paused_is_not_kept_out_by_smaller_ones() -> None:
    study = study_of(DistributeResources(), trials=1, slots=2)
    grown = study.trials[0]
    study.report(grown)
    assert grown.resources == ({"CPU": 2.0},)
    small = [study.add(), study.add()]
    for trial in small:
        study.start(trial)
    assert not study.has_resources_for_trial(grown)
    study.report(small[0])

    assert grown.resources == ({"CPU": 1.0},)
    study.complete(small[0])
    assert study.choose() is grown


def test_a_grown_trial_keeps_its_share_while_there_is_room_for_it() -> None:
    study = study_of(DistributeResources(), trials=2, slots=8)
    grown, other = study.trials
    study.report(grown)
    study.report(other)

    assert grown.resources == ({"CPU": 4.0},)


def test_processes_are_added_if_wanted() -> None:
    study = study_of(DistributeResources(add_bundles=True, increase_by={"CPU": 2}), trials=1)
    study.report(study.trials[0])

    assert study.trials[0].resources == ({"CPU": 1.0},) + ({"CPU": 2.0},) * 3


def test_the_increase_can_be_limited() -> None:
    function = DistributeResources(increase_by={"CPU": 2}, increase_by_times=2)
    study = study_of(function, trials=1, slots=20)
    study.report(study.trials[0])

    assert study.trials[0].resources == ({"CPU": 5.0},)


def test_what_is_reserved_is_left_alone() -> None:
    study = study_of(DistributeResources(reserve_resources={"CPU": 5}), trials=1)
    study.report(study.trials[0])

    assert study.trials[0].resources == ({"CPU": 3.0},)


def test_several_processes_get_more_in_turn() -> None:
    study = FakeStudy(ResourceChangingScheduler(None, DistributeResources()), slots=8)
    trial = study.add()
    trial.resources = ({"CPU": 1.0}, {"CPU": 1.0}, {"CPU": 1.0})
    study.scheduler = ResourceChangingScheduler(None, DistributeResources())
    study.scheduler.on_trial_add(study, trial)
    study.fill()
    study.report(trial)

    assert trial.resources == ({"CPU": 3.0}, {"CPU": 3.0}, {"CPU": 2.0})


@pytest.mark.parametrize(("mode", "best"), [("max", 2), ("min", 0)])
def test_the_best_gets_all_there_is(mode: str, best: int) -> None:
    study = study_of(DistributeResourcesToTopJob(metric="score", mode=mode), trials=3)
    for trial in study.trials:
        trial.last_result = {"score": trial.number}
    verdicts = [study.report(trial) for trial in study.trials]

    assert verdicts == ["NOOP" if trial.number == best else "CONTINUE" for trial in study.trials]
    assert study.trials[best].resources == ({"CPU": 6.0},)


def test_a_trial_that_is_no_longer_best_gives_its_extra_resources_back() -> None:
    study = study_of(DistributeResourcesToTopJob(metric="score", mode="max"), trials=2)
    study.trials[0].last_result = {"score": 0}
    study.report(study.trials[1])
    study.fill()
    assert study.trials[1].resources == ({"CPU": 7.0},)
    study.report(study.trials[0], score=9)
    study.report(study.trials[1])

    assert study.trials[1].resources == ({"CPU": 1.0},)


def test_the_best_trial_is_chosen_by_the_base_schedulers_metric() -> None:
    inner = AsyncHyperBandScheduler(metric="score", mode="max")
    study = FakeStudy(ResourceChangingScheduler(inner, DistributeResourcesToTopJob()), slots=4)
    trial = study.add()
    study.fill()

    assert study.report(trial) == "NOOP"
    assert study.scheduler.metric == "score"


def test_the_best_of_nothing_is_an_error() -> None:
    study = study_of(DistributeResourcesToTopJob(), trials=1)
    with pytest.raises(TuneError, match="metric=None and mode=None"):
        study.report(study.trials[0])


def test_the_base_scheduler_decides_first() -> None:
    inner = AsyncHyperBandScheduler(metric="score", mode="max", max_t=1)
    study = FakeStudy(ResourceChangingScheduler(inner), slots=4)
    trial = study.add()
    study.fill()

    assert study.report(trial) == "STOP"


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"CPU": 3, "GPU": 0}, ({"CPU": 3.0},)),
        ([{"CPU": 1}, {"CPU": 2}], ({"CPU": 1.0}, {"CPU": 2.0})),
        (SimpleNamespace(bundles=[{"CPU": 2}]), ({"CPU": 2.0},)),
    ],
)
def test_a_function_says_what_a_trial_should_have(wanted: Any, expected: Any) -> None:
    study = study_of(lambda *_: wanted, trials=1)

    assert study.report(study.trials[0]) == "NOOP"
    assert study.trials[0].resources == expected


@pytest.mark.parametrize("wanted", [None, {"CPU": 1}])
def test_a_function_may_leave_things_as_they_are(wanted: Any) -> None:
    study = study_of(lambda *_: wanted, trials=1)

    assert study.report(study.trials[0]) == "CONTINUE"


@pytest.mark.parametrize("wanted", ["2 CPUs", {"CPU": -1}, [], {"CPU": "two"}, 3])
def test_what_says_nothing_is_refused(wanted: Any) -> None:
    study = study_of(lambda *_: wanted, trials=1)
    with pytest.raises(TuneError, match="does not say what resources a trial should have"):
        study.report(study.trials[0])


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ConfigError, match="base_scheduler is not a scheduler, this is str"):
        ResourceChangingScheduler("asha")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="resources_allocation_function cannot be called"):
        ResourceChangingScheduler(None, 3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"increase_by=\{'CPU': 0\}"):
        DistributeResources(increase_by={"CPU": 0})
    with pytest.raises(ConfigError, match="mode='up'"):
        DistributeResourcesToTopJob(mode="up")
