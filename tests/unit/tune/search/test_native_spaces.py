"""Search spaces written with HyperOpt, ConfigSpace and Optuna, searched here.

The first two need not be installed, so their objects are stood in for by ones of the same form; the
forms themselves are compared where the libraries are there.
"""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.api.plain_data import from_plain, to_plain
from holdfast.errors import ConfigError
from holdfast.tune.schedulers import PopulationBasedTraining
from holdfast.tune.search import SearchPlan
from holdfast.tune.search.bohb import TuneBOHB
from holdfast.tune.search.bohb.config_spaces import space_of_config_space
from holdfast.tune.search.hyperopt import HyperOptSearch
from holdfast.tune.search.hyperopt.expressions import without_expressions
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
    uniform,
)

# ---------------------------------------------------------------------- HyperOpt


class Apply:
    """A node of a graph, as HyperOpt has it."""

    def __init__(self, name: str, *pos_args: Any, **named_args: Any) -> None:
        self.name = name
        self.pos_args = [apply(argument) for argument in pos_args]
        self.named_args = [(key, apply(value)) for key, value in named_args.items()]


Apply.__module__ = "hyperopt.pyll.base"


class Literal(Apply):
    def __init__(self, obj: Any) -> None:
        super().__init__("literal")
        self.obj = obj


Literal.__module__ = "hyperopt.pyll.base"


def apply(value: Any) -> Apply:
    if isinstance(value, Apply):
        return value
    if isinstance(value, dict):
        return Apply("dict", **value)
    return Apply("pos_args", *value) if isinstance(value, list) else Literal(value)


class StandIn:
    """`hp`, as far as graphs go."""

    def __getattr__(self, kind: str) -> Any:
        def number(label: str, *given: Any) -> Apply:
            form = "int" if kind == "randint" else "float"
            return Apply(form, Apply("hyperopt_param", label, Apply(kind, *given)))

        return number

    def uniformint(self, label: str, low: int, high: int, q: float = 1.0) -> Apply:
        drawn = Apply("quniform", low, high, q=q)
        return Apply("int", Apply("float", Apply("hyperopt_param", label, drawn)))

    def choice(self, label: str, options: list[Any]) -> Apply:
        which = Apply("hyperopt_param", label, Apply("randint", len(options)))
        return Apply("switch", which, *options)

    def pchoice(self, label: str, options: list[tuple[float, Any]]) -> Apply:
        shares = Apply("categorical", [share for share, _ in options])
        which = Apply("hyperopt_param", label, shares)
        return Apply("switch", which, *(value for _, value in options))


@pytest.fixture(params=["stand-in", "real"])
def hp(request: pytest.FixtureRequest) -> Any:
    return StandIn() if request.param == "stand-in" else pytest.importorskip("hyperopt").hp


def test_expressions_of_hyperopt_are_our_domains(hp: Any) -> None:
    space = without_expressions(
        {
            "u": hp.uniform("u", -1, 1),
            "qu": hp.quniform("qu", 0.9, 10.2, 2),
            "lu": hp.loguniform("lu", math.log(1e-4), math.log(0.1)),
            "qlu": hp.qloguniform("qlu", math.log(1), math.log(8), 0.5),
            "n": hp.normal("n", 3, 2),
            "qn": hp.qnormal("qn", 3, 2, 0.5),
            "r": hp.randint("r", 5),
            "r2": hp.randint("r2", 2, 5),
            "ui": hp.uniformint("ui", 1, 4),
            "pc": hp.pchoice("pc", [(0.5, "a"), (0.5, "b")]),
            "deep": {"c": hp.choice("c", [1, {"kind": "x", "y": hp.uniform("y", 0, 1)}])},
            "row": [hp.uniform("first", 0, 1), 7],
            "plain": "as it is",
        }
    )

    lu = space.pop("lu")
    assert (lu.lower, lu.upper) == (pytest.approx(1e-4), pytest.approx(0.1))
    assert lu.get_sampler() == loguniform(1, 2).get_sampler()
    assert space == {
        "u": uniform(-1, 1),
        "qu": quniform(0, 10, 2),
        "qlu": qloguniform(1, 8, 0.5),
        "n": randn(3, 2),
        "qn": qrandn(3, 2, 0.5),
        "r": randint(0, 5),
        "r2": randint(2, 5),
        "ui": qrandint(1, 4),
        "pc": choice(["a", "b"]),
        "deep": {"c": choice([1, {"kind": "x", "y": uniform(0, 1)}])},
        "row": [uniform(0, 1), 7],
        "plain": "as it is",
    }


