"""`ResultGrid`: the results of all trials of a study."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from holdfast.core.checkpoint.retention import score_of
from holdfast.core.metric_history import flattened
from holdfast.core.names import shown
from holdfast.core.study.trial import Status
from holdfast.data.libraries import library
from holdfast.errors import ConfigError
from holdfast.storage.base import Store
from holdfast.storage.foreign.arrow import filesystem_of, path_of
from holdfast.storage.locate import child, describe
from holdfast.tune.result import CONFIG, TRIAL_ID, Result
from holdfast.tune.results.best import best_trial, checked_mode, checked_scope, no_best, wanted
from holdfast.tune.results.summary import TrialSummary, error_of
from holdfast.tune.results.trial_folder import FrameAt, read_rows

if TYPE_CHECKING:
    from holdfast.tune.analysis import ExperimentAnalysis

_SHOWN_MAX = 10


class ResultGrid:
    """The results of all trials of a study, whatever their status, in order of creation.

    Files are read only when something is asked for that is only there.

    Args:
        experiment_analysis: What `tune.run` returned, or `ExperimentAnalysis(path)`.
    """

    _trials: Sequence[TrialSummary]
    _store: Store
    _metric: str | None
    _mode: str | None
    _filesystem: Any | None
    _interrupted: bool

    def __init__(self, experiment_analysis: ExperimentAnalysis) -> None:
        grid = getattr(experiment_analysis, "result_grid", None)
        if not isinstance(grid, ResultGrid):
            raise TypeError(
                f"ResultGrid({shown(experiment_analysis)}): must be given an ExperimentAnalysis;"
                " tune.ExperimentAnalysis(path) opens the folder of a study"
            )
        vars(self).update(vars(grid))

    @classmethod
    def of_trials(
        cls,
        trials: Sequence[TrialSummary],
        store: Store,
        *,
        metric: str | None = None,
        mode: str | None = None,
        filesystem: Any | None = None,
        interrupted: bool = False,
    ) -> Self:
        """Return the results of trials whose study is in `store`."""
        grid = cls.__new__(cls)
        vars(grid).update(
            _trials=trials,
            _store=store,
            _metric=metric,
            _mode=mode,
            _filesystem=filesystem,
            _interrupted=interrupted,
        )
        return grid

    @property
    def experiment_path(self) -> str:
        """The study's folder, without a scheme."""
        return path_of(self._store)

    @property
    def filesystem(self) -> Any:
        """The filesystem of `experiment_path`: the one given, or else pyarrow's."""
        if self._filesystem is not None:
            return self._filesystem
        return filesystem_of(describe(self._store))

    @property
    def trials(self) -> Sequence[TrialSummary]:
        """The trials as the study stored them."""
        return self._trials

    @property
    def interrupted(self) -> bool:
        """Whether the study was stopped, such as by Ctrl+C, before it was over.

        Then these results are not all, and `Tuner.restore` resumes it. False while another driver
        runs it.
        """
        return self._interrupted

    def __len__(self) -> int:
        return len(self._trials)

    def __getitem__(self, i: int) -> Result:
        if not isinstance(i, int):
            raise TypeError(f"results are numbered from 0; {i!r} is not a whole number")
        return result_of(self._trials[i], self._store, self._filesystem)

    def __iter__(self) -> Iterator[Result]:
        return (result_of(trial, self._store, self._filesystem) for trial in self._trials)

    # ------------------------------------------------------------------ errors

    @property
    def errors(self) -> list[Exception]:
        """The errors of the trials that failed, one for each."""
        failed = (trial for trial in self._trials if trial.status is Status.ERROR)
        return [error for trial in failed if (error := error_of(trial)) is not None]

    @property
    def num_errors(self) -> int:
        """How many trials have failed."""
        return sum(trial.status is Status.ERROR for trial in self._trials)

    @property
    def num_terminated(self) -> int:
        """How many trials finished or were stopped."""
        return sum(trial.status is Status.TERMINATED for trial in self._trials)

    # ------------------------------------------------------------------ choosing

    def get_best_result(
        self,
        metric: str | None = None,
        mode: str | None = None,
        scope: str = "last",
        filter_nan_and_inf: bool = True,  # noqa: FBT001, FBT002
    ) -> Result:
        """Return the result of the best trial, the first of equals.

        Args:
            metric: The metric to compare, `a/b` if nested; by default the study's, or the number
                that the trainable returned if the study has none.
            mode: "min" or "max"; by default the study's.
            scope: Which value of a trial counts: its "last", the best of "all", their average
                "avg", or the average of the last ones, "last-5-avg" and "last-10-avg".
            filter_nan_and_inf: Whether trials whose value is not finite are skipped.

        Raises `RuntimeError`, which lists the reported metrics, if no trial can be compared. A
        study of one trial needs neither metric nor mode.
        """
        checked_scope(scope)
        if len(self._trials) == 1:
            return self[0]
        if not self._trials:
            raise RuntimeError("there is no best result: the study has no trials")
        metric, mode = wanted(
            metric if metric is not None else self._metric,
            mode if mode is not None else self._mode,
            "get_best_result",
            self._trials,
        )
        best = best_trial(self._trials, metric, mode, scope, filter_nan_and_inf=filter_nan_and_inf)
        if best is None:
            raise RuntimeError(no_best(self._trials, metric, scope))
        return result_of(best, self._store, self._filesystem)

    def get_dataframe(
        self, filter_metric: str | None = None, filter_mode: str | None = None
    ) -> Any:
        """Return a pandas DataFrame with a row for each trial that has reported anything.

        The row is the trial's last result or, given a metric and a mode, the result with the
        highest or lowest value. The study's own metric and mode are not used: a metric alone gives
        last results, a mode alone is a `ConfigError`. The config is in columns `config/…`, the
        trial's folder in `logdir`.
        """
        _must_be_filter(filter_metric, filter_mode)
        rows = []
        for trial in self._trials:
            row = trial.last_result
            if filter_metric is not None and filter_mode is not None:
                row = _extreme_row(self._store, trial, filter_metric, filter_mode)
            if row:
                rows.append(_flat_row(trial, row, f"{self.experiment_path}/{trial.folder}"))
        return library("pandas").DataFrame(rows)

    def __repr__(self) -> str:
        shown = [repr(self[i]) for i in range(min(len(self), _SHOWN_MAX))]
        if len(self) > _SHOWN_MAX:
            shown.append(f"… and {len(self) - _SHOWN_MAX} more")
        results = ",\n".join(shown).replace("\n", "\n  ")
        return f"ResultGrid<[\n  {results}\n]>"


