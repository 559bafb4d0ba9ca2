from __future__ import annotations

import json
import logging
import statistics
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.tune.search import BasicVariantGenerator, Proposal, Searcher, SearchPlan
from holdfast.tune.search.ax import AxSearch
from holdfast.tune.search.bohb import TuneBOHB
from holdfast.tune.search.dimension import Dimension
from holdfast.tune.search.hyperopt import HyperOptSearch
from holdfast.tune.search.sample import (
    choice,
    lograndint,
    loguniform,
    qloguniform,
    qrandint,
    qrandn,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)
from holdfast.tune.search.tpe import JointModel, JointSettings, Tried, parts_of
from tests.unit.tune.search.landscapes import BRANIN, HARTMANN, branin, hartmann, losses_of

SEEDS = range(4)
DOMAINS = {
    "uniform": uniform(-1, 3),
    "quniform": quniform(0, 1, 0.1),
    "loguniform": loguniform(1e-4, 1),
    "qloguniform": qloguniform(0.5, 8, 0.5),
    "randint": randint(0, 10),
    "lograndint": lograndint(1, 100),
    "qrandint": qrandint(1, 11, 2),
    "randn": randn(5, 2),
    "qrandn": qrandn(5, 2, 0.5),
}


def random_search(seed: int) -> Searcher:
    return BasicVariantGenerator(random_state=seed)


def hyperopt(seed: int) -> Searcher:
    return HyperOptSearch(random_state_seed=seed)


def bohb(seed: int) -> Searcher:
    return TuneBOHB(seed=seed)


@pytest.mark.parametrize("searcher", [hyperopt, bohb])
def test_a_model_finds_what_chance_does_not(searcher: Any) -> None:
    bests = [min(losses_of(searcher(seed), HARTMANN, hartmann, 80)) for seed in SEEDS]
    floor = [min(losses_of(random_search(seed), HARTMANN, hartmann, 80)) for seed in SEEDS]

    assert statistics.median(bests) < statistics.median(floor) - 0.2


@pytest.mark.parametrize("searcher", [hyperopt, bohb])
def test_what_a_model_suggests_late_is_better_than_what_chance_suggests(searcher: Any) -> None:
    def late(of: Searcher) -> float:
        return statistics.median(losses_of(of, BRANIN, branin, 80)[40:])

    medians = [late(searcher(seed)) for seed in SEEDS]
    floor = [late(random_search(seed)) for seed in SEEDS]

    assert max(medians) < min(floor)


@pytest.mark.parametrize("name", DOMAINS)
def test_a_value_comes_back_from_its_place_on_the_line(name: str) -> None:
    domain: Any = DOMAINS[name]
    line = Dimension.of(domain)
    for seed in range(50):
        value = domain.sample(random_state=seed)
        place = line.place(value)

        assert line.low <= place <= line.high
        assert line.value(place) == pytest.approx(value)
        span = line.span(value)
        assert span is None or span[0] < place < span[1]


@pytest.mark.parametrize(
    "make", [lambda: HyperOptSearch(n_initial_points=3), TuneBOHB], ids=["hyperopt", "bohb"]
)
def test_every_kind_of_domain_is_searched_within_its_bounds(make: Any) -> None:
    space = {
        **DOMAINS,
        "choice": choice(["a", "b"]),
        "double": sample_from(lambda c: c["randn"] * 2),
    }
    plan = SearchPlan(make(), space, num_samples=40, metric="score", mode="max")
    for _ in range(40):
        proposal: Any = plan.next()
        config = proposal.config
        for name, domain in DOMAINS.items():
            assert domain.is_valid(config[name]), (name, config[name])
        assert config["double"] == config["randn"] * 2
        assert round(config["quniform"] * 10) / 10 == config["quniform"]
        score = config["randn"] - abs(config["uniform"])
        plan.on_complete(proposal.trial_id, {"score": score, "training_iteration": 1})


