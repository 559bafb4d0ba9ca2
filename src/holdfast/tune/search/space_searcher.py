"""The base classes of searchers that have a search space.

Suggestions are numbered, and the n-th is drawn with a generator made from the seed and n. So a
suggestion that is on record is recalled by reading its values from the config, without a model.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from holdfast.core.metric_history import flattened
from holdfast.errors import ConfigError
from holdfast.tune.result import DEFAULT_METRIC
from holdfast.tune.search.basic_variant import check_points
from holdfast.tune.search.domains import Domain
from holdfast.tune.search.functions import config_of
from holdfast.tune.search.objects import Objects
from holdfast.tune.search.points import params_of, preset
from holdfast.tune.search.searcher import (
    UNDEFINED_METRIC_MODE,
    Searcher,
    check_metric_and_mode,
    metric_value,
)
from holdfast.tune.search.seeding import generator_for, number_for, seed_of
from holdfast.tune.search.tpe import Params
from holdfast.tune.search.variant_generator import Node, Plain, grids, has_search, tree_of

log = logging.getLogger(__name__)


class SpaceSearcher(Searcher):
    """A searcher that gets a search space from its constructor or from the study.

    Attributes:
        points_must_fit: Whether points to evaluate must be among the options of a choice.
    """

    points_must_fit: ClassVar[bool] = True

    def __init__(
        self,
        space: Any,
        metric: Any,
        mode: Any,
        points_to_evaluate: Sequence[dict[str, Any]] | None,
        seed: Any,
        *,
        seed_name: str = "seed",
    ) -> None:
        super().__init__(metric, mode)
        space = self._in_our_domains(space)
        self.points_to_evaluate = check_points(points_to_evaluate)
        self.objects = Objects()
        self._tree: Node = Plain({})
        self._presets: list[Node] = []
        self._has_space = space is not None
        self._seed = seed_of(seed, seed_name)
        self._asked = 0
        self._has_warned = False
        if isinstance(space, Mapping):
            plain, self.objects = Objects.of(dict(space))
            self.points_to_evaluate = list(map(self.objects.marked, self.points_to_evaluate))
            self.take_space(plain)
        elif space is not None:
            self.take_other_space(space)

    def translated(self, space: Any) -> Any:
        """Return another library's space in our domains; any other space as it is."""
        return space

    def _in_our_domains(self, space: Any) -> Any:
        """Return a space in our domains, and have the study store it in that form."""
        ours = self.translated(space)
        if ours is not space:
            args, kwargs = self.made_with
            if args:
                self.made_with = (ours, *args[1:]), kwargs
            else:
                self.made_with = args, {**kwargs, "space": ours}
        return ours

    def take_space(self, space: dict[str, Any]) -> None:
        """Search this space from now on; raise a ConfigError if that is impossible."""
        tree = tree_of(space)
        if not has_search(tree):
            raise ConfigError(
                f"{type(self).__name__} has nothing to search: no domain in its space",
                hint="{'lr': tune.loguniform(1e-4, 1e-1)}",
            )
        if names := list(grids(tree)):
            raise ConfigError(
                f"{type(self).__name__} draws every value, so it cannot go through the grid of "
                f"{', '.join(names)}",
                hint="use choice instead of grid_search, or no search_alg",
            )
        self._tree = tree
        self._presets = [
            preset(tree, point, must_fit=self.points_must_fit) for point in self.points_to_evaluate
        ]

    def take_other_space(self, space: Any) -> None:
        """Search a space that is not a dict; by default, raise a ConfigError."""
        raise ConfigError(
            f"{type(self).__name__}(space={space!r}): not a dict of domains by name",
            hint="{'lr': tune.loguniform(1e-4, 1e-1)}",
        )

    def set_search_properties(
        self, metric: Any, mode: Any, config: dict[str, Any], **spec: Any
    ) -> bool:
        self._take_goal(metric, mode)
        if has_search(tree_of(config)):
            if self._has_space:
                return False
            self.take_space(config)
            self._has_space = True
        self.check_ready()
        return True

    def check_ready(self) -> None:
        """Raise a ConfigError if the search space or the mode is missing."""
        if not self._has_space:
            raise ConfigError(
                f"{type(self).__name__} has nothing to search: no domain in param_space",
                hint="param_space={'lr': tune.loguniform(1e-4, 1e-1)}",
            )
        if self._mode is None:
            raise ConfigError(UNDEFINED_METRIC_MODE, hint="TuneConfig(metric='loss', mode='min')")
        if self._metric is None:
            self._metric = DEFAULT_METRIC

    def warn_about_metric(self, trial_id: str, result: Mapping[str, Any] | None) -> None:
        """Log, once, that a trial has no value to learn from."""
        if self._has_warned:
            return
        self._has_warned = True
        log.warning(
            "%s learns nothing from trial %s: it ended without a number for %s; it reported %s",
            type(self).__name__, trial_id, self._metric,
            sorted(flattened(result)) if result else "no metrics",
        )  # fmt: skip

    def _take_goal(self, metric: Any, mode: Any) -> None:
        check_metric_and_mode(metric, mode)
        for name, own, given in (("metric", self._metric, metric), ("mode", self._mode, mode)):
            if own is not None and given is not None and own != given:
                raise ConfigError(
                    f"{name}={given!r} of the study is not {name}={own!r} of {type(self).__name__}",
                    hint="set it in one place",
                )
        self._metric = self._metric if self._metric is not None else metric
        self._mode = self._mode if self._mode is not None else mode


