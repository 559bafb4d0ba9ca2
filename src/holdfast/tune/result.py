"""`Result`, the outcome of a trial, and the names of automatic metrics and of a trial's files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

from holdfast.checkpoint import Checkpoint
from holdfast.storage.foreign.arrow import filesystem_of

# ---------------------------------------------------------------------- names of metrics

TRAINING_ITERATION: Final = "training_iteration"
SHOULD_CHECKPOINT: Final = "should_checkpoint"
DONE: Final = "done"
TRIAL_ID: Final = "trial_id"
EXPERIMENT_TAG: Final = "experiment_tag"
CONFIG: Final = "config"
TIME_THIS_ITER_S: Final = "time_this_iter_s"
TIME_TOTAL_S: Final = "time_total_s"
TIMESTAMP: Final = "timestamp"
DATE: Final = "date"
PID: Final = "pid"
HOSTNAME: Final = "hostname"
NODE_IP: Final = "node_ip"
TIMESTEPS_THIS_ITER: Final = "timesteps_this_iter"
TIMESTEPS_TOTAL: Final = "timesteps_total"
EPISODES_THIS_ITER: Final = "episodes_this_iter"
EPISODES_TOTAL: Final = "episodes_total"
EPISODE_REWARD_MEAN: Final = "episode_reward_mean"
MEAN_ACCURACY: Final = "mean_accuracy"
MEAN_LOSS: Final = "mean_loss"
NEG_MEAN_LOSS: Final = "neg_mean_loss"
DEFAULT_METRIC: Final = "_metric"
DEFAULT_EXPERIMENT_NAME: Final = "default"
TIME_SINCE_RESTORE: Final = "time_since_restore"
ITERATIONS_SINCE_RESTORE: Final = "iterations_since_restore"
TIMESTEPS_SINCE_RESTORE: Final = "timesteps_since_restore"
CHECKPOINT_DIR_NAME: Final = "checkpoint_dir_name"
RESULT_DUPLICATE: Final = "__duplicate__"
TRIAL_INFO: Final = "__trial_info__"
STDOUT_FILE: Final = "__stdout_file__"
STDERR_FILE: Final = "__stderr_file__"

AUTO_RESULT_KEYS: Final = (
    TRAINING_ITERATION,
    TIME_TOTAL_S,
    EPISODES_TOTAL,
    TIMESTEPS_TOTAL,
    NODE_IP,
    HOSTNAME,
    PID,
    TIME_THIS_ITER_S,
    TIMESTAMP,
    DATE,
    TIME_SINCE_RESTORE,
    ITERATIONS_SINCE_RESTORE,
    TIMESTEPS_SINCE_RESTORE,
    TRIAL_ID,
    EXPERIMENT_TAG,
    DONE,
    CONFIG,
    CHECKPOINT_DIR_NAME,
)

# ---------------------------------------------------------------------- files of a trial

EXPR_PARAM_FILE: Final = "params.json"
EXPR_RESULT_FILE: Final = "result.json"
EXPR_PROGRESS_FILE: Final = "progress.csv"
EXPR_ERROR_FILE: Final = "error.txt"


class Result:
    """The outcome of a trial, or its state so far.

    Attributes:
        metrics: The last ones reported, None if there were none.
        checkpoint: The newest one, None if there is none; it need not be the best.
        error: Why the trial failed, None if it did not.
        path: The trial's folder, without a scheme.
        best_checkpoints: All stored checkpoints with their metrics, from worst to best.
    """

    def __init__(
        self,
        metrics: dict[str, Any] | None,
        checkpoint: Checkpoint | None,
        error: Exception | None = None,
        path: str | None = None,
        metrics_dataframe: Any | Callable[[], Any] | None = None,
        best_checkpoints: Sequence[tuple[Checkpoint, dict[str, Any]]] | None = None,
        _storage_filesystem: Any | None = None,
        *,
        config: dict[str, Any] | None = None,
        _describe: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        self.metrics, self.checkpoint, self.error, self.path = metrics, checkpoint, error, path
        self.best_checkpoints = list(best_checkpoints or ())
        self._frame, self._config = metrics_dataframe, config
        self._filesystem, self._describe = _storage_filesystem, _describe

    @classmethod
    def from_path(
        cls, path: str | os.PathLike[str], storage_filesystem: Any | None = None
    ) -> Result:
        """Return the result of the trial in a folder, without its code; nothing is written.

        It is read from the trial's own files. Raises `RuntimeError` if `path` is not the folder of
        a trial; the message names the right folder where it can be found.
        """
        from holdfast.tune.results.trial_folder import result_at

        return result_at(path, storage_filesystem)

    @property
    def config(self) -> dict[str, Any] | None:
        """The config of the trial, None if it is not known."""
        if self._config is not None:
            return self._config
        config = (self.metrics or {}).get(CONFIG)
        return config if isinstance(config, dict) else None

    @property
    def filesystem(self) -> Any:
        """The filesystem of `path`: the one given, or else pyarrow's."""
        if self._filesystem is not None or self._describe is None:
            return self._filesystem
        return filesystem_of(self._describe())

    @property
    def metrics_dataframe(self) -> Any:
        """All reported metrics, as a pandas DataFrame with a row per result; None if unknown.

        Every `training_iteration` occurs once, however often the trial was interrupted. A nested
        `b` inside `a` is in the column `a/b`. It is read from storage on first use.
        """
        if callable(self._frame):
            self._frame = self._frame()
        return self._frame

    def get_best_checkpoint(self, metric: str, mode: Literal["min", "max"]) -> Checkpoint:
        """Return the stored checkpoint with the highest or lowest `metric`, the later of equals.

        A nested metric is `a/b`. Raises `RuntimeError`, which lists the reported metrics, if no
        checkpoint has a number for it.
        """
        from holdfast.tune.results.best import best_checkpoint

        return best_checkpoint(self.best_checkpoints, metric, mode)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Result):
            return NotImplemented
        return self._compared() == other._compared()

    __hash__ = None  # type: ignore[assignment]  # it holds dictionaries

    def _compared(self) -> tuple[object, ...]:
        return self.metrics, repr(self.checkpoint), repr(self.error), self.path

    def __repr__(self) -> str:
        shown = {
            name: value
            for name, value in (self.metrics or {}).items()
            if name not in AUTO_RESULT_KEYS or name == TRAINING_ITERATION
        }
        lines = [f"metrics={shown if self.metrics is not None else None}"]
        lines += [f"error={self.error!r}"] if self.error is not None else []
        lines += [f"path={self.path!r}", f"checkpoint={self.checkpoint!r}"]
        return "Result(\n  " + ",\n  ".join(lines) + "\n)"
