"""`ResultGrid`, `Result` and `ExperimentAnalysis`: what a study has come to."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.fs
import pytest

from holdfast.checkpoint import Checkpoint
from holdfast.core.study.trial import Status
from holdfast.errors import ConfigError
from holdfast.storage.base import Blob
from holdfast.storage.locate import open_store
from holdfast.storage.memory import MemoryStore
from holdfast.tune.analysis import ExperimentAnalysis
from holdfast.tune.callback import CallbackList
from holdfast.tune.errors import TuneError
from holdfast.tune.logger import with_default_loggers
from holdfast.tune.result import SHOULD_CHECKPOINT, TRAINING_ITERATION, Result
from holdfast.tune.result_grid import ResultGrid
from holdfast.tune.results.summary import StoredTrial
from holdfast.tune.results.trial_folder import statistics_of, stored_trials
from tests.unit.tune.logger.logging_files import a_trial, result


def summary(number: int, losses: Sequence[float], **more: Any) -> StoredTrial:
    rows = [result(step, loss, eval={"acc": -loss}) for step, loss in enumerate(losses, 1)]
    return StoredTrial(
        f"t{number:03d}",
        folder=f"train_{number:05d}",
        config={"lr": number / 10, "net": {"depth": number}},
        last_result=rows[-1] if rows else {},
        statistics=statistics_of(rows),
        **more,
    )


def grid(*trials: StoredTrial, **more: Any) -> ResultGrid:
    return ResultGrid.of_trials(list(trials), MemoryStore(), **more)


def write_study(folder: Path, losses: dict[int, list[float]]) -> None:
    """Write the files of a study's trials, as its loggers do."""
    loggers = CallbackList(with_default_loggers([]))
    loggers.attach(open_store(folder))
    for number, values in losses.items():
        trial = a_trial(number, config={"lr": number / 10})
        loggers.on_trial_start(iteration=0, trials=[], trial=trial)
        for step, loss in enumerate(values, 1):
            row = result(step, loss, eval={"acc": -loss}, trial_id=trial.trial_id)
            row["checkpoint_dir_name"] = f"checkpoint_{step - 1:06d}"
            loggers.on_trial_result(iteration=0, trials=[], trial=trial, result=row)
            saved = folder / trial.folder / f"checkpoint_{step - 1:06d}"
            saved.mkdir(parents=True)
            (saved / "model.pt").write_text(f"{number} {step}")
    loggers.on_experiment_end(trials=[])


# ---------------------------------------------------------------------- the best


SCOPES = [
    ("last", "max", 1),
    ("last", "min", 0),
    ("all", "max", 2),
    ("all", "min", 1),
    ("avg", "max", 2),
    ("avg", "min", 0),
    ("last-5-avg", "max", 1),
    ("last-10-avg", "min", 0),
]


@pytest.mark.parametrize(("scope", "mode", "expected"), SCOPES)
def test_the_best_trial_is_chosen_by_the_values_in_scope(
    scope: str, mode: str, expected: int
) -> None:
    trials = [
        summary(0, [3.0, 2.0, 1.0]),
        summary(1, [-5.0, *[5.0] * 5]),
        summary(2, [100.0, *[4.0] * 6]),
    ]
    if scope == "last-10-avg":
        trials[1] = summary(1, [5.0] * 12)

    best = grid(*trials).get_best_result("loss", mode, scope)

    assert best.config == trials[expected].config


def test_of_equals_the_first_is_best() -> None:
    results = grid(summary(0, [2.0]), summary(1, [1.0]), summary(2, [1.0]))

    assert results.get_best_result("loss", "min").metrics == results[1].metrics
    assert results.get_best_result("loss", "min").path == results[1].path


def test_nested_metrics_and_those_of_the_study_are_understood() -> None:
    results = grid(summary(0, [2.0]), summary(1, [1.0]), metric="eval/acc", mode="max")

    assert results.get_best_result().config == {"lr": 0.1, "net": {"depth": 1}}
    assert results.get_best_result(mode="min").config == {"lr": 0.0, "net": {"depth": 0}}


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_passed_over_unless_wanted(odd: float) -> None:
    results = grid(summary(0, [odd]), summary(1, [1.0]), summary(2, [2.0]))

    assert results.get_best_result("loss", "max").config == {"lr": 0.2, "net": {"depth": 2}}
    both = {
        results.get_best_result("loss", mode, filter_nan_and_inf=False).config["lr"]  # type: ignore[index]
        for mode in ("min", "max")
    }
    assert both == ({0.1, 0.2} if math.isnan(odd) else {0.0, 0.1 if odd > 0 else 0.2})


