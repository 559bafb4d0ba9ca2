"""ExperimentPlateauStopper: stops a study whose best results no longer improve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.api.checks import is_number, is_whole
from holdfast.errors import ConfigError
from holdfast.tune.stopper.reading import MetricReader, iteration_of
from holdfast.tune.stopper.stopper import Stopper
from holdfast.tune.stopper.trial_plateau import deviation


class ExperimentPlateauStopper(Stopper):
    """Stops the study when its best results have been nearly equal for a while.

    A result that a restarted trial reports again replaces the earlier one.

    Args:
        metric: The metric to compare, `a/b` if nested.
        std: Results count as equal up to this standard deviation.
        top: How many of the best results are compared.
        mode: Whether the lowest ("min") or the highest ("max") results are best.
        patience: How many results in a row must leave the best equal before the study stops.
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
            broken = f"top={top!r}: must be a whole number, 2 or more"
        elif not is_whole(patience) or patience < 0:
            broken = f"patience={patience!r}: must be a whole number, 0 or more"
        elif not is_number(std) or std < 0:
            broken = f"std={std!r}: must be a number, 0 or more"
        if broken is not None:
            raise ConfigError(f"ExperimentPlateauStopper cannot work: {broken}")
        self._std, self._top, self._patience = std, int(top), int(patience)
        self._sign = 1.0 if mode == "min" else -1.0
        self._best: list[tuple[float, str, int | None]] = []  # value, trial, iteration; best first
        self._same = 0  # results in a row at which the best were equal

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        iteration = iteration_of(result)
        if iteration is not None:
            self._best = [
                (value, name, at)
                for value, name, at in self._best
                if name != trial_id or at is None or at < iteration
            ]
        value = self._metric.number(trial_id, result)
        if value is not None:
            self._best.append((value, trial_id, iteration))
            self._best.sort(key=lambda entry: self._sign * entry[0])  # stable: earlier results win
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
        return {"best": [list(entry) for entry in self._best], "same": self._same}

    def set_state(self, state: Mapping[str, Any]) -> None:
        self._best = [(float(value), trial, at) for value, trial, at in state["best"]]
        self._same = int(state["same"])
