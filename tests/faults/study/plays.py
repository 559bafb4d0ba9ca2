"""Every scheduler and every searcher that there is, in studies small enough to be cut anywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from optuna.samplers import TPESampler

from holdfast.testing.study_play import Script
from holdfast.tune import choice, grid_search, uniform
from holdfast.tune.schedulers import (
    PB2,
    AsyncHyperBandScheduler,
    FIFOScheduler,
    HyperBandForBOHB,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    PopulationBasedTrainingReplay,
    ResourceChangingScheduler,
    TrialScheduler,
)
from holdfast.tune.schedulers.resource_changing_scheduler import DistributeResourcesToTopJob
from holdfast.tune.search import BasicVariantGenerator, ConcurrencyLimiter, Repeater
from holdfast.tune.search.ax import AxSearch
from holdfast.tune.search.bohb import TuneBOHB
from holdfast.tune.search.generator import SearchPlan
from holdfast.tune.search.hyperopt import HyperOptSearch
from holdfast.tune.search.optuna import OptunaSearch
from holdfast.tune.trial import Trial

SPACE = {"x": uniform(0.0, 1.0), "kind": choice(["a", "b"])}
GRID = {"x": uniform(0.0, 1.0), "kind": grid_search(["a", "b"])}
POINTS: list[dict[str, Any]] = [{"x": 0.9, "kind": "b"}, {"x": 0.25}]
TIME = "training_iteration"
POLICY = Path(__file__).with_name("pbt_policy_7.txt")


def score(config: Mapping[str, Any], step: int) -> dict[str, Any]:
    best = (config["x"] - 0.3) ** 2 + (0.1 if config["kind"] == "a" else 0.0)
    return {"loss": best + (1.0 + config.get("lr", 0.001)) / step}


def asha(**more: Any) -> TrialScheduler:
    return AsyncHyperBandScheduler(
        time_attr=TIME, max_t=4, grace_period=1, reduction_factor=2, seed=3, **more
    )


def pbt(**more: Any) -> TrialScheduler:
    return PopulationBasedTraining(
        time_attr=TIME,
        perturbation_interval=2,
        hyperparam_mutations={"x": uniform(0.0, 1.0), "lr": [1e-3, 1e-2]},
        seed=7,
        **more,
    )


def pb2() -> TrialScheduler:
    bounds = {"x": [0.0, 1.0]}
    return PB2(time_attr=TIME, perturbation_interval=2, hyperparam_bounds=bounds, seed=5)


def halving(kind: type[HyperBandScheduler], **more: Any) -> TrialScheduler:
    return kind(time_attr=TIME, max_t=4, reduction_factor=2, **more)


def more_in_the_middle(view: Any, trial: Trial, result: Mapping[str, Any], _: Any) -> Any:
    return {"CPU": 2.0 if result[TIME] == 2 else 1.0}


def to_the_best(base: TrialScheduler) -> TrialScheduler:
    return ResourceChangingScheduler(base, DistributeResourcesToTopJob())


def hyperopt(seed: int) -> HyperOptSearch:
    return HyperOptSearch(random_state_seed=seed, n_initial_points=1)


def optuna(**more: Any) -> OptunaSearch:
    """Return one that knows enough to ask its model from the beginning."""
    known = [{"x": number / 10, "kind": "ab"[number % 2]} for number in range(10)]
    rewards = [score(one, 5)["loss"] for one in known]
    return OptunaSearch(seed=1, points_to_evaluate=known, evaluated_rewards=rewards, **more)


SCHEDULERS: dict[str, Callable[[], TrialScheduler]] = {
    "FIFO": FIFOScheduler,
    "ASHA": lambda: asha(brackets=2),
    "ASHA without end": lambda: asha(stop_last_trials=False),
    "HyperBand": lambda: halving(HyperBandScheduler),
    "HyperBand without end": lambda: halving(HyperBandScheduler, stop_last_trials=False),
    "BOHB": lambda: halving(HyperBandForBOHB),
    "median": lambda: MedianStoppingRule(time_attr=TIME, grace_period=1, min_samples_required=2),
    "median that pauses": lambda: MedianStoppingRule(
        time_attr=TIME, grace_period=1, min_samples_required=2, hard_stop=False
    ),
    "resources": lambda: ResourceChangingScheduler(FIFOScheduler(), more_in_the_middle),
    "shared resources": ResourceChangingScheduler,
    "PBT": pbt,
    "synchronous PBT": lambda: pbt(synch=True),
    "PB2": pb2,
    "PBT with resources": lambda: to_the_best(pbt()),
    "PBT replay": lambda: PopulationBasedTrainingReplay(POLICY),
}

SEARCHERS: dict[str, Callable[[], Any]] = {
    "random": lambda: BasicVariantGenerator(random_state=11),
    "grid": lambda: BasicVariantGenerator(POINTS, random_state=11),
    "two at a time": lambda: BasicVariantGenerator(max_concurrent=2, random_state=11),
    "optuna": optuna,
    "sampler": lambda: OptunaSearch(sampler=TPESampler(n_startup_trials=2), seed=1),
    "hyperopt": lambda: hyperopt(2),
    "bohb": lambda: TuneBOHB(bohb_config={"random_fraction": 0}, seed=4),
    "ax": lambda: AxSearch(random_seed=5),
    "limited": lambda: ConcurrencyLimiter(TuneBOHB(bohb_config={"random_fraction": 0}, seed=6), 2),
    "in batches": lambda: ConcurrencyLimiter(hyperopt(7), 2, batch=True),
    "repeated": lambda: Repeater(hyperopt(8), 2),
}
# How many trials it takes until those before have shown a searcher that learns what is good.
ENOUGH = dict.fromkeys(SEARCHERS, 8) | {"optuna": 5, "sampler": 6, "ax": 7, "repeated": 10}
CHANCE = ("random", "grid", "two at a time")  # the others learn
# They change configs themselves, so a searcher that learns is refused.
POPULATIONS = ("PBT", "synchronous PBT", "PB2", "PBT with resources", "PBT replay")
# The same schedulers and searchers with other arguments go with one of each kind only.
OTHER_SCHEDULERS = (
    "ASHA without end",
    "HyperBand without end",
    "median that pauses",
    "shared resources",
)
OTHER_SEARCHERS = ("grid", "two at a time", "sampler", "in batches")
KINDS = ("FIFO", "HyperBand", "PBT", "synchronous PBT", "PBT with resources")


def goes_with(scheduler: str, searcher: str) -> bool:
    if searcher not in CHANCE and scheduler in POPULATIONS:
        return False
    if scheduler in OTHER_SCHEDULERS:
        return searcher == "random"
    return searcher not in OTHER_SEARCHERS or scheduler in KINDS


PAIRS = [
    (scheduler, searcher)
    for scheduler in SCHEDULERS
    for searcher in SEARCHERS
    if goes_with(scheduler, searcher)
]


def script(scheduler: str, searcher: str, **more: Any) -> Script:
    """Return a study in which everybody comes to decide something, for `play`."""
    is_population, is_replay = scheduler in POPULATIONS, scheduler == "PBT replay"
    samples = more.pop("samples", 1 if is_replay else 5 if is_population else ENOUGH[searcher])
    learns = searcher not in CHANCE

    def search() -> SearchPlan:
        is_grid = searcher == "grid" and not is_replay
        return SearchPlan(
            SEARCHERS[searcher](),
            GRID if is_grid else SPACE,
            num_samples=-(-samples // 2) if is_grid else samples,
            metric="loss" if learns else None,
            mode="min" if learns else None,
        )

    def judge() -> TrialScheduler:
        made = SCHEDULERS[scheduler]()
        made.set_search_properties("loss", "min")
        return made

    room = 3 if is_population or "resources" in scheduler else 2
    steps = 8 if is_population else 4 if scheduler == "resources" else 5
    told = {"score": score, "steps": steps, "room": room, "saves_every": 2}
    return Script(scheduler=judge, search=search, **{**told, **more})
