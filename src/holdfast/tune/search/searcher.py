"""The interface of everything that proposes configs; users subclass it.

A study that goes on after a crash makes a searcher with the same arguments, gives it the state it
was last asked for, and repeats the calls made since. What was proposed since then is on record,
and is told by `recall`: the record wins.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from holdfast.api.recorded_call import Made
from holdfast.core.metric_history import flattened
from holdfast.core.plain_data import same
from holdfast.errors import ConfigError
from holdfast.tune.search.plain import flattened_config
from holdfast.tune.search.searcher_state import memory_of, remember

log = logging.getLogger(__name__)

UNRESOLVED_SEARCH_SPACE = (
    "the search space is in both places, param_space and the searcher; only one can be used"
)
UNDEFINED_METRIC_MODE = "the searcher must know what to look at: metric and mode are not given"
MODES = ("min", "max")

_STATE_FILE = re.compile(r"searcher-state-.*\.json")


class Searcher(Made):
    """Proposes configs, and learns from what came of them.

    Args:
        metric: The metric to look at; several for several objectives.
        mode: "min" or "max", for each metric.
    """

    FINISHED: ClassVar[Literal["FINISHED"]] = "FINISHED"
    CKPT_FILE_TMPL: ClassVar[str] = "searcher-state-{}.json"

    def __init__(
        self, metric: str | list[str] | None = None, mode: str | list[str] | None = None
    ) -> None:
        check_metric_and_mode(metric, mode)
        self._metric = metric
        self._mode = mode

    @property
    def metric(self) -> str | list[str] | None:
        """The metric to look at."""
        return getattr(self, "_metric", None)

    @property
    def mode(self) -> str | list[str] | None:
        """Whether less or more is better."""
        return getattr(self, "_mode", None)

    def set_search_properties(
        self,
        metric: str | list[str] | None,
        mode: str | list[str] | None,
        config: dict[str, Any],
        **spec: Any,
    ) -> bool:
        """Take what the study is given; False if it cannot be used. Called once, at the start."""
        return False

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return a config for a new trial, None if there is none now, FINISHED if never again."""
        raise NotImplementedError

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Learn from a result of a trial that goes on."""

    def on_trial_complete(
        self,
        trial_id: str,
        result: dict[str, Any] | None = None,
        error: bool = False,  # noqa: FBT001, FBT002  as in Ray
    ) -> None:
        """Learn from the last result of a trial that has ended; None if there is none."""
        raise NotImplementedError

    def on_pause(self, trial_id: str) -> None:
        """Note that a trial is paused."""

    def on_unpause(self, trial_id: str) -> None:
        """Note that a paused trial goes on."""

    def on_revive(self, trial_id: str) -> None:
        """Note that a trial that had ended, in an error mostly, is run again under its id."""

    def recall(self, trial_id: str, config: dict[str, Any]) -> None:
        """Take in that `config` was suggested before a crash, as the next suggestion.

        By default the searcher is asked again. If it says something else now, that is told once,
        and the trial keeps the config on record.
        """
        self.ask_again(trial_id, config)

    def ask_again(self, trial_id: str, config: dict[str, Any]) -> bool:
        """Ask for a suggestion that is on record; return whether it is the same."""
        again = self.suggest(trial_id)
        agrees = is_within(again, config)
        if not agrees and not getattr(self, "_has_differed", False):
            self._has_differed = True
            log.warning(
                "%s was asked again for trial %s and gave %r; on record is %r, which is kept. "
                "A searcher that depends on nothing but its arguments, its state and its calls "
                "gives the same",
                type(self).__name__,
                trial_id,
                again,
                config,
            )
        return agrees

    def add_evaluated_point(
        self,
        parameters: dict[str, Any],
        value: float,
        error: bool = False,  # noqa: FBT001, FBT002  as in Ray
        pruned: bool = False,  # noqa: FBT001, FBT002  as in Ray
        intermediate_values: list[float] | None = None,
    ) -> None:
        """Learn from a config that was tried elsewhere."""
        raise NotImplementedError(f"{type(self).__name__} cannot learn from what it did not try")

    def add_evaluated_points(
        self, parameters: Iterable[dict[str, Any]], values: Iterable[float]
    ) -> None:
        """Learn from several configs that were tried elsewhere."""
        for point, value in zip(parameters, values, strict=True):
            self.add_evaluated_point(point, value)

    def add_evaluated_trials(self, trials_or_analysis: Any, metric: str) -> None:
        """Learn from the finished trials of another study."""
        trials = getattr(trials_or_analysis, "trials", trials_or_analysis)
        for trial in trials if isinstance(trials, Iterable) else [trials]:
            value = metric_value(trial.last_result or {}, metric)
            failed = str(trial.status) == "ERROR"
            if value is not None and str(trial.status) in ("TERMINATED", "ERROR"):
                self.add_evaluated_point(trial.config, value, error=failed)

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Set how many trials run at most; False if this searcher does not care."""
        return False

    def count_trials(self, num_samples: int) -> int | None:
        """Return how many trials `num_samples` samples make, None if there is no end (-1)."""
        return None if num_samples < 0 else num_samples

    def get_state(self) -> dict[str, Any]:
        """Return all that the searcher remembers, as data for JSON."""
        return memory_of(self)

    def set_state(self, state: dict[str, Any]) -> None:
        """Remember what `get_state` returned, and nothing else."""
        remember(self, state)

    def saves_itself(self) -> bool:
        """Whether a subclass has its own `save` and `restore`."""
        kind = type(self)
        return kind.save is not Searcher.save and kind.restore is not Searcher.restore

    def save(self, checkpoint_path: str) -> None:
        """Write the state to a file, which is there as a whole or not at all."""
        path = Path(checkpoint_path)
        beside = path.with_name(f"{path.name}.tmp")
        with beside.open("w", encoding="utf-8") as file:
            json.dump(self.get_state(), file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)

    def restore(self, checkpoint_path: str) -> None:
        """Read the state from a file."""
        self.set_state(json.loads(Path(checkpoint_path).read_text(encoding="utf-8")))

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Write the state to a file in a folder."""
        self.save(str(Path(checkpoint_dir) / self.CKPT_FILE_TMPL.format(session_str)))

    def restore_from_dir(self, checkpoint_dir: str) -> None:
        """Read the state from the newest file in a folder."""
        found = [path for path in Path(checkpoint_dir).iterdir() if _STATE_FILE.match(path.name)]
        if not found:
            raise FileNotFoundError(f"no state of a searcher in {checkpoint_dir}")
        self.restore(str(max(found, key=lambda path: (path.stat().st_mtime_ns, path.name))))


def check_metric_and_mode(metric: Any, mode: Any) -> None:
    """Raise a ConfigError unless every mode is "min" or "max", and there is one for each metric."""
    several = isinstance(metric, list | tuple) or isinstance(mode, list | tuple)
    for one in mode if isinstance(mode, list | tuple) else [mode]:
        if one is not None and one not in MODES:
            raise ConfigError(f"mode={one!r}: must be 'min' or 'max'")
    if several and metric is not None and mode is not None:
        if not isinstance(metric, list | tuple) or not isinstance(mode, list | tuple):
            raise ConfigError(f"metric={metric!r}, mode={mode!r}: both must be lists, or none")
        if len(metric) != len(mode):
            raise ConfigError(
                f"metric={metric!r}, mode={mode!r}: {len(metric)} metrics, {len(mode)} modes"
            )


def metric_value(result: Mapping[str, Any], metric: str) -> float | None:
    """Return a metric of a result as a float, None if there is none; `a/b` is `b` inside `a`."""
    value = result.get(metric)
    if metric not in result and "/" in metric:
        value = flattened(result).get(metric)
    if isinstance(value, bool):
        return float(value)
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None


def is_nan(value: float | None) -> bool:
    """Whether there is no number to compare."""
    return value is None or math.isnan(value)


def is_within(suggested: Any, config: Mapping[str, Any]) -> bool:
    """Whether everything that was suggested is in a config."""
    if not isinstance(suggested, Mapping):
        return False
    flat = flattened_config(config)
    return all(
        path in flat and same(value, flat[path])
        for path, value in flattened_config(suggested).items()
    )
