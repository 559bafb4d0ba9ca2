from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from holdfast.errors import ConfigError
from holdfast.tune.search import (
    BasicVariantGenerator,
    ConcurrencyLimiter,
    Proposal,
    Searcher,
    SearchPlan,
)
from holdfast.tune.search.hyperopt import HyperOptSearch
from holdfast.tune.search.sample import choice, grid_search, randint, uniform


class Scripted(Searcher):
    """Suggests the configs that it was made with."""

    def __init__(self, *answers: Any) -> None:
        super().__init__()
        self.answers = list(answers)

    def suggest(self, trial_id: str) -> Any:
        return self.answers.pop(0)

    def on_trial_complete(self, *args: Any, **kwargs: Any) -> None:
        pass


def proposals(plan: SearchPlan) -> list[Proposal]:
    made = []
    while isinstance(proposal := plan.next(), Proposal):
        made.append(proposal)
    return made


def test_trials_are_numbered_below_one_prefix_that_is_kept() -> None:
    plan = SearchPlan(None, {"a": grid_search([1, 2])}, num_samples=2)
    first = plan.next()
    assert isinstance(first, Proposal)
    other = SearchPlan(None, {"a": grid_search([1, 2])}, num_samples=2)
    other.set_state(json.loads(json.dumps(plan.get_state())))

    ids = [first.trial_id, *(proposal.trial_id for proposal in proposals(other))]

    prefix = ids[0][:5]
    assert ids == [f"{prefix}_{number:05d}" for number in range(4)]
    assert int(prefix, 16) >= 0


def test_a_proposal_tells_what_was_searched_for_and_no_more() -> None:
    space = {
        "lr": choice([0.00001]),
        "deep": {"width": grid_search([64]), "name": "x"},
        "pair": [3, randint(2, 3)],
        "opt": choice([{"kind": "sgd", "m": 0.5}]),
        "fixed": 7,
    }
    proposal = proposals(SearchPlan(None, space))[0]

    assert proposal.evaluated_params == {
        "lr": 0.00001,
        "deep/width": 64,
        "pair/1": 2,
        "opt/kind": "sgd",
        "opt/m": 0.5,
    }
    assert proposal.experiment_tag == "0_width=64,lr=1e-05,kind=sgd,m=0.5000,pair_1=2"
    assert Proposal.from_data(json.loads(json.dumps(proposal.to_data()))) == proposal


def test_a_plan_without_anything_to_search_has_one_trial_per_sample() -> None:
    plan = SearchPlan(None, {"a": 1}, num_samples=2)

    assert plan.total == 2
    assert [proposal.experiment_tag for proposal in proposals(plan)] == ["0", "1"]
    assert plan.next() == Searcher.FINISHED


def test_a_plan_can_be_extended() -> None:
    plan = SearchPlan(BasicVariantGenerator(random_state=1), {"x": uniform(0, 1)}, num_samples=2)
    first = proposals(plan)
    plan.extend(5)
    more = proposals(plan)
    whole = SearchPlan(BasicVariantGenerator(random_state=1), {"x": uniform(0, 1)}, num_samples=5)

    assert [proposal.config for proposal in first + more] == [
        proposal.config for proposal in proposals(whole)
    ]
    with pytest.raises(ConfigError, match="less than the 5"):
        plan.extend(3)


def test_a_plan_without_end_has_no_total() -> None:
    plan = SearchPlan(None, {"x": uniform(0, 1)}, num_samples=-1)

    assert plan.total is None
    assert all(isinstance(plan.next(), Proposal) for _ in range(100))


def test_a_searcher_may_have_nothing_now_and_may_be_finished() -> None:
    plan = SearchPlan(
        Scripted({"x": 1}, None, {"x": 2}, "FINISHED"), {"k": {"a": 1}}, num_samples=9
    )
    answers = [plan.next() for _ in range(5)]

    assert [answer.config for answer in answers if isinstance(answer, Proposal)] == [
        {"k": {"a": 1}, "x": 1},
        {"k": {"a": 1}, "x": 2},
    ]
    assert answers[1] is None
    assert answers[3:] == ["FINISHED", "FINISHED"]
    assert plan.total == 2


