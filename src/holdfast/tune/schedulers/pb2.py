"""PB2: population based training that learns which changes help."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from holdfast.api.checks import is_number, is_whole
from holdfast.core.checkpoint.retention import score_of
from holdfast.errors import ConfigError
from holdfast.tune.schedulers.arguments import checking_arguments
from holdfast.tune.schedulers.explore import Config, copied
from holdfast.tune.schedulers.pbt import PopulationBasedTraining
from holdfast.tune.search.domains import Float
from holdfast.tune.search.seeding import generator_for, number_for
from holdfast.tune.trial import StudyView, Trial

ROWS_MAX = 1000
Path = tuple[str, ...]


class PB2(PopulationBasedTraining):
    """Population based training whose changes come from a model of earlier gains; needs numpy.

    Parker-Holder et al., "Provably Efficient Online Hyperparameter Optimization with
    Population-Based Bandits". Arguments as for `PopulationBasedTraining`, and

    Args:
        hyperparam_bounds: The values that may change, by key, as `[lowest, highest]`; nested like
            the config.
    """

    _bounds: dict[Path, tuple[float, float]]
    _rows: list[list[float]]
    _bases: dict[str, list[float]]
    _points: dict[str, list[float]]

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: float = 60.0,
        hyperparam_bounds: Mapping[str, Any] | None = None,
        quantile_fraction: float = 0.25,
        log_config: bool = True,  # noqa: FBT001, FBT002  # as in Ray
        require_attrs: bool = True,  # noqa: FBT001, FBT002
        synch: bool = False,  # noqa: FBT001, FBT002
        custom_explore_fn: Callable[[Config], Config] | None = None,
        *,
        seed: int | None = None,
    ) -> None:
        given = hyperparam_bounds if isinstance(hyperparam_bounds, Mapping) else {}
        with checking_arguments(self, locals()) as arguments:
            if not given:
                hint = "hyperparam_bounds={'lr': [0.0001, 0.1]}"
                arguments.add("hyperparam_bounds", "nothing may change", hint=hint)
            for path, bounds in _leaves(given):
                if not _are_bounds(bounds):
                    name = f"hyperparam_bounds: {'/'.join(path)!r}"
                    arguments.tell(f"{name}: {bounds!r} is not [lowest, highest]")
        if importlib.util.find_spec("numpy") is None:
            raise ConfigError("PB2 needs numpy, which is not installed", hint="pip install numpy")
        super().__init__(
            time_attr, metric, mode, perturbation_interval, 0.0, _domains(given),
            quantile_fraction, 0.0, (1.0,), custom_explore_fn, log_config, require_attrs, synch,
            seed=seed,
        )  # fmt: skip
        self._bounds = {path: (float(low), float(high)) for path, (low, high) in _leaves(given)}
        self._rows = []
        self._bases = {}
        self._points = {}

    def get_state(self) -> dict[str, Any]:
        return {
            **super().get_state(),
            "rows": copied(self._rows),
            "bases": copied(self._bases),
            "points": copied(self._points),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        self._rows = copied(state["rows"])
        self._bases = copied(state["bases"])
        self._points = copied(state["points"])

    def _end_interval(self, trial: Trial, time: float, score: float) -> None:
        """Record how much a trial has gained since it was last judged or copied."""
        if not math.isfinite(score):
            return
        base, point = self._bases.get(trial.trial_id), self._point_of(trial)
        if base is not None and point is not None and time > base[0]:
            gain = (score - base[1]) * self._interval / (time - base[0])
            self._rows.append([base[0] / self._interval, base[1], gain, *point])
            del self._rows[:-ROWS_MAX]
        self._bases[trial.trial_id] = [time, score]

    def _mutate(self, view: StudyView, trial: Trial, donor: Trial) -> Config:
        base = self._base_of(donor)
        purpose = ("mutate", self._tries)
        if base is None or not self._rows:
            generator = generator_for(self._seed, *purpose)
            return self._placed(donor.config, [generator.random() for _ in self._bounds])
        from holdfast.tune.schedulers.gaussian_process import Observation, most_promising

        seen = [Observation(when, score, row, gain) for when, score, gain, *row in self._rows]
        others = (self._point_of(other) for other in view.get_trials() if other is not trial)
        running = [point for point in others if point is not None]
        when, score = base[0] / self._interval, base[1]
        best = most_promising(seen, running, when, score, number_for(self._seed, *purpose))
        return self._placed(donor.config, best)

    def _inherit(self, trial: Trial, donor: Trial, config: Config) -> None:
        super()._inherit(trial, donor, config)
        self._bases.pop(trial.trial_id, None)
        if (base := self._base_of(donor)) is not None:
            self._bases[trial.trial_id] = base
        point = self._point(config)
        if point is not None:
            self._points[trial.trial_id] = point

    def _base_of(self, donor: Trial) -> list[float] | None:
        """Return the time and score of a donor at the checkpoint that others continue from."""
        donation = donor.donation()
        start = {} if donation is None else donation.result
        time, score = score_of(start, self._time_attr), score_of(start, self._metric or "")
        if time is None or score is None or not (math.isfinite(time) and math.isfinite(score)):
            return None
        return [time, score if self._mode == "max" else -score]

    def _forget(self, trial_id: str) -> None:
        super()._forget(trial_id)
        self._bases.pop(trial_id, None)
        self._points.pop(trial_id, None)

    def _point_of(self, trial: Trial) -> list[float] | None:
        """Return a trial's point; for a trial that is about to change, its next point."""
        return self._points.get(trial.trial_id) or self._point(trial.config)

    def _point(self, config: Mapping[str, Any]) -> list[float] | None:
        """Return a config as a point in the unit cube, None if it lacks a value."""
        point = []
        for path, (low, high) in self._bounds.items():
            value: Any = config
            for key in path:
                value = value.get(key) if isinstance(value, Mapping) else None
            if not is_number(value):
                return None
            point.append(min(max((float(value) - low) / (high - low), 0.0), 1.0))
        return point

    def _placed(self, config: Config, point: Sequence[float]) -> Config:
        """Return a copy of a config with the values of a point; whole numbers stay whole."""
        new: Config = copied(config)
        for (path, (low, high)), place in zip(self._bounds.items(), point, strict=True):
            inside = new
            for key in path[:-1]:
                inside = inside.setdefault(key, {})
            value = low + place * (high - low)
            first, last = math.ceil(low), math.floor(high)
            if is_whole(inside.get(path[-1])) and first <= last:
                value = min(max(round(value), first), last)
            inside[path[-1]] = value
        return new


def _leaves(bounds: Mapping[str, Any], above: Path = ()) -> Iterator[tuple[Path, Any]]:
    for key, value in bounds.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), value


def _domains(bounds: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _domains(value) if isinstance(value, Mapping) else Float(*value).uniform()
        for key, value in bounds.items()
    }


def _are_bounds(value: object) -> bool:
    if not isinstance(value, list | tuple) or len(value) != 2:
        return False
    return all(map(is_number, value)) and -math.inf < value[0] < value[1] < math.inf