def test_values_that_only_some_options_have_are_learned() -> None:
    space = {
        "opt": choice(
            [{"kind": "sgd", "lr": uniform(0, 1)}, {"kind": "adam", "beta": uniform(0, 1)}]
        )
    }
    plan = SearchPlan(
        HyperOptSearch(random_state_seed=1), space, num_samples=80, metric="loss", mode="min"
    )
    configs = []
    for _ in range(80):
        proposal: Any = plan.next()
        opt = proposal.config["opt"]
        configs.append(opt)
        loss = abs(opt["lr"] - 0.3) if opt["kind"] == "sgd" else 1 + opt["beta"]
        plan.on_complete(proposal.trial_id, {"loss": loss})

    assert all(
        set(config) == {"kind", "lr" if config["kind"] == "sgd" else "beta"} for config in configs
    )
    late = configs[40:]
    assert sum(config["kind"] == "sgd" for config in late) > 30
    assert statistics.median(abs(config["lr"] - 0.3) for config in late if "lr" in config) < 0.1


def test_points_come_first_and_what_they_leave_open_is_drawn() -> None:
    searcher = HyperOptSearch(points_to_evaluate=[{"x": 0.5, "k": "b"}, {"k": "a"}])
    space = {"x": uniform(0, 1), "k": choice(["a", "b"])}
    plan = SearchPlan(searcher, space, num_samples=3, metric="loss", mode="min")
    proposals: list[Any] = [plan.next() for _ in range(3)]

    assert proposals[0].config == {"x": 0.5, "k": "b"}
    assert proposals[1].config["k"] == "a"
    with pytest.raises(ConfigError, match="is not in the search space"):
        SearchPlan(
            HyperOptSearch(points_to_evaluate=[{"x": 2.0}]), space, metric="loss", mode="min"
        )


@pytest.mark.parametrize("kind", [HyperOptSearch, TuneBOHB, AxSearch])
def test_a_point_beside_the_options_is_tried_and_the_search_goes_on(kind: Any) -> None:
    space = {"x": uniform(0, 1), "k": choice(["a", "b"])}
    searcher = kind(points_to_evaluate=[{"x": 0.5, "k": "c"}])

    with pytest.warns(UserWarning, match="k='c' is not an option"):
        plan = SearchPlan(searcher, space, num_samples=30, metric="loss", mode="min")
    configs = []
    for _ in range(30):
        proposal = plan.next()
        assert isinstance(proposal, Proposal)
        configs.append(proposal.config)
        plan.on_complete(proposal.trial_id, {"loss": proposal.config["x"], "training_iteration": 1})

    assert configs[0] == {"x": 0.5, "k": "c"}
    assert {config["k"] for config in configs[1:]} == {"a", "b"}