def test_what_has_no_like_here_is_named(hp: Any) -> None:
    for bad, words in (
        (hp.lognormal("x", 0, 1), "deep/x is hp.lognormal"),
        (hp.qloguniform("x", math.log(0.1), 1, 1), "deep/x is hp.qloguniform"),
        (hp.pchoice("x", [(0.2, 1), (0.8, 2)]), "deep/x is hp.pchoice with the shares"),
        (hp.uniform("x", 0, hp.uniform("y", 1, 2)), "deep/x is hp.uniform of values that are"),
    ):
        with pytest.raises(ConfigError, match=words):
            HyperOptSearch({"deep": {"x": bad}})


def test_one_label_is_one_value(hp: Any) -> None:
    shared = hp.uniform("lr", 0, 1)

    with pytest.raises(ConfigError, match="'lr' in two places at once"):
        without_expressions({"a": shared, "b": {"c": shared}})

    of_either = hp.choice("kind", [{"sgd": shared}, {"adam": shared}])
    assert without_expressions({"kind": of_either}) == {
        "kind": choice([{"sgd": uniform(0, 1)}, {"adam": uniform(0, 1)}])
    }


def test_a_space_is_a_dict(hp: Any) -> None:
    with pytest.raises(ConfigError, match="not a dict"):
        HyperOptSearch(hp.choice("all", [{"x": 1}, {"x": 2}]))


def test_a_search_of_expressions_is_that_of_the_domains_they_are(hp: Any) -> None:
    """Also when its constructor is called again from what is kept of it."""
    theirs = {"x": hp.uniform("x", 0, 1), "kind": hp.choice("kind", ["a", "b"])}
    ours = {"x": uniform(0, 1), "kind": choice(["a", "b"])}
    searcher = HyperOptSearch(theirs, metric="loss", mode="min", random_state_seed=3)
    stored = json.loads(json.dumps(to_plain(searcher)))

    searched = [
        [each.suggest(str(number)) for number in range(4)]
        for each in (
            searcher,
            from_plain(stored),
            HyperOptSearch(ours, metric="loss", mode="min", random_state_seed=3),
        )
    ]

    assert searched[0] == searched[1] == searched[2]


# ---------------------------------------------------------------------- ConfigSpace


def standing_in(kind: str, **facts: Any) -> Any:
    return type(kind, (SimpleNamespace,), {})(**facts)


class ConfigurationSpace(dict[str, Any]):
    conditions: tuple[Any, ...] = ()
    forbidden_clauses: tuple[Any, ...] = ()


def stand_in_space() -> ConfigurationSpace:
    number, whole = "UniformFloatHyperparameter", "UniformIntegerHyperparameter"
    return ConfigurationSpace(
        lr=standing_in(number, lower=1e-4, upper=0.1, log=True),
        momentum=standing_in(number, lower=0.5, upper=1.0, log=False),
        layers=standing_in(whole, lower=1, upper=5, log=False),
        width=standing_in(whole, lower=8, upper=512, log=True),
        noise=standing_in(
            "NormalFloatHyperparameter", lower=-3.0, upper=3.0, mu=0.0, sigma=1.0, log=False
        ),
        kind=standing_in("CategoricalHyperparameter", choices=("a", "b"), weights=None),
        size=standing_in("OrdinalHyperparameter", sequence=(1, 2, 4)),
        depth=standing_in("Constant", value=3),
    )


def real_space() -> Any:
    there = pytest.importorskip("ConfigSpace")
    space = there.ConfigurationSpace()
    space.add(
        [
            there.Float("lr", (1e-4, 0.1), log=True),
            there.Float("momentum", (0.5, 1.0)),
            there.Integer("layers", (1, 5)),
            there.Integer("width", (8, 512), log=True),
            there.NormalFloatHyperparameter("noise", 0, 1, lower=-3, upper=3),
            there.Categorical("kind", ["a", "b"]),
            there.OrdinalHyperparameter("size", [1, 2, 4]),
            there.Constant("depth", 3),
        ]
    )
    return space


@pytest.mark.parametrize("make", [stand_in_space, real_space])
def test_a_configuration_space_is_our_domains(make: Any) -> None:
    space = space_of_config_space(make())

    noise = space.pop("noise")
    assert (noise.lower, noise.upper) == (-3.0, 3.0)
    assert noise.get_sampler() == randn(0, 1).get_sampler()
    assert space == {
        "lr": loguniform(1e-4, 0.1),
        "momentum": uniform(0.5, 1.0),
        "layers": randint(1, 6),
        "width": lograndint(8, 513),
        "kind": choice(["a", "b"]),
        "size": choice([1, 2, 4]),
        "depth": 3,
    }


