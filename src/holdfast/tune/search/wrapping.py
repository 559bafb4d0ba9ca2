"""The base class of searchers that wrap another searcher, and helpers for any searcher's state."""

from __future__ import annotations

from typing import Any

from holdfast.errors import ConfigError
from holdfast.tune.search.searcher import Searcher
from holdfast.tune.search.searcher_state import NotData, from_data, to_data


class Wrapper(Searcher):
    """A searcher that passes calls on to another one."""

    def __init__(self, searcher: Searcher) -> None:
        if not isinstance(searcher, Searcher):
            raise ConfigError(
                f"{type(self).__name__}({searcher!r}): not a searcher",
                hint="pass HyperOptSearch() or any other instance of a Searcher",
            )
        self.searcher = searcher

    @property
    def metric(self) -> str | list[str] | None:
        return self.searcher.metric

    @property
    def mode(self) -> str | list[str] | None:
        return self.searcher.mode

    def set_search_properties(
        self, metric: Any, mode: Any, config: dict[str, Any], **spec: Any
    ) -> bool:
        return self.searcher.set_search_properties(metric, mode, config, **spec)

    def count_trials(self, num_samples: int) -> int | None:
        return self.searcher.count_trials(num_samples)

    def add_evaluated_point(
        self,
        parameters: dict[str, Any],
        value: float,
        error: bool = False,  # noqa: FBT001, FBT002  as in Ray
        pruned: bool = False,  # noqa: FBT001, FBT002  as in Ray
        intermediate_values: list[float] | None = None,
    ) -> None:
        self.searcher.add_evaluated_point(parameters, value, error, pruned, intermediate_values)

    def own_state(self) -> dict[str, Any]:
        """Return what the wrapper itself remembers, as data."""
        raise NotImplementedError

    def set_own_state(self, state: dict[str, Any]) -> None:
        """Restore what `own_state` returned."""
        raise NotImplementedError

    def get_state(self) -> dict[str, Any]:
        return {"own": self.own_state(), "searcher": state_of(self.searcher)}

    def set_state(self, state: dict[str, Any]) -> None:
        self.set_own_state(state["own"])
        give_state(self.searcher, state["searcher"])


def state_of(searcher: Searcher) -> Any:
    """Return the state of any searcher, ours or a user's, as data for JSON."""
    try:
        return to_data(searcher.get_state(), "get_state()")
    except NotData as problem:
        raise ConfigError(
            f"the state of {type(searcher).__name__} cannot be stored: {problem}, which is not "
            "plain data",
            hint="return numbers, texts, and lists and dicts of them from get_state()",
        ) from None


def give_state(searcher: Searcher, state: Any) -> None:
    """Give a searcher the state that `state_of` returned."""
    searcher.set_state(from_data(state))


def innermost(searcher: Searcher) -> Searcher:
    """Return the searcher inside all wrappers."""
    while isinstance(searcher, Wrapper):
        searcher = searcher.searcher
    return searcher
