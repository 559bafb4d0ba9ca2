"""Search by a tree of Parzen estimators, with the arguments of HyperOpt, and without HyperOpt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.api.checks import is_number, is_whole
from holdfast.errors import ConfigError
from holdfast.tune.search.hyperopt.expressions import has_expressions, without_expressions
from holdfast.tune.search.points import params_of
from holdfast.tune.search.space_searcher import ModelPicker, ModelSearcher
from holdfast.tune.search.tpe import TreeModel, Tried


class HyperOptSearch(ModelSearcher):
    """Draws where good configs were found; values may depend on options of `choice`.

    Args:
        space: What to search for by name, with our domains or with `hp` of HyperOpt; None takes
            `param_space`.
        points_to_evaluate: Values to begin with.
        n_initial_points: How many results there must be before the model is asked.
        random_state_seed: None draws one and keeps it with the study.
        gamma: How many configs count as good: four times this times the root of how many there are.
    """

    def __init__(
        self,
        space: dict[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[dict[str, Any]] | None = None,
        n_initial_points: int = 20,
        random_state_seed: int | None = None,
        gamma: float = 0.25,
    ) -> None:
        if not is_whole(n_initial_points) or n_initial_points < 1:
            raise ConfigError(f"n_initial_points={n_initial_points!r}: not a whole number above 0")
        if not is_number(gamma) or not gamma > 0:
            raise ConfigError(f"gamma={gamma!r}: not a number above 0")
        self._initial = int(n_initial_points)
        self._gamma = float(gamma)
        self._losses: dict[str, float] = {}
        super().__init__(
            space,
            metric,
            mode,
            points_to_evaluate,
            random_state_seed,
            seed_name="random_state_seed",
        )

    def translated(self, space: Any) -> Any:
        return without_expressions(space) if has_expressions(space) else space

    def picker(self, number: int) -> ModelPicker:
        if len(self._losses) < self._initial:
            return ModelPicker(self._seed, number, {})
        history = [Tried(self._params[one], loss) for one, loss in self._losses.items()]
        return ModelPicker(self._seed, number, {}, TreeModel(history, gamma=self._gamma))

    def on_trial_complete(
        self,
        trial_id: str,
        result: dict[str, Any] | None = None,
        error: bool = False,  # noqa: FBT001, FBT002  as in Ray
    ) -> None:
        if error or trial_id not in self._params:
            return
        loss = self.loss_of(trial_id, result)
        if loss is not None:
            self._losses[trial_id] = loss

    def add_evaluated_point(
        self,
        parameters: dict[str, Any],
        value: float,
        error: bool = False,  # noqa: FBT001, FBT002  as in Ray
        pruned: bool = False,  # noqa: FBT001, FBT002  as in Ray
        intermediate_values: list[float] | None = None,
    ) -> None:
        if error:
            return
        self.check_ready()
        name = f"given {len(self._params)}"
        self._params[name] = params_of(self._tree, self.objects.marked(parameters))
        self._losses[name] = -value if self._mode == "max" else value

    def get_state(self) -> dict[str, Any]:
        return super().get_state() | {"losses": dict(self._losses)}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self._losses = dict(state["losses"])