@pytest.mark.parametrize("make", [stand_in_space, real_space])
def test_bohb_searches_a_configuration_space(make: Any) -> None:
    searcher = TuneBOHB(make(), metric="loss", mode="min", seed=1)
    again = from_plain(json.loads(json.dumps(to_plain(searcher))))

    configs: Any = [each.suggest("t") for each in (searcher, again)]

    assert configs[0] == configs[1]
    assert configs[0]["depth"] == 3
    assert configs[0]["layers"] in range(1, 6)


def test_what_a_configuration_space_forbids_is_not_left_out_silently() -> None:
    for what in ("conditions", "forbidden_clauses"):
        space = stand_in_space()
        setattr(space, what, ["momentum | kind == 'a'"])

        with pytest.raises(ConfigError, match=what.split("_")[0]):
            TuneBOHB(space)
    weighted = standing_in("CategoricalHyperparameter", choices=("a", "b"), weights=(0.2, 0.8))
    for bad in (weighted, standing_in("BetaFloatHyperparameter", lower=0, upper=1)):
        with pytest.raises(ConfigError, match=r"x is .* which is not supported"):
            TuneBOHB(ConfigurationSpace(x=bad))


# ---------------------------------------------------------------------- Optuna


def test_distributions_of_optuna_are_our_domains() -> None:
    optuna = pytest.importorskip("optuna")
    from holdfast.tune.search.optuna.given_distributions import without_distributions

    there = optuna.distributions

    space = without_distributions(
        {
            "x": there.FloatDistribution(0, 1),
            "lr": there.FloatDistribution(1e-4, 0.1, log=True),
            "q": there.FloatDistribution(0, 1, step=0.25),
            "n": there.IntDistribution(1, 5),
            "big": there.IntDistribution(1, 100, log=True),
            "even": there.IntDistribution(2, 8, step=2),
            "deep": {"kind": there.CategoricalDistribution(["a", None])},
            "plain": {"as": "it is"},
        }
    )

    assert space == {
        "x": uniform(0, 1),
        "lr": loguniform(1e-4, 0.1),
        "q": quniform(0, 1, 0.25),
        "n": randint(1, 6),
        "big": lograndint(1, 101),
        "even": qrandint(2, 8, 2),
        "deep": {"kind": choice(["a", None])},
        "plain": {"as": "it is"},
    }


def test_optuna_searches_its_own_distributions() -> None:
    optuna = pytest.importorskip("optuna")
    from holdfast.tune.search.optuna import OptunaSearch

    there = optuna.distributions
    searcher = OptunaSearch({"n": there.IntDistribution(1, 5)}, metric="loss", mode="min", seed=1)
    plan = SearchPlan(searcher, {}, num_samples=20)
    again = from_plain(json.loads(json.dumps(to_plain(searcher))))
    other = SearchPlan(again, {}, num_samples=20)

    proposals: Any = [plan.next() for _ in range(20)]
    same: Any = [other.next() for _ in range(20)]

    assert {proposal.config["n"] for proposal in proposals} <= {1, 2, 3, 4, 5}
    assert [proposal.config for proposal in proposals] == [proposal.config for proposal in same]
    with pytest.raises(ConfigError, match="not multiples of 2"):
        OptunaSearch({"odd": there.IntDistribution(1, 9, step=2)})


# ---------------------------------------------------------------------- kept with the study


@pytest.mark.parametrize(
    "domain",
    [
        uniform(0, 1),
        quniform(0, 1, 0.1),
        loguniform(1e-4, 1),
        randint(0, 9),
        qrandint(2, 8, 2),
        randn(3, 2),
        qrandn(3, 2, 0.5),
        choice([1, "a", None, (1, 2), {"deep": uniform(0, 1)}]),
    ],
)
@pytest.mark.req("U-078")
def test_a_domain_among_the_arguments_of_a_scheduler_is_kept_with_the_study(domain: Any) -> None:
    """So a study can be restored by its folder alone."""
    scheduler = PopulationBasedTraining(
        metric="loss", mode="min", hyperparam_mutations={"x": domain}
    )

    again = from_plain(json.loads(json.dumps(to_plain(scheduler))))

    assert again.made_with[1]["hyperparam_mutations"] == {"x": domain}