def test_a_single_trial_needs_neither_metric_nor_mode() -> None:
    assert grid(summary(0, [])).get_best_result().metrics is None


def test_a_metric_that_nobody_reported_is_told_with_what_was() -> None:
    results = grid(summary(0, [1.0]), summary(1, [1.0]))

    with pytest.raises(RuntimeError, match=r"none has reported 'acc'.*eval/acc, loss, timest"):
        results.get_best_result("acc", "max")
    with pytest.raises(RuntimeError, match="no trials"):
        grid().get_best_result("acc", "max")
    nans = grid(summary(0, [math.nan]), summary(1, [math.nan]))
    with pytest.raises(RuntimeError, match="filter_nan_and_inf"):
        nans.get_best_result("loss", "max")


def test_arguments_that_cannot_be_meant_are_refused_with_a_hint() -> None:
    results = grid(summary(0, [1.0]), summary(1, [2.0]))

    with pytest.raises(ConfigError, match="mode='max'"):
        results.get_best_result("loss", "maximum")
    with pytest.raises(ConfigError, match="metric and mode is not known"):
        results.get_best_result()
    with pytest.raises(ConfigError, match="last-5-avg"):
        results.get_best_result("loss", "min", "last-5")


# ---------------------------------------------------------------------- the grid


def test_all_trials_are_there_whatever_their_status() -> None:
    trials = [
        summary(0, [1.0]),
        summary(1, [], status=Status.ERROR, error="Traceback…\nValueError: lr is negative"),
        summary(2, [3.0], status=Status.ERROR, error=OSError("disk")),
        summary(3, [], status=Status.PENDING),
    ]
    results = grid(*trials)

    assert len(results) == 4
    assert (results.num_errors, results.num_terminated) == (2, 1)
    first, second = results.errors
    assert isinstance(first, TuneError) and "lr is negative" in str(first)
    assert isinstance(second, OSError)
    assert [result.error is None for result in results] == [True, False, False, True]
    assert results[3].metrics is None and results[-1].config == trials[3].config
    with pytest.raises(IndexError):
        results[4]
    with pytest.raises(TypeError, match="numbered"):
        results["t001"]  # type: ignore[index]


def test_the_table_has_a_row_for_each_trial_and_its_config_in_columns() -> None:
    frame = grid(summary(0, [2.0, 1.0]), summary(1, []), summary(2, [3.0])).get_dataframe()

    assert list(frame["loss"]) == [1.0, 3.0]
    assert list(frame["trial_id"]) == ["t000", "t002"]
    assert list(frame["config/lr"]) == [0.0, 0.2]
    assert list(frame["config/net/depth"]) == [0, 2]
    assert list(frame["eval/acc"]) == [-1.0, -3.0]
    assert frame["logdir"][1].endswith("/train_00002")


def test_the_table_can_have_each_trials_best_row(tmp_path: Path) -> None:
    write_study(tmp_path, {0: [3.0, 1.0, 2.0], 1: [5.0, math.nan, 6.0]})
    results = ResultGrid.of_trials(stored_trials(open_store(tmp_path)), open_store(tmp_path))

    lowest = results.get_dataframe(filter_metric="loss", filter_mode="min")

    assert list(lowest["training_iteration"]) == [2, 1]
    assert list(results.get_dataframe()["training_iteration"]) == [3, 3]


@pytest.mark.parametrize("default", [None, "min"])
def test_the_table_takes_no_mode_from_the_study(tmp_path: Path, default: str | None) -> None:
    write_study(tmp_path, {0: [3.0, 1.0, 2.0]})
    metric = None if default is None else "loss"
    analysis = ExperimentAnalysis(tmp_path, default_metric=metric, default_mode=default)

    for table in (analysis.dataframe, analysis.result_grid.get_dataframe):
        assert list(table("loss")["loss"]) == [2.0]
        assert list(table("loss", "max")["loss"]) == [3.0]
        with pytest.raises(ValueError, match="mode='max' without a metric"):
            table(None, "max")
        with pytest.raises(ValueError, match="must be 'min' or 'max'"):
            table("loss", "highest")


def test_a_grid_of_very_many_trials_reads_nothing_until_it_is_asked() -> None:
    class Untouched(MemoryStore):
        def get(self, key: str) -> Blob:
            raise AssertionError(f"{key} was read")

        def stat(self, key: str) -> Any:
            raise AssertionError(f"{key} was looked at")

    trials = [summary(number, [float(number)]) for number in range(10_000)]
    results = ResultGrid.of_trials(trials, Untouched(), metric="loss", mode="max")

    assert results.get_best_result().config == trials[-1].config
    assert len(results.get_dataframe()) == 10_000
    assert sum(result.error is None for result in results) == 10_000
    assert "9990 more" in repr(results)
    with pytest.raises(AssertionError, match="was read"):
        _ = results[0].metrics_dataframe


