"""What earlier versions have left opens, is whole, and goes on to the end it would have come to."""

from __future__ import annotations

import contextlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from holdfast import train, tune
from holdfast.cli import main
from tests.compat import programs

VERSIONS = sorted(Path(__file__).parent.glob("*.tar.gz"))
STEPS = programs.STEPS


def command(*arguments: str | Path) -> tuple[int, str]:
    """Return what a command exits with and prints."""
    printed, code = io.StringIO(), 0
    with contextlib.redirect_stdout(printed):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, printed.getvalue()


@pytest.fixture(params=VERSIONS, ids=lambda path: path.name.removesuffix(".tar.gz"))
def records(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def test_there_are_records_of_two_versions() -> None:
    assert len(VERSIONS) >= 2


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("run", "interrupted"),
        ("finished", "succeeded"),
        ("halved", "interrupted"),
        ("exploiting", "interrupted"),
        ("archived", "done"),
    ],
)
def test_the_commands_read_them_and_find_nothing_damaged(
    records: Path, name: str, state: str
) -> None:
    _, shown = command("show", records / name, "--json")
    code, verified = command("verify", records / name)
    _, listed = command("ls", records, "--json")

    assert "node-a" in shown, "who held it last is known"
    assert code == 0, verified
    assert {row["name"]: row["status"] for row in json.loads(listed)["runs"]}[name] == state


def test_a_scheduler_is_shown_as_it_was_written(records: Path) -> None:
    _, shown = command("show", records / "exploiting")

    assert "hyperparam_mutations={'noise': Float(0.0, 1.0, sampler=Uniform())}" in shown
    assert "@made" not in shown


def test_a_run_that_was_cut_off_goes_on_from_its_newest_checkpoint(records: Path) -> None:
    (records / "raised").touch()

    result = programs.trainer(str(records), "run").fit()

    assert result.metrics is not None
    assert result.metrics["step"] == STEPS
    assert list(result.metrics_dataframe["step"]) == list(range(1, STEPS + 1))
    assert command("verify", records / "run")[0] == 0


def test_a_run_that_is_finished_does_nothing_and_has_its_result(records: Path) -> None:
    result = programs.trainer(str(records), "finished", keep=2).fit()

    assert result.metrics is not None
    assert result.metrics["step"] == STEPS
    assert train.Result.from_path(str(records / "finished")).metrics == result.metrics


def test_a_study_that_was_cut_off_has_the_end_it_would_have_had(records: Path) -> None:
    space = programs.halved_space()  # a function in it is not kept
    grid = tune.Tuner.restore(str(records / "halved"), programs.Walk, param_space=space).fit()

    ended = {(result.config or {})["rate"]: result for result in grid}
    assert set(ended) == {1, 2, 3, 4, 5, 6}
    assert len(grid.errors) == 1
    assert ended[5].error is not None
    best = grid.get_best_result()
    assert best.metrics is not None
    assert (best.metrics["sum"], best.metrics["training_iteration"]) == (6 * STEPS, STEPS)
    for rate, result in ended.items():
        if rate != 5:
            assert result.metrics is not None
            assert result.metrics["sum"] == rate * result.metrics["training_iteration"]
            table = result.metrics_dataframe
            assert table is not None
            count = result.metrics["training_iteration"]
            assert list(table["training_iteration"]) == list(range(1, count + 1))


def test_a_study_with_exploits_goes_on(records: Path) -> None:
    grid = tune.Tuner.restore(str(records / "exploiting"), programs.Walk).fit()

    assert not grid.errors
    for result in grid:
        assert result.metrics is not None
        assert result.metrics["training_iteration"] == STEPS
        assert (result.config or {})["rate"] == 2, "both go on with what the better one has learned"


def test_a_study_that_is_done_opens_with_all_its_trials(records: Path) -> None:
    grid = tune.Tuner.restore(str(records / "archived"), programs.Walk).fit()

    assert sorted(result.metrics["sum"] for result in grid if result.metrics) == [
        rate * STEPS for rate in range(2, 14)
    ]
    analysis = tune.ExperimentAnalysis(records / "archived")
    assert len(analysis.trials) == 12
