"""Grid search and random search: computes any variant from its number, when it is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.api.checks import is_whole
from holdfast.errors import ConfigError
from holdfast.tune.search.domains import Domain
from holdfast.tune.search.functions import config_of
from holdfast.tune.search.points import preset
from holdfast.tune.search.searcher import Searcher, check_metric_and_mode
from holdfast.tune.search.seeding import generator_for, number_for, seed_of
from holdfast.tune.search.variant_generator import Node, Plain, tree_of


@dataclass(frozen=True, slots=True)
class RandomPicker:
    """Draws each value with its own generator, made from a seed, a number and the value's name."""

    root: int
    number: int

    def value(self, name: str, domain: Domain) -> Any:
        return domain.draw(generator_for(self.root, self.number, name))

    def option(self, name: str, count: int) -> int:
        return generator_for(self.root, self.number, name).randrange(count)

    def seed(self, name: str) -> int:
        return number_for(self.root, self.number, name)


class BasicVariantGenerator(Searcher):
    """Tries all combinations of the grids, once per sample, and draws the rest at random.

    The n-th variant depends only on the space, the seed and n. So a search can stop and resume
    anywhere, and 25 samples and 25 more are the same as 50 at once.

    Args:
        points_to_evaluate: Values to start with. Each point takes the place of one sample; values
            that it lacks are searched as usual.
        max_concurrent: How many trials run at most; 0 is no limit.
        constant_grid_search: Draw random values once per sample, not once per combination.
        random_state: The seed; None for a random one, which is stored with the study.
    """

    def __init__(
        self,
        points_to_evaluate: Sequence[dict[str, Any]] | None = None,
        max_concurrent: int = 0,
        constant_grid_search: bool = False,  # noqa: FBT001, FBT002  as in Ray
        random_state: Any = None,
    ) -> None:
        super().__init__()
        if not is_whole(max_concurrent) or max_concurrent < 0:
            raise ConfigError(f"max_concurrent={max_concurrent!r}: not a whole number, 0 or more")
        self.max_concurrent = int(max_concurrent)
        self.points_to_evaluate = check_points(points_to_evaluate)
        self._constant = bool(constant_grid_search)
        self._seed = seed_of(random_state, "random_state")
        self._made = 0
        self._tree: Node = Plain({})
        self._presets: list[Node] = []

    def set_search_properties(
        self, metric: Any, mode: Any, config: dict[str, Any], **spec: Any
    ) -> bool:
        check_metric_and_mode(metric, mode)
        self._metric, self._mode = metric, mode
        self._tree = tree_of(config)
        self._presets = [preset(self._tree, point) for point in self.points_to_evaluate]
        return True

    def variant(self, number: int) -> dict[str, Any]:
        """Return variant `number`, counted from 0."""
        tree, sample, index = self._place_of(number)
        picker = RandomPicker(self._seed, sample if self._constant else number)
        return config_of(tree, index, picker)  # type: ignore[no-any-return]

    def count_trials(self, num_samples: int) -> int | None:
        if num_samples < 0:
            return None
        presets = [tree.size for tree in self._presets[:num_samples]]
        return sum(presets) + (num_samples - len(presets)) * self._tree.size

    def suggest(self, trial_id: str) -> dict[str, Any]:
        config = self.variant(self._made)
        self._made += 1
        return config

    def recall(self, trial_id: str, config: dict[str, Any]) -> None:
        self._made += 1

    def on_trial_complete(
        self,
        trial_id: str,
        result: dict[str, Any] | None = None,
        error: bool = False,  # noqa: FBT001, FBT002  as in Ray
    ) -> None:
        pass

    def get_state(self) -> dict[str, Any]:
        return {"seed": self._seed, "made": self._made}

    def set_state(self, state: dict[str, Any]) -> None:
        self._seed, self._made = state["seed"], state["made"]

    def _place_of(self, number: int) -> tuple[Node, int, int]:
        """Return the tree of a variant, the number of its sample, and that of its combination."""
        for sample, tree in enumerate(self._presets):
            if number < tree.size:
                return tree, sample, number
            number -= tree.size
        sample, index = divmod(number, self._tree.size)
        return self._tree, len(self._presets) + sample, index


def check_points(points: Any) -> list[dict[str, Any]]:
    """Return `points_to_evaluate` as a list; raise a ConfigError unless it is one of dicts."""
    if points is None:
        return []
    if isinstance(points, dict) or not isinstance(points, Sequence):
        raise ConfigError(
            f"points_to_evaluate={points!r}: not a list of dicts", hint="[{'lr': 0.1}]"
        )
    for point in points:
        if not isinstance(point, dict):
            raise ConfigError(f"points_to_evaluate: {point!r} is not a dict of values by name")
    return list(points)
