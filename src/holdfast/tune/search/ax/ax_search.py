"""Search by Ax, that is, by Gaussian processes of BoTorch.

What is remembered is what was tried and what came of it. Ax's own client is made anew from that for
every suggestion, with a seed made from the search's seed and the suggestion's number, so a study
that was killed suggests what it would have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.api.deprecated import warn_user
from holdfast.core.names import shown
from holdfast.errors import ConfigError
from holdfast.tune.search.ax.client import (
    Limits,
    Point,
    check_limits,
    metrics_in,
    must_be_installed,
    parameters_of,
    propose,
    space_of_list,
)
from holdfast.tune.search.points import params_of
from holdfast.tune.search.searcher import is_nan, metric_value
from holdfast.tune.search.seeding import number_for
from holdfast.tune.search.space_searcher import ModelPicker, ModelSearcher
from holdfast.tune.search.tpe import TreeModel, Tried

_INITIAL_MIN = 5  # how many results there must be before a model is made of them
_IGNORED = ("enforce_sequential_optimization", "verbose_logging", "suppress_storage_errors")


class AxSearch(ModelSearcher):
    """Lets Ax propose values; those that only some options have are drawn where good ones were.

    Args:
        space: What to search for by name, or a list of dicts as Ax has them; None takes
            `param_space`.
        points_to_evaluate: Values to begin with.
        parameter_constraints: What holds for all proposals: `"x + y <= 2"`.
        outcome_constraints: What must hold for other metrics: `"size <= 1.25"`.
        ax_client: Must be None: what a client remembers could not be kept with the study.
        ax_kwargs: `random_seed`; None draws one and keeps it with the study.
    """

    def __init__(
        self,
        space: Any = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[dict[str, Any]] | None = None,
        parameter_constraints: Sequence[str] | None = None,
        outcome_constraints: Sequence[str] | None = None,
        ax_client: Any = None,
        **ax_kwargs: Any,
    ) -> None:
        must_be_installed()
        if ax_client is not None:
            raise ConfigError(
                f"ax_client={shown(ax_client)}: what it remembers could not be kept with the study",
                hint="space, metric, mode and constraints as arguments of AxSearch",
            )
        seed = ax_kwargs.pop("random_seed", None)
        if unknown := [name for name in ax_kwargs if name not in _IGNORED]:
            raise ConfigError(f"AxSearch has no argument {', '.join(map(repr, unknown))}")
        if ax_kwargs:
            warn_user(f"AxSearch: {', '.join(ax_kwargs)} changes nothing here")
        self._limits = Limits(tuple(parameter_constraints or ()), tuple(outcome_constraints or ()))
        self._outcomes: dict[str, dict[str, float]] = {}  # by trial, by metric; less is better
        self._failed: list[str] = []
        super().__init__(space, metric, mode, points_to_evaluate, seed, seed_name="random_seed")

    def translated(self, space: Any) -> Any:
        return space_of_list(space) if isinstance(space, list) else space

    def take_space(self, space: dict[str, Any]) -> None:
        super().take_space(space)
        check_limits(parameters_of(self._tree), self._limits)

    def picker(self, number: int) -> ModelPicker:
        lines = parameters_of(self._tree)
        points = [
            Point(params, self._outcomes.get(trial_id))
            for trial_id, params in self._params.items()
            if trial_id not in self._failed and lines.keys() <= params.keys()
        ]
        known = sum(1 for point in points if point.outcome is not None)
        has_model = known >= max(_INITIAL_MIN, 2 * len(lines))
        seed = number_for(self._seed, number) % 2**31
        given = propose(lines, points, self._limits, seed, has_model=has_model)
        history = [Tried(self._params[one], outcome[""]) for one, outcome in self._outcomes.items()]
        return ModelPicker(self._seed, number, given, TreeModel(history) if has_model else None)

    def on_trial_complete(
        self,
        trial_id: str,
        result: dict[str, Any] | None = None,
        error: bool = False,  # noqa: FBT001, FBT002  as in Ray
    ) -> None:
        if trial_id not in self._params:
            return
        loss = None if error else self.loss_of(trial_id, result)
        others = {name: metric_value(result or {}, name) for name in metrics_in(self._limits)}
        if loss is None or abs(loss) == float("inf") or any(map(is_nan, others.values())):
            if trial_id not in self._failed and trial_id not in self._outcomes:
                self._failed.append(trial_id)  # Ax knows no infinity
            return
        known = {name: float(value) for name, value in others.items() if value is not None}
        self._outcomes[trial_id] = {"": loss, **known}
        if trial_id in self._failed:
            self._failed.remove(trial_id)

    def on_revive(self, trial_id: str) -> None:
        if trial_id in self._failed:
            self._failed.remove(trial_id)

    def add_evaluated_point(
        self,
        parameters: dict[str, Any],
        value: float,
        error: bool = False,  # noqa: FBT001, FBT002  as in Ray
        pruned: bool = False,  # noqa: FBT001, FBT002  as in Ray
        intermediate_values: list[float] | None = None,
    ) -> None:
        if error or is_nan(value) or self._limits.outcomes:
            return  # of the other metrics nothing is known
        self.check_ready()
        name = f"given {len(self._params)}"
        self._params[name] = params_of(self._tree, self.objects.marked(parameters))
        self._outcomes[name] = {"": -value if self._mode == "max" else value}

    def get_state(self) -> dict[str, Any]:
        more = {"outcomes": {one: dict(told) for one, told in self._outcomes.items()}}
        return super().get_state() | more | {"failed": list(self._failed)}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self._outcomes = {one: dict(told) for one, told in state["outcomes"].items()}
        self._failed = list(state["failed"])
