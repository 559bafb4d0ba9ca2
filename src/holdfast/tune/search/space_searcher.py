"""What searchers with a search space and a memory of trials have in common.

Suggestions are numbered, and the n-th is drawn with a generator made from the seed and n. So a
suggestion that is on record is taken in by reading its values off the config: no model is asked.
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
    """A searcher that is given a search space, by its constructor or by the study.

    Attributes:
        points_must_fit: Whether it cannot try what is none of the options of a choice.
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
        space = self._in_our_words(space)
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
            self.points_to_evaluate = [self.objects.marked(one) for one in self.points_to_evaluate]
            self.take_space(plain)
        elif space is not None:
            self.take_other_space(space)

    def translated(self, space: Any) -> Any:
        """Return a space of another library in our words; what is none, as it is."""
        return space

    def _in_our_words(self, space: Any) -> Any:
        """Return a space in our words, which are also what is kept of it with the study."""
        found = self.translated(space)
        if found is not space:
            args, kwargs = self.made_with
            if args:
                self.made_with = (found, *args[1:]), kwargs
            else:
                self.made_with = args, {**kwargs, "space": found}
        return found

    def take_space(self, space: dict[str, Any]) -> None:
        """Search this space from now on; a ConfigError if it cannot be."""
        tree = tree_of(space)
        if not has_search(tree):
            raise ConfigError(
                f"{type(self).__name__} has nothing to search for: no domain in its space",
                hint="{'lr': tune.loguniform(1e-4, 1e-1)}",
            )
        if found := list(grids(tree)):
            raise ConfigError(
                f"{type(self).__name__} draws every value, so it cannot go through the grid of "
                f"{', '.join(found)}",
                hint="choice instead of grid_search, or no search_alg",
            )
        self._tree = tree
        self._presets = [
            preset(tree, point, must_fit=self.points_must_fit) for point in self.points_to_evaluate
        ]

    def take_other_space(self, space: Any) -> None:
        """Search a space that is no dict; a ConfigError by default."""
        raise ConfigError(
            f"{type(self).__name__}(space={space!r}): not a dict of what to search by name",
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
        """Raise a ConfigError if something is missing without which there is no search."""
        if not self._has_space:
            raise ConfigError(
                f"{type(self).__name__} has nothing to search for: no domain in param_space",
                hint="param_space={'lr': tune.loguniform(1e-4, 1e-1)}",
            )
        if self._mode is None:
            raise ConfigError(UNDEFINED_METRIC_MODE, hint="TuneConfig(metric='loss', mode='min')")
        if self._metric is None:
            self._metric = DEFAULT_METRIC

    def warn_about_metric(self, trial_id: str, result: Mapping[str, Any] | None) -> None:
        """Say once that a trial has no value to learn from."""
        if self._has_warned:
            return
        self._has_warned = True
        log.warning(
            "%s learns nothing from trial %s: it ended without a number for %s; reported were %s",
            type(self).__name__,
            trial_id,
            self._metric,
            sorted(flattened(result)) if result else "no metrics",
        )

    def _take_goal(self, metric: Any, mode: Any) -> None:
        check_metric_and_mode(metric, mode)
        for name, own, given in (("metric", self._metric, metric), ("mode", self._mode, mode)):
            if own is not None and given is not None and own != given:
                raise ConfigError(
                    f"{name}={given!r} of the study is not {name}={own!r} of {type(self).__name__}",
                    hint="give it in one place",
                )
        self._metric = self._metric if self._metric is not None else metric
        self._mode = self._mode if self._mode is not None else mode


class Model(Protocol):
    """Knows what is promising."""

    def value(self, name: str, domain: Domain, generator: Any) -> Any: ...
    def option(self, name: str, count: int, generator: Any) -> int: ...


@dataclass(frozen=True, slots=True)
class ModelPicker:
    """Picks what is given, what a model says, and what chance says, in this order."""

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
    """A searcher with a model of its own, made anew from what was tried for every suggestion."""

    points_must_fit: ClassVar[bool] = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._params: dict[str, Params] = {}
        super().__init__(*args, **kwargs)

    def picker(self, number: int) -> ModelPicker:
        """Return who picks the values of the suggestion of a number, given points aside."""
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
        """Remember what was suggested."""
        self._asked += 1
        self._params[trial_id] = params_of(self._tree, config)

    def loss_of(self, trial_id: str, result: Mapping[str, Any] | None) -> float | None:
        """Return what a result cost, less is better; infinity for NaN, None if it is not told."""
        assert isinstance(self._metric, str)
        value = metric_value(result or {}, self._metric)
        if value is None:
            self.warn_about_metric(trial_id, result)
            return None
        if value != value:  # NaN: whatever it was, it was bad
            return float("inf")
        return -value if self._mode == "max" else value

    def check_ready(self) -> None:
        super().check_ready()
        if not isinstance(self._metric, str):
            raise ConfigError(
                f"{type(self).__name__} looks at one metric, not at {self._metric!r}",
                hint="OptunaSearch for several objectives",
            )

    def get_state(self) -> dict[str, Any]:
        return {"seed": self._seed, "asked": self._asked, "params": dict(self._params)}

    def set_state(self, state: dict[str, Any]) -> None:
        self._seed, self._asked = state["seed"], state["asked"]
        self._params = dict(state["params"])
