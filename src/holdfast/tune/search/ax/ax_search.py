"""Search by Ax, that is, by BoTorch's Gaussian processes.

The searcher remembers the configs and their outcomes. For every suggestion a new Ax client is made
from them, seeded by the search's seed and the suggestion's number, so a resumed study suggests what
it would have suggested without the crash.
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
from holdfast.tune.search.searcher import is_nan, metric_value
from holdfast.tune.search.seeding import number_for
from holdfast.tune.search.space_searcher import ModelPicker, ModelSearcher
from holdfast.tune.search.tpe import TreeModel, Tried

_INITIAL_MIN = 5  # how many results there must be before a model is used
_IGNORED = ("enforce_sequential_optimization", "verbose_logging", "suppress_storage_errors")


class AxSearch(ModelSearcher):
    """Lets Ax propose values; those inside options of `choice` are drawn near good ones.

    Args:
        space: The domains to search, by name, or a list of Ax's parameter dicts; None for
            `param_space`.
        points_to_evaluate: Values to start with.
        parameter_constraints: Hold for all proposals: `"x + y <= 2"`.
        outcome_constraints: Hold for other metrics: `"size <= 1.25"`.
        ax_client: Must be None: the state of a client cannot be stored with the study.
        ax_kwargs: `random_seed`; None for a random one, which is stored with the study.
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
                f"ax_client={shown(ax_client)}: its state cannot be stored with the study",
                hint="pass space, metric, mode and constraints to AxSearch",
            )
        seed = ax_kwargs.pop("random_seed", None)
        if unknown := [name for name in ax_kwargs if name not in _IGNORED]:
            raise ConfigError(f"AxSearch has no argument {', '.join(map(repr, unknown))}")
        if ax_kwargs:
            warn_user(f"AxSearch ignores {', '.join(ax_kwargs)}")
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
        finished = sum(1 for point in points if point.outcome is not None)
        has_model = finished >= max(_INITIAL_MIN, 2 * len(lines))
        seed = number_for(self._seed, number) % 2**31
        given = propose(lines, points, self._limits, seed, has_model=has_model)
        history = [
            Tried(self._params[name], outcome[""]) for name, outcome in self._outcomes.items()
        ]
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
                self._failed.append(trial_id)  # Ax takes no infinite values
            return
        values = {name: float(value) for name, value in others.items() if value is not None}
        self._outcomes[trial_id] = {"": loss, **values}
        if trial_id in self._failed:
            self._failed.remove(trial_id)

    def on_revive(self, trial_id: str) -> None:
        if trial_id in self._failed:
            self._failed.remove(trial_id)

    def _can_learn_from(self, value: float) -> bool:
        # A point that was tried elsewhere lacks the metrics that outcomes are constrained by.
        return not is_nan(value) and not self._limits.outcomes

    def _set_loss(self, name: str, loss: float) -> None:
        self._outcomes[name] = {"": loss}

    def get_state(self) -> dict[str, Any]:
        return super().get_state() | {
            "outcomes": {name: dict(outcome) for name, outcome in self._outcomes.items()},
            "failed": list(self._failed),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self._outcomes = {name: dict(outcome) for name, outcome in state["outcomes"].items()}
        self._failed = list(state["failed"])
