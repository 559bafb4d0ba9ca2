"""A searcher whose every suggestion is tried several times, for results that vary."""

from __future__ import annotations

import copy
import logging
import math
from typing import Any

from holdfast.api.checks import is_whole
from holdfast.errors import ConfigError
from holdfast.tune.search.searcher import Searcher, metric_value
from holdfast.tune.search.searcher_state import from_data, to_data
from holdfast.tune.search.wrapping import Wrapper

log = logging.getLogger(__name__)

TRIAL_INDEX = "__trial_index__"


class Repeater(Wrapper):
    """Tries every suggestion `repeat` times, and tells the searcher the mean.

    Trials without a number do not count towards the mean. Each one counts as a sample.

    Args:
        searcher: Who suggests.
        repeat: How often each config is tried.
        set_index: Put which try it is into the config, as `__trial_index__`.
    """

    def __init__(
        self,
        searcher: Searcher,
        repeat: int = 1,
        set_index: bool = True,  # noqa: FBT001, FBT002  as in Ray
    ) -> None:
        super().__init__(searcher)
        if not is_whole(repeat) or repeat < 1:
            raise ConfigError(f"repeat={repeat!r}: not a whole number above 0")
        self.repeat = int(repeat)
        self.set_index = bool(set_index)
        self._groups: dict[str, dict[str, Any]] = {}  # by the id of the first trial
        self._current: str | None = None
        self._first: dict[str, str] = {}  # of its group, for every trial

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if self._current is None:
            found = self.searcher.suggest(trial_id)
            if not isinstance(found, dict):
                return found
            self._open(trial_id, found)
        assert self._current is not None
        config = copy.deepcopy(self._groups[self._current]["config"])
        return self._indexed(config, self._join(trial_id))

    def recall(self, trial_id: str, config: dict[str, Any]) -> None:
        if self._current is None:
            shared = {key: value for key, value in config.items() if key != TRIAL_INDEX}
            self.searcher.recall(trial_id, shared)
            self._open(trial_id, shared)
        self._join(trial_id)

    def on_trial_complete(
        self,
        trial_id: str,
        result: dict[str, Any] | None = None,
        error: bool = False,  # noqa: FBT001, FBT002  as in Ray
    ) -> None:
        first = self._first.get(trial_id)
        if first is None:
            log.debug("trial %s is in no group", trial_id)
            return
        group = self._groups[first]
        group["values"][trial_id] = [] if error else self._values(result)
        if len(group["values"]) == self.repeat:
            self._tell(first, list(group["values"].values()))

    def on_revive(self, trial_id: str) -> None:
        first = self._first.get(trial_id)
        if first is not None:
            self._groups[first]["values"].pop(trial_id, None)
            self.searcher.on_revive(first)

    def own_state(self) -> dict[str, Any]:
        return {"groups": to_data(self._groups, "a suggestion"), "current": self._current}

    def set_own_state(self, state: dict[str, Any]) -> None:
        self._groups, self._current = from_data(state["groups"]), state["current"]
        self._first = {
            one: first for first, group in self._groups.items() for one in group["trials"]
        }

    def _open(self, trial_id: str, config: dict[str, Any]) -> None:
        self._groups[trial_id] = {"config": config, "trials": [], "values": {}}
        self._current = trial_id

    def _join(self, trial_id: str) -> int:
        """Make a trial the next one of the current group; return which one it is."""
        assert self._current is not None
        group = self._groups[self._current]
        group["trials"].append(trial_id)
        self._first[trial_id] = self._current
        if len(group["trials"]) == self.repeat:
            self._current = None
            group["config"] = {}  # not needed any more
        return len(group["trials"]) - 1

    def _indexed(self, config: dict[str, Any], index: int) -> dict[str, Any]:
        return {**config, TRIAL_INDEX: index} if self.set_index else config

    def _metrics(self) -> list[str]:
        metric = self.metric
        return list(metric) if isinstance(metric, list | tuple) else [str(metric)]

    def _values(self, result: dict[str, Any] | None) -> list[float | None]:
        return [metric_value(result or {}, name) for name in self._metrics()]

    def _tell(self, first: str, values: list[list[float | None]]) -> None:
        """Tell the searcher the mean of each metric, over those trials that have it."""
        means: dict[str, Any] = {}
        for at, name in enumerate(self._metrics()):
            known = [one[at] for one in values if len(one) > at and one[at] is not None]
            numbers = [number for number in known if number is not None and not math.isnan(number)]
            if numbers:
                means[name] = math.fsum(numbers) / len(numbers)
        self.searcher.on_trial_complete(first, result=means or None, error=not means)
