from __future__ import annotations

import json
import statistics
import sys
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.tune.search import Proposal, SearchPlan
from holdfast.tune.search.optuna import OptunaSearch
from holdfast.tune.search.sample import (
    choice,
    lograndint,
    loguniform,
    qlograndint,
    qloguniform,
    qrandint,
    quniform,
    randint,
    randn,
    uniform,
)
from holdfast.tune.search.seeding import number_for
from tests.unit.tune.search.landscapes import BRANIN, HARTMANN, branin, hartmann, losses_of

optuna = pytest.importorskip("optuna")

SPACE = {
    "x": uniform(-1, 1),
    "lr": loguniform(1e-4, 1),
    "q": quniform(0, 1, 0.1),
    "ql": qloguniform(0.5, 8, 0.5),
    "n": {"i": randint(0, 10), "li": lograndint(1, 64), "qi": qrandint(1, 11, 2)},
    "qli": qlograndint(3, 66, 4),
    "k": choice(["a", "b", None]),
    "same": choice([1, True, 1.0]),
    "lists": choice([[1], [1, 2]]),
    "opt": choice([{"m": uniform(0, 1)}, "none"]),
}


def asked_of_optuna(space: dict[str, Any], function: Any, budget: int, seed: int) -> list[float]:
    """Return what Optuna itself comes to, with the same seed for every suggestion."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study()
    optuna.logging.set_verbosity(verbosity)
    losses = []
    for number in range(budget):
        study.sampler = optuna.samplers.TPESampler(seed=number_for(seed, number) % 2**32)
        trial = study.ask()
        losses.append(
            function(
                {
                    name: trial.suggest_float(name, domain.lower, domain.upper)
                    for name, domain in space.items()
                }
            )
        )
        study.tell(trial, losses[-1])
    return losses


@pytest.mark.parametrize(
    ("space", "function", "budget"),
    [(BRANIN, branin, 50), (HARTMANN, hartmann, 60)],
    ids=["branin", "hartmann"],
)
def test_it_finds_exactly_what_optuna_itself_finds(space: Any, function: Any, budget: int) -> None:
    ours = losses_of(OptunaSearch(seed=2), space, function, budget)

    assert ours == asked_of_optuna(space, function, budget, seed=2)


def plan_of(searcher: OptunaSearch | None = None, space: Any = None, **more: Any) -> SearchPlan:
    given = {"num_samples": 40, "metric": "loss", "mode": "min", **more}
    searcher = searcher or OptunaSearch(seed=1)
    return SearchPlan(searcher, SPACE if space is None else space, **given)


def test_every_domain_stays_within_its_bounds() -> None:
    plan = plan_of()
    while isinstance(proposal := plan.next(), Proposal):
        config = proposal.config
        for name in ("x", "lr", "q", "ql", "qli", "k"):
            domain: Any = SPACE[name]
            assert domain.is_valid(config[name]), (name, config[name])
        assert config["n"]["i"] in range(10)
        assert config["n"]["li"] in range(1, 64)
        assert config["n"]["qi"] in range(2, 11, 2)
        assert config["qli"] % 4 == 0 and type(config["qli"]) is int
        assert config["ql"] * 2 == round(config["ql"] * 2)
        assert config["opt"] == "none" or set(config["opt"]) == {"m"}
        plan.on_result(proposal.trial_id, {"loss": 3.0, "training_iteration": 1})
        plan.on_complete(proposal.trial_id, {"loss": config["x"] ** 2 + config["lr"]})


@pytest.mark.req("U-078")
def test_a_recalled_suggestion_asks_no_model_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = plan_of()
    start = json.loads(json.dumps(first.get_state()))
    record: list[Proposal] = []
    for _ in range(25):
        proposal = first.next()
        assert isinstance(proposal, Proposal)
        record.append(Proposal.from_data(json.loads(json.dumps(proposal.to_data()))))
        if len(record) % 3:
            first.on_complete(proposal.trial_id, {"loss": proposal.config["x"] ** 2})
    second = plan_of(OptunaSearch())
    second.set_state(start)
    with monkeypatch.context() as patch:
        patch.setattr(optuna.study.Study, "ask", None)
        for number, proposal in enumerate(record, 1):
            second.recall(proposal)
            if number % 3:
                second.on_complete(proposal.trial_id, {"loss": proposal.config["x"] ** 2})

    assert [first.next() for _ in range(5)] == [second.next() for _ in range(5)]


def define(trial: Any) -> dict[str, Any]:
    kind = trial.suggest_categorical("kind", ["sgd", "adam"])
    if kind == "sgd":
        trial.suggest_float("sgd/lr", 1e-4, 1, log=True)
    else:
        trial.suggest_int("depth", 1, 5)
    return {"extra": 3}


def test_a_space_can_be_a_function_and_is_recalled_exactly() -> None:
    def made() -> SearchPlan:
        return plan_of(OptunaSearch(define, seed=4), {"constant": 9})

    first, second = made(), made()
    second.set_state(json.loads(json.dumps(first.get_state())))
    for _ in range(25):
        proposal: Any = first.next()
        config = proposal.config
        assert (config["extra"], config["constant"]) == (3, 9)
        assert ("sgd" in config) == (config["kind"] == "sgd")
        second.recall(proposal)
        for plan in (first, second):
            plan.on_complete(proposal.trial_id, {"loss": float(config["kind"] == "sgd")})

    assert [first.next() for _ in range(4)] == [second.next() for _ in range(4)]


def test_several_objectives_are_weighed_together() -> None:
    plan = SearchPlan(
        OptunaSearch(seed=1),
        {"x": uniform(0, 1)},
        num_samples=30,
        metric=["a", "b"],
        mode=["min", "max"],
    )
    for at in range(30):
        trial: Any = plan.next()
        result = {"a": trial.config["x"], "b": trial.config["x"] * 2}
        plan.on_result(trial.trial_id, result)
        plan.on_complete(trial.trial_id, result if at % 5 else {"a": 1.0})
    state = json.loads(json.dumps(plan.get_state()))

    values = [trial["values"] for trial in state["searcher"]["study"]["trials"]]
    assert len(values[1]) == 2 and values[0] is None


def test_points_with_rewards_are_learned_and_not_tried_again() -> None:
    points = [{"x": at / 20} for at in range(21)]
    rewards = [abs(at / 20 - 0.3) for at in range(21)]
    space = {"x": uniform(0, 1)}
    plan = plan_of(
        OptunaSearch(points_to_evaluate=points, evaluated_rewards=rewards, seed=1), space
    )
    tried = plan_of(OptunaSearch(points_to_evaluate=points, seed=1), space)

    learned: list[Any] = [plan.next() for _ in range(10)]
    assert statistics.median(abs(proposal.config["x"] - 0.3) for proposal in learned) < 0.15
    first: list[Any] = [tried.next() for _ in range(21)]
    assert [proposal.config for proposal in first] == points
    with pytest.raises(ConfigError, match="each point needs one value"):
        OptunaSearch(points_to_evaluate=points, evaluated_rewards=[1.0])


def test_optuna_gets_the_states_it_knows_and_a_revived_trial_counts() -> None:
    plan = plan_of(space={"x": uniform(0, 1)})
    ids = []
    for _ in range(5):
        trial: Any = plan.next()
        ids.append(trial.trial_id)
    plan.on_result(ids[0], {"loss": 4.0, "training_iteration": 2})
    plan.on_complete(ids[0], {"other": 1.0})
    plan.on_complete(ids[1], error=True)
    plan.on_complete(ids[2], {"loss": float("nan")})
    plan.on_complete(ids[3], {"loss": 1.0})
    plan.on_complete("unknown", {"loss": 1.0})
    plan.on_result("unknown", {"loss": 1.0})
    plan.on_revive(ids[1])
    plan.on_result(ids[1], {"loss": 3.0, "training_iteration": 3})
    plan.on_complete(ids[1], {"loss": 2.0})

    trials = plan.get_state()["searcher"]["study"]["trials"]
    assert [(trial["id"], trial["state"]) for trial in trials] == [
        (ids[0], "PRUNED"),
        (ids[1], "FAIL"),
        (ids[2], "FAIL"),
        (ids[3], "COMPLETE"),
        (ids[4], "RUNNING"),
        (ids[1], "COMPLETE"),
    ]
    assert trials[0]["values"] == [4.0]


@pytest.mark.parametrize("name", ["RandomSampler", "TPESampler", "NSGAIISampler"])
def test_any_sampler_goes_on_as_if_nothing_had_happened(name: str) -> None:
    def made() -> SearchPlan:
        sampler = getattr(optuna.samplers, name)()
        return plan_of(
            OptunaSearch(sampler=sampler, seed=3), {"x": uniform(0, 1), "y": uniform(0, 1)}
        )

    first, second = made(), made()
    second.set_state(json.loads(json.dumps(first.get_state())))
    for at in range(30):
        if at % 7 == 6:
            second = made()
            second.set_state(json.loads(json.dumps(first.get_state())))
        trial: Any = first.next()
        second.recall(trial)
        for plan in (first, second):
            plan.on_complete(trial.trial_id, {"loss": trial.config["x"]})

    assert [first.next() for _ in range(4)] == [second.next() for _ in range(4)]


def test_a_storage_is_learned_from_and_gets_what_is_finished_once() -> None:
    storage = optuna.storages.InMemoryStorage()

    def made() -> SearchPlan:
        searcher = OptunaSearch(storage=storage, study_name="mine", seed=1)
        return plan_of(searcher, {"x": uniform(0, 1)})

    plan = made()
    start = plan.get_state()
    trials: list[Any] = [plan.next() for _ in range(3)]
    for trial in trials:
        plan.on_complete(trial.trial_id, {"loss": trial.config["x"]})
    again = made()
    again.set_state(start)
    for trial in trials:
        again.recall(trial)
        again.on_complete(trial.trial_id, {"loss": trial.config["x"]})
    outside = optuna.load_study(study_name="mine", storage=storage)

    assert [trial.value for trial in outside.trials] == [trial.config["x"] for trial in trials]
    assert len(made().get_state()["searcher"]["study"]["trials"]) == 3


def test_what_optuna_cannot_search_is_refused() -> None:
    with pytest.raises(ConfigError, match="normal"):
        plan_of(space={"x": randn()})
    with pytest.raises(ConfigError, match="sampler"):
        OptunaSearch(sampler="tpe")
    with pytest.raises(ConfigError, match="not a dict"):
        OptunaSearch(space=[1])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="returned"):
        plan_of(OptunaSearch(lambda trial: {1: 2}, seed=1), {}).next()  # type: ignore[dict-item]


def test_without_optuna_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)

    with pytest.raises(ConfigError, match=r"pip install holdfast\[optuna\]"):
        OptunaSearch()


def test_a_point_beside_the_options_is_refused_since_optuna_could_not_try_it() -> None:
    searcher = OptunaSearch(points_to_evaluate=[{"k": "c"}], seed=1)

    with pytest.raises(ConfigError, match="k='c' is not in the search space"):
        plan_of(searcher, {"k": choice(["a", "b"])})


def test_points_whose_rewards_are_known_take_no_sample() -> None:
    points = [{"k": "a"}, {"k": "b"}]
    searcher = OptunaSearch(points_to_evaluate=points, evaluated_rewards=[1.0, 2.0], seed=1)

    SearchPlan(searcher, {"k": choice(["a", "b"])}, num_samples=1, metric="loss", mode="min")


def test_a_sampler_that_ends_ends_the_search_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    import optuna

    def made() -> SearchPlan:
        sampler = optuna.samplers.GridSampler({"x": [1, 2, 3]})
        searcher = OptunaSearch(sampler=sampler, seed=1)
        return SearchPlan(searcher, {"x": randint(1, 9)}, num_samples=10, metric="loss", mode="min")

    plan, tried = made(), []
    for _ in range(3):
        proposal = plan.next()
        assert isinstance(proposal, Proposal)
        tried.append(proposal.config["x"])
        plan.on_complete(proposal.trial_id, {"loss": proposal.config["x"]})
    again = made()
    again.set_state(json.loads(json.dumps(plan.get_state())))

    assert sorted(tried) == [1, 2, 3]
    assert plan.next() == again.next() == "FINISHED"
    assert not caplog.records
