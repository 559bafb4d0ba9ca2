"""Search by a model for each budget, for use with HyperBand."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from holdfast.api.checks import is_number, is_whole
from holdfast.errors import ConfigError
from holdfast.tune.search.bohb.config_spaces import is_config_space, space_of_config_space
from holdfast.tune.search.dimension import Dimension
from holdfast.tune.search.seeding import generator_for
from holdfast.tune.search.space_searcher import ModelPicker, ModelSearcher
from holdfast.tune.search.tpe import JointModel, JointSettings, TreeModel, Tried
from holdfast.tune.search.variant_generator import Choice, Drawn, Group, Node

log = logging.getLogger(__name__)


class TuneBOHB(ModelSearcher):
    """Draws values near good configs, by the model of the largest budget with enough results.

    Use it with `HyperBandForBOHB`, which adds budgets to results.

    Args:
        space: The domains to search, by name, or a `ConfigurationSpace` of ConfigSpace without
            conditions; None for `param_space`.
        bohb_config: The fields of `JointSettings`, by name.
        points_to_evaluate: Values to start with.
        seed: The seed; None for a random one, which is stored with the study.
        max_concurrent: How many trials run at most, not counting paused ones; 0 is no limit.
    """

    def __init__(
        self,
        space: Any = None,
        bohb_config: dict[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[dict[str, Any]] | None = None,
        seed: int | None = None,
        max_concurrent: int = 0,
    ) -> None:
        if not is_whole(max_concurrent) or max_concurrent < 0:
            raise ConfigError(f"max_concurrent={max_concurrent!r}: not a whole number, 0 or more")
        self._settings = _settings(bohb_config or {})
        self._max_concurrent = int(max_concurrent)
        self._running: list[str] = []
        self._paused: list[str] = []
        self._losses: dict[float, dict[str, float]] = {}  # by budget, by trial
        self._has_warned_of_budget = False
        super().__init__(space, metric, mode, points_to_evaluate, seed)

    def translated(self, space: Any) -> Any:
        return space_of_config_space(space) if is_config_space(space) else space

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        self._max_concurrent = max_concurrent
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        if self._max_concurrent and len(self._running) >= self._max_concurrent:
            return None
        return super().suggest(trial_id)

    def note(self, trial_id: str, config: dict[str, Any]) -> None:
        super().note(trial_id, config)
        self._run(trial_id)

    def picker(self, number: int) -> ModelPicker:
        generator = generator_for(self._seed, number)
        if generator.random() < self._settings.random_fraction:
            return ModelPicker(self._seed, number, {})
        lines = _lines(self._tree)
        for budget in sorted(self._losses, reverse=True):
            losses = self._losses[budget]
            history = [Tried(self._params[trial_id], loss) for trial_id, loss in losses.items()]
            model = JointModel.of(lines, history, self._settings)
            if model is not None:
                given = model.params(generator)
                return ModelPicker(self._seed, number, given, TreeModel(history))
        return ModelPicker(self._seed, number, {})

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        if trial_id not in self._params:
            return
        if trial_id not in self._paused:
            self._run(trial_id)
        budget = _budget(result)
        if budget is not None:
            self._learn(trial_id, result, budget)
        elif not self._has_warned_of_budget and "hyperband_info" not in result:
            self._has_warned_of_budget = True
            log.warning(
                "results have no budget, so TuneBOHB learns only from the last one of each trial; "
                "HyperBandForBOHB as the scheduler adds budgets"
            )

    def on_trial_complete(
        self,
        trial_id: str,
        result: dict[str, Any] | None = None,
        error: bool = False,  # noqa: FBT001, FBT002  as in Ray
    ) -> None:
        for trial_ids in (self._running, self._paused):
            if trial_id in trial_ids:
                trial_ids.remove(trial_id)
        if not error and trial_id in self._params:
            budget = _budget(result or {})
            if budget is None:
                budget = float((result or {}).get("training_iteration", 1))
            self._learn(trial_id, result, budget)

    def on_pause(self, trial_id: str) -> None:
        if trial_id in self._running:
            self._running.remove(trial_id)
        if trial_id in self._params and trial_id not in self._paused:
            self._paused.append(trial_id)

    def on_unpause(self, trial_id: str) -> None:
        if trial_id in self._paused:
            self._paused.remove(trial_id)
            self._run(trial_id)

    def on_revive(self, trial_id: str) -> None:
        if trial_id in self._params:
            self._run(trial_id)

    def get_state(self) -> dict[str, Any]:
        return super().get_state() | {
            "running": list(self._running),
            "paused": list(self._paused),
            "losses": [[budget, dict(losses)] for budget, losses in self._losses.items()],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self._running, self._paused = list(state["running"]), list(state["paused"])
        self._losses = {budget: dict(losses) for budget, losses in state["losses"]}

    def _run(self, trial_id: str) -> None:
        if trial_id not in self._running:
            self._running.append(trial_id)

    def _learn(self, trial_id: str, result: dict[str, Any] | None, budget: float) -> None:
        """Remember a trial's loss when it reached a budget; later results do not replace it."""
        loss = self.loss_of(trial_id, result)
        if loss is not None:
            self._losses.setdefault(budget, {}).setdefault(trial_id, loss)


def _budget(result: dict[str, Any]) -> float | None:
    info = result.get("hyperband_info")
    budget = info.get("budget") if isinstance(info, dict) else None
    return float(budget) if is_number(budget) else None  # type: ignore[arg-type]


def _lines(node: Node) -> dict[str, Dimension | int]:
    """Return the values that every config has, as lines, or as the count of options."""
    match node:
        case Drawn(name, domain):
            return {name: Dimension.of(domain)}
        case Choice(name, options):
            return {name: len(options)}
        case Group(_, children):
            lines: dict[str, Dimension | int] = {}
            for _, child in children:
                lines |= _lines(child)
            return lines
        case _:
            return {}


def _settings(given: dict[str, Any]) -> JointSettings:
    names = {field.name for field in fields(JointSettings)}
    if unknown := given.keys() - names:
        raise ConfigError(
            f"bohb_config has unknown keys: {sorted(unknown)}", hint=f"one of {sorted(names)}"
        )
    for name, value in given.items():
        if value is not None and (not is_number(value) or value < 0):
            raise ConfigError(f"bohb_config: {name}={value!r} is not a number, 0 or more")
    return JointSettings(**given)
