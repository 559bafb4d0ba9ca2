"""Search by Ax: what it proposes, what is kept of it, and what it refuses."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.tune.search import BasicVariantGenerator, SearchPlan, create_searcher
from holdfast.tune.search.ax import AxSearch
from holdfast.tune.search.ax.client import space_of_list
from holdfast.tune.search.sample import (
    choice,
    lograndint,
    loguniform,
    qloguniform,
    qrandint,
    randint,
    randn,
    uniform,
)
from tests.unit.tune.search.landscapes import BRANIN, branin, losses_of

MIXED = {
    "lr": loguniform(1e-4, 1),
    "deep": {"width": lograndint(8, 512), "even": qrandint(2, 8, 2)},
    "q": qloguniform(0.5, 8, 0.5),
    "kind": choice(["a", {"other": uniform(0, 1)}]),
    "one": choice(["only"]),
    "constant": 3,
}


def test_without_ax_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ax", None)
    monkeypatch.setattr("holdfast.tune.search.ax.client.find_spec", lambda name: None)

    with pytest.raises(ConfigError, match="needs Ax, which is not installed") as caught:
        AxSearch()

    assert "holdfast[ax]" in str(caught.value)


def test_a_list_of_parameters_of_ax_is_a_space() -> None:
    space = space_of_list(
        [
            {"name": "x", "type": "range", "bounds": [0.0, 1.0]},
            {"name": "lr", "type": "range", "bounds": [1e-4, 1.0], "log_scale": True},
            {"name": "n", "type": "range", "bounds": [1, 5]},
            {"name": "f", "type": "range", "bounds": [1, 5], "value_type": "float"},
            {"name": "kind", "type": "choice", "values": ["a", "b"]},
            {"name": "depth", "type": "fixed", "value": 3},
        ]
    )

    assert space == {
        "x": uniform(0, 1),
        "lr": loguniform(1e-4, 1),
        "n": randint(1, 6),
        "f": uniform(1, 5),
        "kind": choice(["a", "b"]),
        "depth": 3,
    }
    with pytest.raises(ConfigError, match="not a parameter of Ax"):
        space_of_list([{"name": "x", "bounds": [0, 1]}])


@pytest.mark.slow
class TestWithAx:
    """These load Ax, which takes seconds."""

    @pytest.fixture(autouse=True)
    def there(self) -> None:
        pytest.importorskip("ax")

    def run(self, searcher: AxSearch, numbers: range) -> list[Any]:
        """Return what a search suggests."""
        configs: list[Any] = []
        for number in numbers:
            config: Any = searcher.suggest(f"t{number}")
            configs.append(config)
            if number % 5 == 3:
                searcher.on_trial_complete(f"t{number}", error=True)
            elif number % 5 != 4:  # which is still running
                searcher.on_trial_complete(f"t{number}", {"loss": abs(config["lr"] - 0.01)})
        return configs

    @pytest.mark.req("U-078")
    def test_it_goes_on_from_its_state_as_if_nothing_had_happened(self) -> None:
        """With a model: it has seen ten results by the seventeenth suggestion."""
        searcher = AxSearch(MIXED, metric="loss", mode="min", random_seed=4)
        begun = self.run(searcher, range(17))
        state = json.loads(json.dumps(searcher.get_state()))
        other = AxSearch(MIXED, metric="loss", mode="min")
        other.set_state(state)
        rest = self.run(searcher, range(17, 20))

        assert self.run(other, range(17, 20)) == rest
        whole = [*begun, *rest]
        for config in whole:
            assert 1e-4 <= config["lr"] <= 1
            assert config["deep"]["width"] in range(8, 512)
            assert config["deep"]["even"] in (2, 4, 6, 8)
            assert (config["q"] * 2).is_integer()
            assert config["kind"] == "a" or 0 <= config["kind"]["other"] <= 1
            assert (config["one"], config["constant"]) == ("only", 3)

    @pytest.mark.long
    def test_it_finds_what_chance_does_not(self) -> None:
        best = min(losses_of(AxSearch(random_seed=1), BRANIN, branin, 16))
        floor = min(losses_of(BasicVariantGenerator(random_state=1), BRANIN, branin, 16))

        assert best < 0.5 < floor

    def test_constraints_hold_for_all_it_proposes(self) -> None:
        """One of the proposals is of a model, which Ax takes seconds for where there are bounds."""
        searcher = AxSearch(
            {"x": uniform(0, 1), "y": uniform(0, 1)},
            metric="gain",
            mode="max",
            parameter_constraints=["x + y <= 0.5"],
            random_seed=1,
        )
        tried = []
        for number in range(6):
            config: Any = searcher.suggest(f"t{number}")
            tried.append(config["x"] + config["y"])
            searcher.on_trial_complete(f"t{number}", {"gain": tried[-1]})

        assert max(tried) <= 0.5 + 1e-6
        assert max(tried) == pytest.approx(tried[-1]) == pytest.approx(0.5)

    def test_what_an_outcome_is_bounded_by_is_remembered(self) -> None:
        space = {"x": uniform(0, 1)}
        searcher = AxSearch(space, "gain", "max", outcome_constraints=["size <= 0.2"])
        results: list[Any] = [{"gain": 1, "size": 0.1}, {"gain": 2}, {"size": 0.1}]
        for number, result in enumerate(results):
            searcher.suggest(f"t{number}")
            searcher.on_trial_complete(f"t{number}", result)

        state = searcher.get_state()

        assert state["outcomes"] == {"t0": {"": -1.0, "size": 0.1}}
        assert state["failed"] == ["t1", "t2"]

    def test_a_plan_searches_with_it_by_name(self) -> None:
        searcher = create_searcher("ax", metric="loss", mode="min", random_seed=1)
        plan = SearchPlan(searcher, {"x": uniform(0, 1)}, num_samples=2)

        proposals: Any = [plan.next() for _ in range(2)]

        assert all(0 <= proposal.config["x"] <= 1 for proposal in proposals)

    def test_what_cannot_work_is_refused_at_once(self) -> None:
        for more, words in (
            ({"ax_client": object()}, "cannot be stored"),
            ({"space": {"x": randn(0, 1)}}, "x: Ax does not search normal"),
            ({"magic": 1}, "no argument 'magic'"),
            ({"outcome_constraints": ["size"], "space": {"x": uniform(0, 1)}}, "a bound"),
            (
                {"parameter_constraints": ["z <= 1"], "space": {"x": uniform(0, 1)}},
                "Ax refuses the search space",
            ),
        ):
            with pytest.raises(ConfigError, match=words):
                AxSearch(**more)
