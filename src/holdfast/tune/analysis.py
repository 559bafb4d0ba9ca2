"""`ExperimentAnalysis`: the results of a study, as `tune.run` returns them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.checkpoint import Checkpoint
from holdfast.core.checkpoint.retention import score_of
from holdfast.core.metric_history import flattened
from holdfast.data.libraries import library
from holdfast.errors import ConfigError
from holdfast.storage.base import Store
from holdfast.storage.foreign.arrow import absolute, path_of
from holdfast.storage.locate import open_store
from holdfast.tune.result import CONFIG, TRAINING_ITERATION, Result
from holdfast.tune.result_grid import ResultGrid, result_of
from holdfast.tune.results.best import best_checkpoint, best_trial, no_best, wanted
from holdfast.tune.results.summary import TrialSummary
from holdfast.tune.results.trial_folder import FrameAt

log = logging.getLogger(__name__)


class ExperimentAnalysis:
    """The trials of a study and their results; writes nothing and needs no user code.

    Args:
        experiment_checkpoint_path: The folder of the study, or a file in it.
        storage_filesystem: The pyarrow or fsspec filesystem of the path.
        trials: The trials; read from the folder if not given.
        default_metric: The metric of calls that name none.
        default_mode: "min" or "max", for calls that name none.
        reader: Reads the trials from the folder, if they are not given.
    """

    def __init__(
        self,
        experiment_checkpoint_path: str | os.PathLike[str],
        *,
        storage_filesystem: Any | None = None,
        trials: Sequence[TrialSummary] | None = None,
        default_metric: str | None = None,
        default_mode: str | None = None,
        reader: Callable[[Store], Sequence[TrialSummary]] | None = None,
        _interrupted: bool = False,
    ) -> None:
        self._filesystem = storage_filesystem
        self._store = _open(experiment_checkpoint_path, storage_filesystem)
        self._interrupted = _interrupted
        if trials is not None:
            self.trials = list(trials)
        elif reader is not None:
            self.trials = list(reader(self._store))
        else:
            self.trials, self._interrupted = _read(self._store)
        if trials is None and not self.trials:
            raise ConfigError(
                f"{self._store.url} holds no trials",
                hint="name the folder of the study: {storage_path}/{name}",
            )
        self.default_metric, self.default_mode = default_metric, default_mode

    @property
    def experiment_path(self) -> str:
        """The study's folder, without a scheme."""
        return path_of(self._store)

    @property
    def interrupted(self) -> bool:
        """Whether the study was stopped, such as by Ctrl+C, before it was over.

        False while another driver runs it, and if the folder holds only the files of trials.
        """
        return self._interrupted

    # ------------------------------------------------------------------ the best trial

    def get_best_trial(
        self,
        metric: str | None = None,
        mode: str | None = None,
        scope: str = "last",
        filter_nan_and_inf: bool = True,  # noqa: FBT001, FBT002
    ) -> TrialSummary | None:
        """Return the best trial, the first of equals; None, with a warning, if there is none.

        The arguments are those of `ResultGrid.get_best_result`.
        """
        metric, mode = self._metric_and_mode(metric, mode, "get_best_trial")
        best = best_trial(self.trials, metric, mode, scope, filter_nan_and_inf=filter_nan_and_inf)
        if best is None:
            log.warning("%s", no_best(self.trials, metric, scope))
        return best

    def get_best_config(
        self, metric: str | None = None, mode: str | None = None, scope: str = "last"
    ) -> dict[str, Any] | None:
        """Return the config of the best trial."""
        best = self.get_best_trial(metric, mode, scope)
        return None if best is None else best.config

    def get_best_logdir(
        self, metric: str | None = None, mode: str | None = None, scope: str = "last"
    ) -> str | None:
        """Return the folder of the best trial."""
        best = self.get_best_trial(metric, mode, scope)
        return None if best is None else self._path(best)

    def get_best_checkpoint(
        self, trial: TrialSummary | str, metric: str | None = None, mode: str | None = None
    ) -> Checkpoint | None:
        """Return the trial's best stored checkpoint; None, with a warning, if there is none.

        `trial` is a trial or its id.
        """
        metric, mode = self._metric_and_mode(metric, mode, "get_best_checkpoint")
        try:
            return best_checkpoint(self._trial(trial).checkpoints, metric, mode)
        except RuntimeError as error:
            log.warning("%s", error)
            return None

    def get_last_checkpoint(
        self,
        trial: TrialSummary | str | None = None,
        metric: str = TRAINING_ITERATION,
        mode: str = "max",
    ) -> Checkpoint | None:
        """Return the newest checkpoint of a trial; by default, of the best by `metric` and `mode`.

        Those default to the trial with the most iterations.
        """
        chosen = self.get_best_trial(metric, mode) if trial is None else self._trial(trial)
        return None if chosen is None else chosen.checkpoint

    def get_trial_checkpoints_paths(
        self, trial: TrialSummary | str, metric: str | None = None
    ) -> list[tuple[str, float | None]]:
        """Return the paths of the trial's checkpoints, each with its value of a metric."""
        metric = metric or self.default_metric or TRAINING_ITERATION
        checkpoints = self._trial(trial).checkpoints
        return [(checkpoint.path, score_of(metrics, metric)) for checkpoint, metrics in checkpoints]

    @property
    def best_trial(self) -> TrialSummary:
        """The best trial by the study's own metric."""
        best = self.get_best_trial()
        if best is None:
            metric, _ = self._metric_and_mode(None, None, "best_trial")
            raise RuntimeError(no_best(self.trials, metric, "last"))
        return best

    @property
    def best_config(self) -> dict[str, Any]:
        """The config of the best trial."""
        return self.best_trial.config

    @property
    def best_logdir(self) -> str:
        """The folder of the best trial."""
        return self._path(self.best_trial)

    @property
    def best_checkpoint(self) -> Checkpoint | None:
        """The best checkpoint of the best trial."""
        return self.get_best_checkpoint(self.best_trial)

    @property
    def best_result(self) -> dict[str, Any]:
        """The last result of the best trial."""
        return self.best_trial.last_result

    @property
    def best_dataframe(self) -> Any:
        """All results of the best trial, as a pandas DataFrame."""
        return FrameAt(self._store, self.best_trial.folder)()

    @property
    def best_result_df(self) -> Any:
        """The last result of the best trial, as a pandas DataFrame with one row."""
        best = self.best_trial
        return self._frame({best.trial_id: best.last_result})

    # ------------------------------------------------------------------ all trials

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """The last result of each trial, by its id."""
        return {trial.trial_id: trial.last_result for trial in self.trials}

    @property
    def results_df(self) -> Any:
        """The last result of each trial, as a pandas DataFrame indexed by id."""
        return self._frame(self.results)

    @property
    def trial_dataframes(self) -> dict[str, Any]:
        """All results of each trial, as pandas DataFrames by trial id; read from storage."""
        return {trial.trial_id: FrameAt(self._store, trial.folder)() for trial in self.trials}

    def fetch_trial_dataframes(self) -> dict[str, Any]:
        """Return `trial_dataframes`."""
        return self.trial_dataframes

    def dataframe(self, metric: str | None = None, mode: str | None = None) -> Any:
        """Return a pandas DataFrame with a row per trial; see `ResultGrid.get_dataframe`."""
        return self.result_grid.get_dataframe(metric, mode)

    def get_all_configs(
        self,
        prefix: bool = False,  # noqa: FBT001, FBT002
    ) -> dict[str, dict[str, Any]]:
        """Return the config of each trial, by its id; with `prefix`, keys are `config/…`."""
        configs = {trial.trial_id: trial.config for trial in self.trials}
        if not prefix:
            return configs
        return {
            name: {f"{CONFIG}/{key}": value for key, value in config.items()}
            for name, config in configs.items()
        }

    @property
    def result_grid(self) -> ResultGrid:
        """The same study as `Tuner.fit` returns it."""
        return ResultGrid.of_trials(
            self.trials,
            self._store,
            metric=self.default_metric,
            mode=self.default_mode,
            filesystem=self._filesystem,
            interrupted=self.interrupted,
        )

    def get_result(self, trial: TrialSummary | str) -> Result:
        """Return the result of a trial, given as itself or as its id."""
        return result_of(self._trial(trial), self._store, self._filesystem)

    # ------------------------------------------------------------------ pieces

    def _trial(self, trial: TrialSummary | str) -> TrialSummary:
        if not isinstance(trial, str):
            return trial
        for candidate in self.trials:
            if trial in (candidate.trial_id, candidate.folder, self._path(candidate)):
                return candidate
        raise ConfigError(f"there is no trial {trial!r} in {self._store.url}")

    def _path(self, trial: TrialSummary) -> str:
        return f"{self.experiment_path}/{trial.folder}"

    def _metric_and_mode(self, metric: str | None, mode: str | None, call: str) -> tuple[str, str]:
        if mode is None and metric is not None and metric != self.default_metric:
            mode = self.default_mode or "max"  # as in early versions of Ray
        metric, mode = metric or self.default_metric, mode or self.default_mode
        return wanted(metric, mode, call, self.trials)

    @staticmethod
    def _frame(results: Mapping[str, Mapping[str, Any]]) -> Any:
        pandas = library("pandas")
        rows = [{"trial_id": name, **flattened(result)} for name, result in results.items()]
        return pandas.DataFrame(rows).set_index("trial_id") if rows else pandas.DataFrame()


def _read(store: Store) -> tuple[list[TrialSummary], bool]:
    """Return the trials in a folder, and whether their study was interrupted."""
    from holdfast.tune.results.reader import (
        known_trials,  # what drives a study is not needed before
    )

    trials, interrupted = known_trials(store)
    return list(trials), interrupted


def _open(path: str | os.PathLike[str], filesystem: Any | None) -> Store:
    """Return the store of a study's folder, given the folder or a file in it."""
    location = os.fspath(path) if filesystem is not None else absolute(path)
    above, _, name = location.rstrip("/").rpartition("/")
    if above and name.endswith(".json"):
        folder = open_store(above, filesystem)
        if folder.stat(name) is not None:
            return folder
    return open_store(location, filesystem)


Analysis = ExperimentAnalysis  # its name in early versions of Ray
