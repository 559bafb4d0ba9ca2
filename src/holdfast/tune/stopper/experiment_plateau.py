"""Stop a study whose best results no longer get better."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.api.checks import is_number, is_whole
from holdfast.errors import ConfigError
from holdfast.tune.stopper.reading import MetricReader, iteration_of
from holdfast.tune.stopper.stopper import Stopper
from holdfast.tune.stopper.trial_plateau import deviation


class ExperimentPlateauStopper(Stopper):
    """Stops the study when its best results have been nearly the same for a while.

    A result that a trial makes again after it was lost takes the place of the one before.

    Args:
        metric: Which one, `a/b` if nested.
        std: The standard deviation of the best results up to which they count as the same.
        top: How many of the best results are looked at.
        mode: Whether the lowest ("min") or the highest ("max") are best.
        patience: After how many results in a row at which they were the same the study stops.
    """

    def __init__(
        self,
        metric: str,
        std: float = 0.001,
        top: int = 10,
        mode: str = "min",
        patience: int = 0,
    ) -> None:
        self._metric = MetricReader(metric, type(self).__name__)
        broken = None
        if mode not in ("min", "max"):
            broken = f"mode={mode!r}: must be 'min' or 'max'"
        elif not is_whole(top) or top < 2:
            broken = f"top={top!r}: must be a whole number, 2 or more, for one never differs"
        elif not is_whole(patience) or patience < 0:
            broken = f"patience={patience!r}: must be a whole number, 0 or more"
        elif not is_number(std) or std < 0:
            broken = f"std={std!r}: must be a number, 0 or more"
        if broken is not None:
            raise ConfigError(f"ExperimentPlateauStopper cannot work: {broken}")
        self._std, self._top, self._patience = std, int(top), int(patience)
        self._sign = 1.0 if mode == "min" else -1.0
        self._best: list[tuple[float, str, int | None]] = []  # value, trial, iteration; best first
        self._same = 0  # results in a row at which the best were the same

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        at = iteration_of(result)
        if at is not None:
            self._best = [
                one for one in self._best if one[1] != trial_id or one[2] is None or one[2] < at
            ]
        value = self._metric.number(trial_id, result)
        if value is not None:
            self._best.append((value, trial_id, at))
            self._best.sort(key=lambda one: self._sign * one[0])  # stable: of equals the first
            del self._best[self._top :]
        self._same = self._same + 1 if self._is_flat() else 0
        return self.stop_all()

    def stop_all(self) -> bool:
        return self._is_flat() and self._same >= self._patience

    def _is_flat(self) -> bool:
        if len(self._best) < self._top:
            return False
        return deviation([value for value, _, _ in self._best]) <= self._std

    def get_state(self) -> dict[str, Any]:
        return {"best": [list(one) for one in self._best], "same": self._same}

    def set_state(self, state: Mapping[str, Any]) -> None:
        self._best = [(float(value), trial, at) for value, trial, at in state["best"]]
        self._same = int(state["same"])