# ---------------------------------------------------------------------- one result


def test_a_result_has_its_rows_each_once_when_it_is_asked(tmp_path: Path) -> None:
    write_study(tmp_path, {0: [3.0, 1.0]})
    with open(tmp_path / "train_00000" / "result.json", "a") as file:  # what a crash leaves
        file.write(json.dumps(result(2, 9.0)) + "\n" + '{"training_iter')
    outcome = ResultGrid.of_trials(stored_trials(open_store(tmp_path)), open_store(tmp_path))[0]

    frame = outcome.metrics_dataframe

    assert list(frame["training_iteration"]) == [1, 2]
    assert list(frame["loss"]) == [3.0, 9.0]
    assert outcome.metrics_dataframe is frame
    assert isinstance(outcome.filesystem, pyarrow.fs.LocalFileSystem)
    assert outcome.path == str(tmp_path / "train_00000")


def test_a_result_survives_being_sent_elsewhere(tmp_path: Path) -> None:
    write_study(tmp_path, {0: [3.0, 1.0]})
    outcome = ResultGrid.of_trials(stored_trials(open_store(tmp_path)), open_store(tmp_path))[0]

    again = pickle.loads(pickle.dumps(outcome))

    assert again == outcome
    assert again.metrics_dataframe.equals(outcome.metrics_dataframe)


def test_a_result_opens_from_the_folder_of_its_trial_alone(tmp_path: Path) -> None:
    write_study(tmp_path, {3: [3.0, 1.0, 2.0]})

    outcome = Result.from_path(tmp_path / "train_00003")

    assert outcome.metrics is not None and outcome.metrics["loss"] == 2.0
    assert outcome.config == {"lr": 0.3}
    assert [metrics["loss"] for _, metrics in outcome.best_checkpoints] == [3.0, 1.0, 2.0]
    assert outcome.checkpoint is not None and outcome.checkpoint.path.endswith("checkpoint_000002")
    best = outcome.get_best_checkpoint("loss", "min")
    assert (Path(best.path) / "model.pt").read_text() == "3 2"
    assert outcome.error is None
    assert len(outcome.metrics_dataframe) == 3
    assert outcome.metrics_dataframe["config/lr"][0] == 0.3


@pytest.mark.parametrize("left", ["result.json", "progress.csv"])
def test_either_file_is_enough_to_open_a_result(tmp_path: Path, left: str) -> None:
    write_study(tmp_path, {0: [3.0, 1.0]})
    for name in {"result.json", "progress.csv"} - {left}:
        (tmp_path / "train_00000" / name).unlink()

    outcome = Result.from_path(str(tmp_path / "train_00000"))

    assert outcome.metrics is not None
    assert (outcome.metrics["loss"], outcome.metrics["training_iteration"]) == (1.0, 2)
    assert isinstance(outcome.metrics_dataframe, pd.DataFrame)


def test_the_error_of_a_trial_is_read_unless_it_went_on_to_its_end(tmp_path: Path) -> None:
    write_study(tmp_path, {0: [3.0]})
    folder = tmp_path / "train_00000"
    (folder / "error.txt").write_text("Failure # 1\nValueError: lr\n")
    assert "ValueError: lr" in str(Result.from_path(folder).error)

    with open(folder / "result.json", "a") as file:
        file.write(json.dumps({**result(2), "done": True}) + "\n")
    assert Result.from_path(folder).error is None


def test_a_folder_of_the_wrong_level_says_which_is_right(tmp_path: Path) -> None:
    write_study(tmp_path / "study", {0: [3.0], 1: [2.0]})

    with pytest.raises(RuntimeError, match="the folder of a study, with the trials 'train_00000'"):
        Result.from_path(tmp_path / "study")
    with pytest.raises(RuntimeError, match=r"is part of the trial in .*train_00001"):
        Result.from_path(tmp_path / "study" / "train_00001" / "checkpoint_000000")
    with pytest.raises(RuntimeError, match="there is nothing there"):
        Result.from_path(tmp_path / "elsewhere")


def test_the_best_checkpoint_is_the_last_of_equals_or_says_what_there_is() -> None:
    checkpoints = [
        (Checkpoint(f"/c/{n}"), {"loss": loss}) for n, loss in enumerate((1.0, 2.0, 1.0))
    ]
    outcome = Result({"loss": 1.0}, checkpoints[-1][0], best_checkpoints=checkpoints)

    assert outcome.get_best_checkpoint("loss", "min") is checkpoints[2][0]
    assert outcome.get_best_checkpoint("loss", "max") is checkpoints[1][0]
    with pytest.raises(RuntimeError, match="reported were: loss"):
        outcome.get_best_checkpoint("acc", "max")
    with pytest.raises(RuntimeError, match="no checkpoint"):
        Result(None, None).get_best_checkpoint("acc", "max")


