"""The base class of everything that proposes configs; users subclass it.

A study that resumes after a crash creates the searcher with the same arguments, gives it its last
saved state, and repeats the calls made since. Configs that were suggested since are on record and
are passed to `recall`: the record wins.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from holdfast.api.recorded_call import Made
from holdfast.core.metric_history import flattened
from holdfast.core.plain_data import same
from holdfast.errors import ConfigError
from holdfast.storage.local.store import LocalStore
from holdfast.tune.search.plain import flattened_config
from holdfast.tune.search.searcher_state import memory_of, remember

log = logging.getLogger(__name__)

UNRESOLVED_SEARCH_SPACE = (
    "both param_space and the searcher have a search space; only one can be used"
)
UNDEFINED_METRIC_MODE = "the searcher needs both metric and mode, and mode is not set"
MODES = ("min", "max")

_STATE_FILE = re.compile(r"searcher-state-.*\.json")


class Searcher(Made):
    """Proposes configs, and learns from their results.

    Args:
        metric: The metric to optimize; a list for several objectives.
        mode: "min" or "max"; a list if `metric` is one.
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
        """The metric to optimize."""
        return getattr(self, "_metric", None)

    @property
    def mode(self) -> str | list[str] | None:
        """Whether the metric should be small ("min") or large ("max")."""
        return getattr(self, "_mode", None)

    def set_search_properties(
        self,
        metric: str | list[str] | None,
        mode: str | list[str] | None,
        config: dict[str, Any],
        **spec: Any,
    ) -> bool:
        """Use the study's settings; return False if that is impossible. Called once, at first."""
        return False

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return a config for a new trial, None if there is none yet, FINISHED if none is left."""
        raise NotImplementedError

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Learn from a result of a running trial."""

    def on_trial_complete(
        self,
        trial_id: str,
        result: dict[str, Any] | None = None,
        error: bool = False,  # noqa: FBT001, FBT002  as in Ray
    ) -> None:
        """Learn from the last result of a trial that has ended; None if it has no result."""
        raise NotImplementedError

    def on_pause(self, trial_id: str) -> None:
        """Called when a trial is paused."""

    def on_unpause(self, trial_id: str) -> None:
        """Called when a paused trial continues."""

    def on_revive(self, trial_id: str) -> None:
        """Called when a trial that had ended, mostly in an error, runs again under its id."""

    def recall(self, trial_id: str, config: dict[str, Any]) -> None:
        """Count `config`, which was suggested before a crash, as the next suggestion.

        By default the searcher is asked again. If its answer differs from the record, a warning is
        logged once, and the trial keeps the config on record.
        """
        self.ask_again(trial_id, config)

    def ask_again(self, trial_id: str, config: dict[str, Any]) -> bool:
        """Ask again for a suggestion that is on record; return whether the answer is the same."""
        answer = self.suggest(trial_id)
        agrees = is_within(answer, config)
        if not agrees and not getattr(self, "_has_differed", False):
            self._has_differed = True
            log.warning(
                "%s suggests %r for trial %s, which is not its recorded config %r; the record is"
                " used. A searcher must depend only on its arguments, its state and its calls",
                type(self).__name__, answer, trial_id, config,
            )  # fmt: skip
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
        raise NotImplementedError(f"{type(self).__name__} cannot learn from other trials")

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
        """Set how many trials run at most; return False if this searcher ignores it."""
        return False

    def count_trials(self, num_samples: int) -> int | None:
        """Return how many trials `num_samples` samples make, None if there is no limit (-1)."""
        return None if num_samples < 0 else num_samples

    def get_state(self) -> dict[str, Any]:
        """Return everything that the searcher remembers, as data for JSON."""
        return memory_of(self)

    def set_state(self, state: dict[str, Any]) -> None:
        """Replace everything that the searcher remembers by what `get_state` returned."""
        remember(self, state)

    def saves_itself(self) -> bool:
        """Return whether a subclass has its own `save` and `restore`."""
        kind = type(self)
        return kind.save is not Searcher.save and kind.restore is not Searcher.restore

    def save(self, checkpoint_path: str) -> None:
        """Write the state to a file, atomically and durably."""
        path = Path(checkpoint_path).absolute()
        LocalStore(str(path.parent)).put(path.name, json.dumps(self.get_state()).encode())

    def restore(self, checkpoint_path: str) -> None:
        """Read the state from a file."""
        self.set_state(json.loads(Path(checkpoint_path).read_text(encoding="utf-8")))

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Write the state to a file in a folder."""
        self.save(str(Path(checkpoint_dir) / self.CKPT_FILE_TMPL.format(session_str)))

    def restore_from_dir(self, checkpoint_dir: str) -> None:
        """Read the state from the newest file in a folder."""
        files = [path for path in Path(checkpoint_dir).iterdir() if _STATE_FILE.match(path.name)]
        if not files:
            raise FileNotFoundError(f"no state of a searcher in {checkpoint_dir}")
        self.restore(str(max(files, key=lambda path: (path.stat().st_mtime_ns, path.name))))


def check_metric_and_mode(metric: Any, mode: Any) -> None:
    """Raise a ConfigError unless every mode is "min" or "max", and there is one for each metric."""
    several = isinstance(metric, list | tuple) or isinstance(mode, list | tuple)
    for each in mode if isinstance(mode, list | tuple) else [mode]:
        if each is not None and each not in MODES:
            raise ConfigError(f"mode={each!r}: must be 'min' or 'max'")
    if several and metric is not None and mode is not None:
        if not isinstance(metric, list | tuple) or not isinstance(mode, list | tuple):
            raise ConfigError(f"metric={metric!r}, mode={mode!r}: both must be lists, or neither")
        if len(metric) != len(mode):
            raise ConfigError(
                f"metric={metric!r}, mode={mode!r}: {len(metric)} metrics, {len(mode)} modes"
            )


def metric_value(result: Mapping[str, Any], metric: str) -> float | None:
    """Return a metric, `a/b` if nested, as a float; None if it is missing or not a number."""
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
    """Return whether `value` is None or NaN."""
    return value is None or math.isnan(value)


def is_within(suggested: Any, config: Mapping[str, Any]) -> bool:
    """Return whether a config has everything that was suggested."""
    if not isinstance(suggested, Mapping):
        return False
    flat = flattened_config(config)
    return all(
        path in flat and same(value, flat[path])
        for path, value in flattened_config(suggested).items()
    )
