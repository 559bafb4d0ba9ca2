"""Search by a tree of Parzen estimators, with HyperOpt's arguments but without HyperOpt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.api.checks import is_number, is_whole
from holdfast.errors import ConfigError
from holdfast.tune.search.hyperopt.expressions import has_expressions, without_expressions
from holdfast.tune.search.space_searcher import ModelPicker, ModelSearcher
from holdfast.tune.search.tpe import TreeModel, Tried


class HyperOptSearch(ModelSearcher):
    """Draws values near those of good configs; values may depend on options of `choice`.

    Args:
        space: The domains to search, by name, ours or HyperOpt's `hp`; None for `param_space`.
        points_to_evaluate: Values to start with.
        n_initial_points: How many results there must be before the model is used.
        random_state_seed: The seed; None for a random one, which is stored with the study.
        gamma: Of `n` configs, `4 * gamma * sqrt(n)` count as good.
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
        history = [Tried(self._params[name], loss) for name, loss in self._losses.items()]
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
            self._set_loss(trial_id, loss)

    def _can_learn_from(self, value: float) -> bool:
        return True

    def _set_loss(self, name: str, loss: float) -> None:
        self._losses[name] = loss

    def get_state(self) -> dict[str, Any]:
        return super().get_state() | {"losses": dict(self._losses)}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self._losses = dict(state["losses"])