def test_a_result_shows_what_matters() -> None:
    outcome = Result({"loss": 1.0, "pid": 3, "training_iteration": 2}, None, path="/a/b")

    assert repr(outcome) == (
        "Result(\n  metrics={'loss': 1.0, 'training_iteration': 2},\n  path='/a/b',\n"
        "  checkpoint=None\n)"
    )
    assert (outcome.config, outcome.filesystem, outcome.metrics_dataframe) == (None, None, None)
    assert Result({"config": {"a": 1}}, None).config == {"a": 1}


@pytest.mark.req("U-055")
def test_the_names_of_special_metrics_are_as_users_know_them() -> None:
    assert (SHOULD_CHECKPOINT, TRAINING_ITERATION) == ("should_checkpoint", "training_iteration")


# ---------------------------------------------------------------------- analysis


@pytest.fixture
def analysis(tmp_path: Path) -> ExperimentAnalysis:
    write_study(tmp_path, {0: [3.0, 1.0], 1: [2.0, 0.5, 4.0], 2: [9.0]})
    return ExperimentAnalysis(tmp_path, default_metric="loss", default_mode="min")


def test_an_analysis_knows_the_best_of_a_study_from_its_folder(
    analysis: ExperimentAnalysis, tmp_path: Path
) -> None:
    assert analysis.best_trial.trial_id == "t000"
    assert analysis.best_config == {"lr": 0.0}
    assert analysis.best_logdir == f"{tmp_path}/train_00000"
    assert analysis.best_result["loss"] == 1.0
    assert list(analysis.best_dataframe["loss"]) == [3.0, 1.0]
    assert analysis.best_result_df["loss"]["t000"] == 1.0
    checkpoint = analysis.best_checkpoint
    assert checkpoint is not None and checkpoint.path.endswith("train_00000/checkpoint_000001")
    assert analysis.get_best_config(scope="all") == {"lr": 0.1}
    assert analysis.get_best_config("loss", "max") == {"lr": 0.2}
    assert analysis.get_best_logdir("eval/acc", "max") == f"{tmp_path}/train_00000"


def test_an_analysis_has_every_trial(analysis: ExperimentAnalysis) -> None:
    assert set(analysis.results) == {"t000", "t001", "t002"} == set(analysis.results_df.index)
    assert {name: len(frame) for name, frame in analysis.trial_dataframes.items()} == {
        "t000": 2,
        "t001": 3,
        "t002": 1,
    }
    assert list(analysis.dataframe()["loss"]) == [1.0, 4.0, 9.0]
    assert list(analysis.dataframe("loss", "min")["loss"]) == [1.0, 0.5, 9.0]
    assert analysis.get_all_configs()["t001"] == {"lr": 0.1}
    assert analysis.get_all_configs(prefix=True)["t001"] == {"config/lr": 0.1}
    assert len(analysis.result_grid) == 3
    assert analysis.get_result("t002").config == {"lr": 0.2}


def test_an_analysis_finds_checkpoints_of_a_trial_or_of_the_one_furthest_on(
    analysis: ExperimentAnalysis, caplog: pytest.LogCaptureFixture
) -> None:
    last = analysis.get_last_checkpoint()
    assert last is not None and last.path.endswith("train_00001/checkpoint_000002")
    best = analysis.get_best_checkpoint("t001")
    assert best is not None and best.path.endswith("train_00001/checkpoint_000001")
    paths = analysis.get_trial_checkpoints_paths("t001", "loss")
    assert [value for _, value in paths] == [2.0, 0.5, 4.0]
    assert analysis.get_best_checkpoint("t001", "accuracy", "max") is None
    assert analysis.get_best_trial("accuracy", "max") is None
    assert "reported were" in caplog.text
    with pytest.raises(ConfigError, match="no trial 'zzz'"):
        analysis.get_last_checkpoint("zzz")


def test_a_folder_without_trials_is_no_study(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no trials"):
        ExperimentAnalysis(tmp_path)


def test_a_study_opens_from_where_it_was_copied_to(tmp_path: Path) -> None:
    write_study(tmp_path / "a", {0: [3.0]})
    (tmp_path / "a").rename(tmp_path / "b")

    (trial,) = ExperimentAnalysis(str(tmp_path / "b")).trials

    assert trial.checkpoint is not None
    assert trial.checkpoint.path.startswith(str(tmp_path / "b"))
