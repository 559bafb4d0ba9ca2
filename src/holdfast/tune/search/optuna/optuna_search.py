"""Search by Optuna.

The state is the trials and a seed, as data, from which an Optuna study is made again. The n-th
suggestion is drawn with a seed made from the search's seed and n, so a resumed study suggests what
it would have suggested without the crash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.errors import ConfigError
from holdfast.tune.search.functions import config_of
from holdfast.tune.search.optuna.distributions import Codes, check_params, optuna_module
from holdfast.tune.search.optuna.given_distributions import (
    has_distributions,
    without_distributions,
)
from holdfast.tune.search.optuna.memory import StudyMemory
from holdfast.tune.search.plain import flattened_config, nested_config
from holdfast.tune.search.searcher import is_nan, metric_value
from holdfast.tune.search.seeding import number_for
from holdfast.tune.search.space_searcher import SpaceSearcher


class OptunaSearch(SpaceSearcher):
    """Draws values with an Optuna sampler, by default Optuna's TPE.

    Args:
        space: The domains to search, by name, ours or Optuna's distributions; or a function of an
            Optuna trial that asks it for values and may return a dict of further ones; None for
            `param_space`.
        metric: The metric to optimize; a list for several objectives.
        mode: "min" or "max"; a list if `metric` is one.
        points_to_evaluate: Values to start with.
        sampler: An Optuna sampler; every suggestion seeds it again.
        study_name: The name of the study in `storage`.
        storage: An Optuna storage, to learn from its trials and to add finished ones.
        seed: The seed; None for a random one, which is stored with the study.
        evaluated_rewards: The values of `points_to_evaluate`, which are then not tried again.
    """

    def __init__(
        self,
        space: dict[str, Any] | Callable[[Any], dict[str, Any] | None] | None = None,
        metric: str | list[str] | None = None,
        mode: str | list[str] | None = None,
        points_to_evaluate: Sequence[dict[str, Any]] | None = None,
        sampler: Any = None,
        study_name: str | None = None,
        storage: Any = None,
        seed: int | None = None,
        evaluated_rewards: Sequence[Any] | None = None,
    ) -> None:
        optuna = optuna_module()
        if sampler is not None and not isinstance(sampler, optuna.samplers.BaseSampler):
            raise ConfigError(
                f"sampler={sampler!r}: not an Optuna sampler",
                hint="optuna.samplers.TPESampler(multivariate=True)",
            )
        self._define: Callable[[Any], Any] | None = None
        self._codes: Codes | None = None
        self._sampler, self._study_name, self._storage = sampler, study_name, storage
        self._rewards = None if evaluated_rewards is None else list(evaluated_rewards)
        self._memory: StudyMemory | None = None
        super().__init__(space, metric, mode, points_to_evaluate, seed)
        if self._rewards is not None and len(self._rewards) != len(self.points_to_evaluate):
            raise ConfigError(
                f"evaluated_rewards has {len(self._rewards)} values, points_to_evaluate has "
                f"{len(self.points_to_evaluate)} points; each point needs one value"
            )

    def translated(self, space: Any) -> Any:
        is_foreign = isinstance(space, Mapping) and has_distributions(space)
        return without_distributions(space) if is_foreign else space

    def take_space(self, space: dict[str, Any]) -> None:
        super().take_space(space)
        self._codes = Codes(self._tree)

    def take_other_space(self, space: Any) -> None:
        if not callable(space):
            super().take_other_space(space)
        self._define = space

    def suggest(self, trial_id: str) -> dict[str, Any] | str:
        memory = self._ready()
        if memory.is_over:
            return self.FINISHED
        number = self._asked
        reseed(memory.study.sampler, number_for(self._seed, number) % 2**32)
        points = self.points_to_evaluate if self._rewards is None else []
        if number < len(points):
            memory.study.enqueue_trial(self._encoded(points[number])[0])
        trial = memory.ask(trial_id)
        try:
            config = self._config(trial, number)
        except BaseException:
            memory.finish(trial.number, "FAIL", None)
            raise
        self._asked += 1
        return config

    def recall(self, trial_id: str, config: dict[str, Any]) -> None:
        memory = self._ready()
        if self._sampler is not None:
            # A sampler may remember what it suggested, so it is asked again.
            if self.ask_again(trial_id, config):
                return
            memory.forget(trial_id)
            self._asked -= 1
        params, distributions = self._encoded(config)
        memory.add(trial_id, "RUNNING", params, distributions)
        self._asked += 1

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        if isinstance(self._metric, str):
            value = metric_value(result, self._metric)
            if not is_nan(value):
                self._ready().report(trial_id, int(result.get("training_iteration", 0)), value)

    def on_trial_complete(
        self,
        trial_id: str,
        result: dict[str, Any] | None = None,
        error: bool = False,  # noqa: FBT001, FBT002  as in Ray
    ) -> None:
        memory = self._ready()
        if error:
            memory.complete(trial_id, "FAIL", None)
            return
        several = isinstance(self._metric, list | tuple)
        names = list(self._metric or ()) if several else [str(self._metric)]
        values = [metric_value(result or {}, name) for name in names]
        if any(map(is_nan, values)):
            self.warn_about_metric(trial_id, result)
            is_pruned = not several and None in values
            memory.complete(trial_id, "PRUNED" if is_pruned else "FAIL", None)
        else:
            memory.complete(trial_id, "COMPLETE", values)

    def add_evaluated_point(
        self,
        parameters: dict[str, Any],
        value: Any,
        error: bool = False,  # noqa: FBT001, FBT002  as in Ray
        pruned: bool = False,  # noqa: FBT001, FBT002  as in Ray
        intermediate_values: list[float] | None = None,
    ) -> None:
        memory = self._ready()
        params, distributions = self._encoded(self.objects.marked(parameters))
        state = "FAIL" if error else "PRUNED" if pruned else "COMPLETE"
        values = list(value) if isinstance(value, list | tuple) else [value]
        steps = dict(enumerate(intermediate_values or []))
        memory.add(None, state, params, distributions, None if error else values, steps)

    def get_state(self) -> dict[str, Any]:
        return {"seed": self._seed, "asked": self._asked, "study": self._ready().to_data()}

    def set_state(self, state: dict[str, Any]) -> None:
        self._seed, self._asked = state["seed"], state["asked"]
        self._memory = self._new_memory()
        self._memory.take(state["study"])

    def _ready(self) -> StudyMemory:
        """Return Optuna's study, which is made when it is first needed."""
        if self._memory is None:
            self.check_ready()
            self._memory = self._new_memory()
            self._memory.learn_from_storage()
            for point, reward in zip(self.points_to_evaluate, self._rewards or (), strict=False):
                self.add_evaluated_point(point, reward)
        return self._memory

    def _new_memory(self) -> StudyMemory:
        modes = self._mode if isinstance(self._mode, list | tuple) else [str(self._mode)]
        return StudyMemory(list(modes), self._sampler, self._storage, self._study_name)

    def _config(self, trial: Any, number: int) -> dict[str, Any]:
        if self._define is not None:
            further = self._define(trial) or {}
            check_params(further)
            return nested_config({**trial.params, **further})
        assert self._codes is not None
        picker = self._codes.picker(trial, self._seed, number)
        return config_of(self._tree, 0, picker)  # type: ignore[no-any-return]

    def _encoded(self, config: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return Optuna's values of a config, and their distributions."""
        if self._codes is not None:
            return self._codes.encoded(config)
        assert self._define is not None
        trial = optuna_module().trial.FixedTrial(flattened_config(config))
        self._define(trial)
        return dict(trial.params), dict(trial.distributions)


def reseed(sampler: Any, seed: int) -> None:
    """Seed every generator in a sampler and in the samplers that it holds."""
    base = optuna_module().samplers.BaseSampler
    for value in vars(sampler).values():
        if isinstance(value, base):
            reseed(value, seed)
        else:
            generator = getattr(value, "rng", value)
            if type(generator).__name__ == "RandomState":
                generator.seed(seed)