def result_of(trial: TrialSummary, store: Store, filesystem: Any | None = None) -> Result:
    """Return the result of a trial; its rows are read on first use."""
    frame = FrameAt(store, trial.folder)
    return Result(
        metrics=dict(trial.last_result) if trial.last_result else None,
        checkpoint=trial.checkpoint,
        error=error_of(trial),
        path=path_of(child(store, trial.folder)),
        metrics_dataframe=frame,
        best_checkpoints=trial.checkpoints,
        _storage_filesystem=filesystem,
        config=trial.config,
        _describe=frame.described,
    )


def _must_be_filter(metric: str | None, mode: str | None) -> None:
    """Raise unless the mode is valid and comes with a metric."""
    if mode is None:
        return
    checked_mode(mode)
    if metric is None:
        raise ConfigError(
            f"mode={mode!r} without a metric: which metric to compare is not known",
            hint=f"name the metric too: metric='loss', mode={mode!r}",
        )


def _flat_row(trial: TrialSummary, row: dict[str, Any], path: str) -> dict[str, Any]:
    metrics = {name: value for name, value in row.items() if name != CONFIG}
    config = trial.config or row.get(CONFIG) or {}
    return {
        TRIAL_ID: trial.trial_id,
        **flattened(metrics),
        **flattened({CONFIG: config}),
        "logdir": path,
    }


def _extreme_row(store: Store, trial: TrialSummary, metric: str, mode: str) -> dict[str, Any]:
    """Return the trial's first result with the highest or lowest value of a metric."""
    rows = read_rows(child(store, trial.folder)) or []
    sign = 1.0 if mode == "max" else -1.0
    best: dict[str, Any] = {}
    best_score: float | None = None
    for row in rows:
        value = score_of(row, metric)
        if value is None or value != value:  # NaN
            continue
        if best_score is None or sign * value > best_score:
            best, best_score = row, sign * value
    return best