class Model(Protocol):
    """Chooses promising values."""

    def value(self, name: str, domain: Domain, generator: Any) -> Any: ...
    def option(self, name: str, count: int, generator: Any) -> int: ...


@dataclass(frozen=True, slots=True)
class ModelPicker:
    """Picks the given value if there is one, else the model's, else a random one."""

    root: int
    number: int
    given: Params
    model: Model | None = None

    def value(self, name: str, domain: Domain) -> Any:
        if name in self.given:
            return self.given[name]
        generator = generator_for(self.root, self.number, name)
        return self.model.value(name, domain, generator) if self.model else domain.draw(generator)

    def option(self, name: str, count: int) -> int:
        if name in self.given:
            return int(self.given[name])
        generator = generator_for(self.root, self.number, name)
        return (
            self.model.option(name, count, generator) if self.model else generator.randrange(count)
        )

    def seed(self, name: str) -> int:
        return number_for(self.root, self.number, name)


class ModelSearcher(SpaceSearcher):
    """A searcher whose model is made from the tried configs, anew for every suggestion."""

    points_must_fit: ClassVar[bool] = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._params: dict[str, Params] = {}
        super().__init__(*args, **kwargs)

    def picker(self, number: int) -> ModelPicker:
        """Return the picker for suggestion `number`, which is not one of the points to evaluate."""
        raise NotImplementedError

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        self.check_ready()
        number = self._asked
        tree, picker = self._tree, ModelPicker(self._seed, number, {})
        if number < len(self._presets):
            tree = self._presets[number]
        else:
            picker = self.picker(number)
        config: dict[str, Any] = config_of(tree, 0, picker)
        self.note(trial_id, config)
        return config

    def recall(self, trial_id: str, config: dict[str, Any]) -> None:
        self.note(trial_id, config)

    def note(self, trial_id: str, config: dict[str, Any]) -> None:
        """Remember a suggestion."""
        self._asked += 1
        self._params[trial_id] = params_of(self._tree, config)

    def loss_of(self, trial_id: str, result: Mapping[str, Any] | None) -> float | None:
        """Return the metric, turned so that less is better; infinity for NaN, None if missing."""
        assert isinstance(self._metric, str)
        value = metric_value(result or {}, self._metric)
        if value is None:
            self.warn_about_metric(trial_id, result)
            return None
        return self._loss(value)

    def _loss(self, value: float) -> float:
        if value != value:  # NaN counts as the worst
            return float("inf")
        return -value if self._mode == "max" else value

    def add_evaluated_point(
        self,
        parameters: dict[str, Any],
        value: float,
        error: bool = False,  # noqa: FBT001, FBT002  as in Ray
        pruned: bool = False,  # noqa: FBT001, FBT002  as in Ray
        intermediate_values: list[float] | None = None,
    ) -> None:
        if not self._can_learn_from(value) or error:
            return
        self.check_ready()
        name = f"given {len(self._params)}"
        self._params[name] = params_of(self._tree, self.objects.marked(parameters))
        self._set_loss(name, self._loss(value))

    def _can_learn_from(self, value: float) -> bool:
        """Return whether a metric's value is all that is needed of a trial elsewhere."""
        raise NotImplementedError(f"{type(self).__name__} cannot learn from other trials")

    def _set_loss(self, name: str, loss: float) -> None:
        """Remember the loss of the config that is called `name`."""
        raise NotImplementedError

    def check_ready(self) -> None:
        super().check_ready()
        if not isinstance(self._metric, str):
            raise ConfigError(
                f"{type(self).__name__} optimizes one metric, not {self._metric!r}",
                hint="use OptunaSearch for several objectives",
            )

    def get_state(self) -> dict[str, Any]:
        return {"seed": self._seed, "asked": self._asked, "params": dict(self._params)}

    def set_state(self, state: dict[str, Any]) -> None:
        self._seed, self._asked = state["seed"], state["asked"]
        self._params = dict(state["params"])
