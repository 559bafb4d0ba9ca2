"""MaximumIterationStopper: stops each trial after a number of results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.api.checks import is_whole
from holdfast.errors import ConfigError
from holdfast.tune.stopper.reading import iteration_of
from holdfast.tune.stopper.stopper import Stopper


class MaximumIterationStopper(Stopper):
    """Stops a trial when it has reported `max_iter` results.

    The count is the result's `training_iteration`, so results that a restarted trial reports again
    do not count twice; only for results without one are calls counted.
    """

    def __init__(self, max_iter: int) -> None:
        if not is_whole(max_iter) or max_iter < 1:
            raise ConfigError(
                f"MaximumIterationStopper(max_iter={max_iter!r}): must be a whole number, 1 or more"
            )
        self._max_iter = int(max_iter)
        self._calls: dict[str, int] = {}

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        done = iteration_of(result)
        if done is None:
            done = self._calls[trial_id] = self._calls.get(trial_id, 0) + 1
        return done >= self._max_iter

    def stop_all(self) -> bool:
        return False

    def get_state(self) -> dict[str, Any]:
        return {"calls": dict(self._calls)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        self._calls = dict(state["calls"])

    def forget(self, trial_id: str) -> None:
        self._calls.pop(trial_id, None)
