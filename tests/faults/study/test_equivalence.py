"""A study that is killed anywhere and goes on decides as the one that was not.

Every scheduler with every searcher, killed at every event of its journal (with searchers that
learn, at every seventh, others for each pair, so that the suite stays quick), with and without
states in the journal.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from holdfast.core.budget import Budget
from holdfast.core.study_rules import Rules
from holdfast.testing.study_play import Cut, Driver, Played, Script, play
from holdfast.tune import choice, loguniform, uniform
from holdfast.tune.schedulers import (
    PB2,
    AsyncHyperBandScheduler,
    FIFOScheduler,
    HyperBandForBOHB,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    TrialScheduler,
)
from holdfast.tune.search import BasicVariantGenerator, ConcurrencyLimiter, Repeater
from holdfast.tune.search.bohb import TuneBOHB
from holdfast.tune.search.generator import SearchPlan
from holdfast.tune.search.hyperopt import HyperOptSearch
from holdfast.tune.search.optuna import OptunaSearch

SPACE = {"x": uniform(0.0, 1.0), "lr": loguniform(1e-4, 1e-1), "kind": choice(["a", "b"])}
TIME = "training_iteration"


def score(config: Mapping[str, Any], step: int) -> dict[str, Any]:
    best = (config["x"] - 0.3) ** 2 + (0.1 if config["kind"] == "a" else 0.0)
    return {"loss": best + (1.0 + config["lr"]) / step}


def pbt(*, synch: bool = False) -> TrialScheduler:
    return PopulationBasedTraining(
        synch=synch,
        time_attr=TIME,
        perturbation_interval=2,
        hyperparam_mutations={"x": uniform(0.0, 1.0), "lr": [1e-3, 1e-2]},
        seed=7,
    )


SCHEDULERS: dict[str, Callable[[], TrialScheduler]] = {
    "FIFO": FIFOScheduler,
    "ASHA": lambda: AsyncHyperBandScheduler(
        time_attr=TIME, max_t=9, grace_period=1, reduction_factor=3, brackets=2, seed=3
    ),
    "HyperBand": lambda: HyperBandScheduler(time_attr=TIME, max_t=9, reduction_factor=3),
    "BOHB": lambda: HyperBandForBOHB(time_attr=TIME, max_t=9, reduction_factor=3),
    "median": lambda: MedianStoppingRule(time_attr=TIME, grace_period=2, min_samples_required=2),
    "PBT": pbt,
    "synchronous PBT": lambda: pbt(synch=True),
    "PB2": lambda: PB2(
        time_attr=TIME,
        perturbation_interval=3,
        hyperparam_bounds={"x": [0.0, 1.0]},
        seed=5,
    ),
}

SEARCHERS: dict[str, Callable[[], Any]] = {
    "random": lambda: BasicVariantGenerator(random_state=11),
    "optuna": lambda: OptunaSearch(seed=1),
    "hyperopt": lambda: HyperOptSearch(random_state_seed=2, n_initial_points=3),
    "bohb": lambda: TuneBOHB(seed=4),
    "limited": lambda: ConcurrencyLimiter(OptunaSearch(seed=1), max_concurrent=2),
    "repeated": lambda: Repeater(HyperOptSearch(random_state_seed=3), repeat=2),
}


def script(scheduler: str, searcher: str, *, samples: int = 6, **more: Any) -> Script:
    def search() -> SearchPlan:
        learns = searcher != "random"
        return SearchPlan(
            SEARCHERS[searcher](),
            SPACE,
            num_samples=samples,
            metric="loss" if learns else None,
            mode="min" if learns else None,
        )

    def judge() -> TrialScheduler:
        made = SCHEDULERS[scheduler]()
        made.set_search_properties("loss", "min")
        return made

    return Script(scheduler=judge, search=search, score=score, **more)


def must_be_the_same(found: Played, wanted: Played, what: str) -> None:
    assert found.decisions == wanted.decisions, what
    assert found.trials == wanted.trials, what


PAIRS = [
    (scheduler, searcher)
    for scheduler in SCHEDULERS
    for searcher in SEARCHERS
    if searcher == "random" or scheduler not in ("PBT", "synchronous PBT", "PB2")
]


@pytest.mark.req("U-078")
@pytest.mark.req("U-009")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("scheduler", "searcher"), PAIRS)
def test_killed_at_every_event_it_decides_the_same(scheduler: str, searcher: str) -> None:
    told = script(scheduler, searcher)
    wanted = play(told)
    stride = 1 if searcher == "random" else 7
    first = 1 if searcher == "random" else 1 + PAIRS.index((scheduler, searcher)) % stride

    assert len(wanted.trials) == 6
    for cut in range(first, len(wanted.events), stride):
        must_be_the_same(play(told, [cut]), wanted, f"cut after {cut} events")


@pytest.mark.req("U-078")
@pytest.mark.parametrize("scheduler", ["PBT", "PB2"])
def test_a_population_that_is_saved_only_when_it_is_asked_is_trained_as_much(
    scheduler: str,
) -> None:
    """As a class is by itself: what was asked for and not done, or done since, is done again."""
    told = script(scheduler, "random", saves_every=0, room=6)
    wanted = play(told)

    assert any("@perturbed" in trial["tag"] for trial in wanted.trials.values())
    for cut in range(1, len(wanted.events)):
        must_be_the_same(play(told, [cut]), wanted, f"cut after {cut} events")


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_states_in_the_journal_change_nothing(scheduler: str) -> None:
    wanted = play(script(scheduler, "random"))
    told = script(scheduler, "random", states_every=13)

    for cut in range(1, len(wanted.events), 5):
        must_be_the_same(play(told, [cut]), wanted, f"cut after {cut} events")


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_killed_again_and_again_it_decides_the_same(scheduler: str) -> None:
    told = script(scheduler, "random", states_every=11)
    wanted = play(script(scheduler, "random"))

    for length in (7, 17, 29):
        must_be_the_same(play(told, [length] * 200), wanted, f"cut every {length} events")


@pytest.mark.req("U-043")
@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("saves_every", [0, 1, 2])
def test_trials_that_die_and_go_on_are_judged_as_if_they_had_not(
    scheduler: str, saves_every: int
) -> None:
    def dies(number: int, step: int, attempt: int) -> bool:
        return attempt % 2 == 1 and (number + step) % 4 == 0

    rules = Rules(budget=Budget(failures=None))
    wanted = play(script(scheduler, "random", rules=rules, saves_every=saves_every))
    found = play(script(scheduler, "random", rules=rules, saves_every=saves_every, dies=dies))

    must_be_the_same(found, wanted, "with deaths")


@pytest.mark.parametrize("scheduler", ["HyperBand", "PBT"])
def test_a_study_whose_journal_has_lost_some_records_goes_on_to_its_end(scheduler: str) -> None:
    """As one that was damaged on its disk does: what is lost is told, and done again or left."""

    def dies(number: int, step: int, attempt: int) -> bool:
        return attempt % 2 == 1 and (number + step) % 4 == 0

    rules = Rules(budget=Budget(failures=None))
    told = script(scheduler, "random", rules=rules, saves_every=2, dies=dies)
    first = Driver(told, [])
    with contextlib.suppress(Cut):
        first.play(70)

    for lost in range(1, len(first.events), 3):
        driver = Driver(told, first.events[:lost] + first.events[lost + 1 :])
        driver.play()
        assert len(driver.study.finished) >= 5, f"without event {lost}"


@pytest.mark.req("U-078")
@pytest.mark.parametrize("searcher", SEARCHERS)
def test_half_the_samples_and_then_the_rest_are_the_same_as_all_at_once(searcher: str) -> None:
    """As when a study is extended: 25 + 25 equals 50."""
    whole = play(script("FIFO", searcher, samples=50, steps=1, room=1))
    half = script("FIFO", searcher, samples=25, steps=1, room=1)
    first = play(half)
    events = [*first.events, ("study_extended", {"num_samples": 50})]

    driver = Driver(half, events)
    driver.play()
    configs = {one.number: one.config for one in driver.study.finished.values()}

    assert configs == {number: trial["config"] for number, trial in whole.trials.items()}
