"""Repeater: tries every suggestion of a searcher several times, for results that vary."""

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
    """Tries every suggestion `repeat` times, and reports the mean to the searcher.

    A trial without a number does not count towards the mean. Every trial counts as a sample.

    Args:
        searcher: The searcher that suggests configs.
        repeat: How often each config is tried.
        set_index: Whether to put the number of the try into the config, as `__trial_index__`.
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
            suggestion = self.searcher.suggest(trial_id)
            if not isinstance(suggestion, dict):
                return suggestion
            self._open(trial_id, suggestion)
        assert self._current is not None
        config: dict[str, Any] = copy.deepcopy(self._groups[self._current]["config"])
        index = self._join(trial_id)
        return {**config, TRIAL_INDEX: index} if self.set_index else config

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
            self._report_means(first, list(group["values"].values()))

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
            trial_id: first for first, group in self._groups.items() for trial_id in group["trials"]
        }

    def _open(self, trial_id: str, config: dict[str, Any]) -> None:
        self._groups[trial_id] = {"config": config, "trials": [], "values": {}}
        self._current = trial_id

    def _join(self, trial_id: str) -> int:
        """Add a trial to the current group; return its index there."""
        assert self._current is not None
        group = self._groups[self._current]
        group["trials"].append(trial_id)
        self._first[trial_id] = self._current
        if len(group["trials"]) == self.repeat:
            self._current = None
            group["config"] = {}  # no longer needed
        return len(group["trials"]) - 1

    def _metrics(self) -> list[str]:
        metric = self.metric
        return list(metric) if isinstance(metric, list | tuple) else [str(metric)]

    def _values(self, result: dict[str, Any] | None) -> list[float | None]:
        return [metric_value(result or {}, name) for name in self._metrics()]

    def _report_means(self, first: str, rows: list[list[float | None]]) -> None:
        """Report the mean of each metric, over the trials that have it, to the searcher."""
        means: dict[str, Any] = {}
        for at, name in enumerate(self._metrics()):
            column = (row[at] for row in rows if len(row) > at)
            numbers = [value for value in column if value is not None and not math.isnan(value)]
            if numbers:
                means[name] = math.fsum(numbers) / len(numbers)
        self.searcher.on_trial_complete(first, result=means or None, error=not means)