def test_a_missing_metric_causes_one_warning_with_the_reported_names(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plan = SearchPlan(
        HyperOptSearch(), {"x": uniform(0, 1)}, num_samples=3, metric="loss", mode="min"
    )
    trials: list[Any] = [plan.next() for _ in range(3)]
    with caplog.at_level(logging.WARNING):
        plan.on_complete(trials[0].trial_id, {"acc": 1.0})
        plan.on_complete(trials[1].trial_id, None)
        plan.on_complete(trials[2].trial_id, {"loss": float("nan")})
        plan.on_complete("unknown", {"loss": 1.0})

    assert len(caplog.records) == 1
    assert "acc" in caplog.text


def test_what_was_tried_elsewhere_is_learned_from() -> None:
    space = {"x": uniform(0, 1)}
    searcher = HyperOptSearch(space, "loss", "min", n_initial_points=20, random_state_seed=3)
    searcher.add_evaluated_points(
        [{"x": at / 40} for at in range(41)], [abs(at / 40 - 0.2) for at in range(41)]
    )
    configs = [searcher.suggest(f"t{at}") for at in range(20)]

    assert statistics.median(abs(config["x"] - 0.2) for config in configs if config) < 0.1


@pytest.mark.parametrize(
    ("count", "needed", "parts"),
    [  # N_min = d + 1; good max(N_min, 0.15 N), bad max(N_min, N - good)
        (5, 3, (3, 3)),  # the first model of two values: one config is both
        (6, 3, (3, 3)),
        (10, 3, (3, 7)),
        (20, 3, (3, 17)),
        (27, 3, (4, 23)),
        (60, 3, (9, 51)),
        (9, 7, (7, 7)),  # the first of six values
        (13, 7, (7, 7)),
        (14, 7, (7, 7)),
        (60, 7, (9, 51)),
        (200, 7, (30, 170)),
    ],
)
def test_configs_are_parted_as_in_the_paper_on_bohb(
    count: int, needed: int, parts: tuple[int, int]
) -> None:
    assert parts_of(count, needed, 15) == parts


@pytest.mark.parametrize("values", [1, 2, 6])
def test_bohb_asks_its_model_from_two_more_configs_on_than_a_density_needs(values: int) -> None:
    lines: dict[str, Any] = {f"x{at}": Dimension.of(uniform(0, 1)) for at in range(values)}
    history = [Tried(dict.fromkeys(lines, at / 20), at) for at in range(20)]

    assert JointModel.of(lines, history[: values + 2], JointSettings()) is None
    assert JointModel.of(lines, history[: values + 3], JointSettings()) is not None


def test_bohb_takes_what_a_trial_cost_when_a_budget_was_spent_and_nothing_before_or_after() -> None:
    searcher = TuneBOHB(space={"x": uniform(0, 1)}, metric="loss", mode="min", seed=1)
    searcher.suggest("a")
    for loss, info in (
        (9.0, {"milestone": 1, "budget": 1}),
        (7.0, {"milestone": 3}),
        (5.0, {"milestone": 3, "budget": 3}),
        (4.0, {"milestone": 3, "budget": 3}),  # it goes on beyond the last milestone
    ):
        searcher.on_trial_result("a", {"loss": loss, "hyperband_info": info})
    searcher.on_trial_complete("a", {"loss": 4.0, "hyperband_info": {"milestone": 3, "budget": 3}})

    assert searcher.get_state()["losses"] == [[1.0, {"a": 9.0}], [3.0, {"a": 5.0}]]


def test_bohb_goes_by_the_largest_budget_of_which_enough_is_known() -> None:
    space = {"x": uniform(0, 1)}
    plan = SearchPlan(
        TuneBOHB(
            seed=2,
            bohb_config={"random_fraction": 0.0},
            points_to_evaluate=[{"x": (at * 7 % 30) / 30} for at in range(30)],
        ),
        space,
        num_samples=60,
        metric="loss",
        mode="min",
    )
    for at in range(30):
        trial: Any = plan.next()
        x = trial.config["x"]
        for budget, best in ((1, 0.9), (3, 0.1)):
            if budget == 1 or at % 2:
                info = {"budget": budget}
                plan.on_result(trial.trial_id, {"loss": abs(x - best), "hyperband_info": info})
    state = json.loads(json.dumps(plan.get_state()))
    values = []
    for _ in range(20):
        trial = plan.next()
        values.append(trial.config["x"])

    assert statistics.median(abs(x - 0.1) for x in values) < 0.15
    assert state["searcher"]["losses"][1][0] == 3.0


def test_a_space_without_a_domain_is_refused() -> None:
    with pytest.raises(ConfigError, match="nothing to search"):
        TuneBOHB({"x": 3})
    with pytest.raises(ConfigError, match="not a dict"):
        TuneBOHB([uniform(0, 1)])


@pytest.mark.parametrize("mode", ["min", "max"])
def test_a_point_that_came_to_nan_counts_as_the_worst(mode: str) -> None:
    searcher = HyperOptSearch({"x": uniform(0, 1)}, "loss", mode, n_initial_points=1)
    searcher.add_evaluated_points([{"x": 0.1}, {"x": 0.2}], [float("nan"), 3.0])

    losses = searcher.get_state()["losses"].values()

    assert list(losses) == [float("inf"), 3.0 if mode == "min" else -3.0]