def test_a_suggestion_that_cannot_be_kept_is_refused_before_the_trial_runs() -> None:
    class Odd(Scripted):
        def suggest(self, trial_id: str) -> Any:
            return {"x": [object()]}

    with pytest.raises(ConfigError, match="config/x/0"):
        SearchPlan(Odd(), {}).next()
    with pytest.raises(ConfigError, match="'done'"):
        SearchPlan(Scripted("done"), {}).next()


def test_limits_are_given_in_one_place_and_kept() -> None:
    plan = SearchPlan(None, {"x": uniform(0, 1)}, num_samples=5, max_concurrent=2)
    first = plan.next()
    assert isinstance(first, Proposal)
    plan.next()
    assert plan.next() is None
    other = SearchPlan(None, {"x": uniform(0, 1)}, num_samples=5, max_concurrent=2)
    other.set_state(json.loads(json.dumps(plan.get_state())))
    assert other.next() is None
    other.on_complete(first.trial_id)
    assert isinstance(other.next(), Proposal)

    own = SearchPlan(BasicVariantGenerator(max_concurrent=1), {"x": 1}, num_samples=2)
    own.next()
    assert own.next() is None
    with pytest.raises(ConfigError, match="one place"):
        SearchPlan(ConcurrencyLimiter(Scripted(), 3), {}, max_concurrent=2)


@pytest.mark.parametrize(
    ("searcher", "space", "given", "words"),
    [
        (HyperOptSearch({"x": uniform(0, 1)}), {"y": uniform(0, 1)}, ("loss", "min"), "both"),
        (HyperOptSearch(metric="a", mode="min"), {"y": uniform(0, 1)}, ("b", "min"), "one place"),
        (HyperOptSearch(metric="a", mode="min"), {"y": uniform(0, 1)}, ("a", "max"), "one place"),
        (HyperOptSearch(), {"y": 3}, ("loss", "min"), "nothing to search"),
        (HyperOptSearch(), {"y": uniform(0, 1)}, (None, None), "both metric and mode"),
        (HyperOptSearch(), {"y": grid_search([1])}, ("loss", "min"), "grid"),
        (HyperOptSearch(), {"y": uniform(0, 1)}, (["a", "b"], ["min", "min"]), "one metric"),
        (Scripted(), {"y": uniform(0, 1)}, ("loss", "min"), "takes no search space"),
        ("optuna", {}, (None, None), "not a searcher"),
    ],
)
def test_what_contradicts_itself_is_refused(
    searcher: Any, space: dict[str, Any], given: Any, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        SearchPlan(searcher, space, metric=given[0], mode=given[1])


@pytest.mark.parametrize("num_samples", [0, -2, 1.5, True, "3"])
def test_a_number_of_samples_that_is_none_is_refused(num_samples: Any) -> None:
    with pytest.raises(ConfigError, match="num_samples"):
        SearchPlan(None, {}, num_samples=num_samples)


def drawn_xs() -> list[int]:
    plan = SearchPlan(None, {"x": randint(0, 100_000)}, num_samples=4)
    return [proposal.config["x"] for proposal in proposals(plan)]


def test_numpys_seed_is_that_of_a_study_that_has_none() -> None:
    np.random.seed(1000)
    first, second = drawn_xs(), drawn_xs()
    np.random.seed(1000)

    assert drawn_xs() == first
    assert drawn_xs() == second != first


def test_a_seed_that_was_given_comes_before_numpys() -> None:
    values = []
    for seed in (1, 2):
        np.random.seed(seed)
        space = {"x": randint(0, 100_000)}
        plan = SearchPlan(BasicVariantGenerator(random_state=5), space, num_samples=4)
        values.append([proposal.config["x"] for proposal in proposals(plan)])

    assert values[0] == values[1]


def test_unseeded_processes_that_share_numpys_state_draw_seeds_of_their_own() -> None:
    """As trials that are forked from a process that has imported numpy, and run studies."""
    script = """
import os, numpy.random
from holdfast.tune.search.seeding import seed_of
reading, writing = os.pipe()
if os.fork() == 0:
    os.write(writing, str(seed_of(None)).encode())
    os._exit(0)
assert os.read(reading, 99).decode() != str(seed_of(None))
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_seed_is_drawn_without_importing_numpy() -> None:
    script = """
import sys
from holdfast.tune.search.seeding import seed_of
assert seed_of(None) != seed_of(None)
assert "numpy" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)
