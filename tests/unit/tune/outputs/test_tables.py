"""Tables of trials: data in, text out."""

from __future__ import annotations

import math

import pytest

from holdfast.core.checkpoint.record import Kept
from holdfast.core.config_data import Mark
from holdfast.core.run.machine import Run
from holdfast.core.run.outcomes import Blame
from holdfast.core.study.trial import Status
from holdfast.tune.outputs import lines
from holdfast.tune.outputs.tables import (
    Best,
    Layout,
    Progress,
    as_html,
    as_text,
    best_line,
    best_of,
    cell,
    error_line,
    error_table,
    fair_shares,
    header_lines,
    shortened,
    trial_table,
)
from tests.unit.tune.outputs.shown_trials import several, trial


def test_a_row_says_what_people_look_for() -> None:
    saved = Kept(number=0, directory="c", epoch=1, attempt=1, step=1, metrics={}, created=1000.0)
    shown = trial(3, run=Run(attempts=5, losses={Blame.CODE: 1}, lost_before={Blame.PROCESS: 1}))
    shown.checkpoints.kept[0] = saved

    table = trial_table(Progress(trials=[shown], now=1090.0))

    assert dict(zip(table.titles, table.rows[0], strict=True)) == {
        "trial": "trainable_t003",
        "status": "RUNNING",
        "loc": "10.0.0.7:103",
        "lr": "0.3",
        "depth": "3",
        "iter": "4",
        "total time (s)": "1.5",
        "loss": "0.25",
        "checkpoint": "1 min 30 s ago",
        "failures": "2",
    }


def test_columns_that_would_be_empty_are_left_out() -> None:
    fresh = trial(0, Status.PENDING, last_result={}, evaluated_params={})

    assert trial_table(Progress(trials=[fresh])).titles == ("trial", "status")
    assert trial_table(Progress(trials=[])) == trial_table(Progress(trials=[]))
    assert as_text(trial_table(Progress(trials=[]))) == ""


def test_parameters_that_end_alike_are_told_apart() -> None:
    shown = trial(0, evaluated_params={"a/lr": 1, "b/lr": 2, "c/size": 3})

    assert {"a/lr", "b/lr", "size"} <= set(trial_table(Progress(trials=[shown])).titles)


def test_objects_among_the_parameters_are_shown_by_their_kind() -> None:
    reference, option = Mark(("data",), "ObjectRef"), Mark(("model", (1,)), "Model")
    shown = trial(0, evaluated_params={"data": reference, "model": option, "at": (1,)})

    [row] = trial_table(Progress(trials=[shown])).rows
    line = lines.started(shown)

    assert {"ObjectRef", "Model_1", "(1,)"} <= set(row)
    assert line == "trainable_t000 started with data=ObjectRef, model=Model_1, at=(1,)"
    best = best_of([shown], "loss", "min")
    assert best is not None and "data=ObjectRef" in best_line(best)


def test_columns_are_those_asked_for_under_their_titles() -> None:
    layout = Layout(parameters=["fixed"], metrics={"loss": "L", "missing": "M"})

    table = trial_table(Progress(trials=[trial(0)]), layout)

    assert table.titles == ("trial", "status", "loc", "fixed", "L")


def test_every_status_gets_its_fair_share_of_the_rows() -> None:
    trials = several(RUNNING=3, PENDING=50, TERMINATED=50, ERROR=1)

    table = trial_table(Progress(trials=trials), Layout(rows_max=12))

    shown = [row[1] for row in table.rows]
    assert len(shown) == 12
    assert (shown.count("RUNNING"), shown.count("ERROR")) == (3, 1)
    assert abs(shown.count("PENDING") - shown.count("TERMINATED")) <= 1
    assert table.note == "… 92 more trials not shown (46 PENDING, 46 TERMINATED)"


def test_trials_that_have_left_memory_are_counted() -> None:
    progress = Progress(trials=several(RUNNING=2), counts={"RUNNING": 2, "TERMINATED": 9000})

    assert "9000 TERMINATED" in trial_table(progress).note
    assert "9000 of 9002 so far done (2 RUNNING, 9000 TERMINATED)" in header_lines(progress)[0]


@pytest.mark.parametrize(
    ("sizes", "room", "shares"),
    [
        ({"a": 5, "b": 5}, 4, {"a": 2, "b": 2}),
        ({"a": 1, "b": 9}, 6, {"a": 1, "b": 5}),
        ({"a": 1, "b": 9}, 100, {"a": 1, "b": 9}),
        ({"a": 3, "b": 3, "c": 3}, 2, {"a": 1, "b": 1, "c": 0}),
        ({}, 5, {}),
        ({"a": 3}, 0, {"a": 0}),
    ],
    ids=range(6),
)
def test_room_is_shared_equally_and_none_is_left(
    sizes: dict[str, int], room: int, shares: dict[str, int]
) -> None:
    assert fair_shares(sizes, room) == shares


def test_the_best_rows_come_first_if_wanted_and_nan_last() -> None:
    trials = [trial(n, last_result={"loss": loss}) for n, loss in enumerate((2, math.nan, 1, 3))]

    table = trial_table(Progress(trials=trials), Layout(sort_by="loss", mode="min"))

    assert [row[-1] for row in table.rows] == ["1", "2", "3", "nan"]


def test_the_header_counts_and_names_the_best() -> None:
    progress = Progress(
        trials=several(RUNNING=2, TERMINATED=1), total=8, elapsed_s=3725, resources="2 of 4 CPUs"
    )

    assert header_lines(progress, "loss", "min") == [
        "Trials: 1 of 8 done (2 RUNNING, 1 TERMINATED), running for 1 h 2 min",
        "2 of 4 CPUs",
        "Best so far: trainable_t002, loss=0.33333 with lr=0.2, net/depth=2",
    ]
    progress = Progress(trials=[], best=Best("gone", "loss", 0.1))
    assert header_lines(progress, "loss", "min")[-1] == "Best so far: gone, loss=0.1"


def test_failures_are_one_line_each_and_counted() -> None:
    bad = [trial(n, Status.ERROR, error=f"Traceback\n  …\nValueError: {n}") for n in range(5)]

    table = error_table([*bad, trial(9)], rows_max=3)

    assert [row[2] for row in table.rows] == ["ValueError: 0", "ValueError: 1", "ValueError: 2"]
    assert table.note == "… 2 more trials have failed"
    note = error_table(bad[:2], count=7).note  # of most, only the number is still known
    assert note == "… 5 more trials have failed"


def test_a_table_is_aligned_as_text_and_escaped_as_html() -> None:
    table = trial_table(
        Progress(trials=[trial(0, evaluated_params={"x": "<b>"}), trial(1)]),
        Layout(metrics=["loss"]),
    )
    lines = as_text(table).splitlines()

    assert lines[0].index("status") == lines[2].index("RUNNING") == lines[3].index("RUNNING")
    assert "<td>&lt;b&gt;</td>" in as_html(table) and "<b>" not in as_html(table)


def test_values_are_short_and_still_tell_themselves_apart() -> None:
    assert [cell(v) for v in (None, 1, 2.0, 0.123456789, 1e-9, math.nan, True, "a\nb")] == [
        "", "1", "2", "0.12346", "1e-09", "nan", "True", "a b",
    ]  # fmt: skip
    assert shortened("abcdefghij", 5) == "ab…ij" and len(shortened("x" * 99, 20)) == 20


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("rank 0 raised AssertionError: assert [0] == [1]\n  + where", "rank 0 raised Asser"),
        ("ValueError: no\n  Try: something else", "ValueError: no"),
        ("Traceback (most recent call last):\n  File\n    x\nKeyError: 1\nnote", "KeyError: 1"),
        ("Traceback (most recent call last):\n  File", "File"),
        ("\n \n", "failed"),
        (None, "failed"),
    ],
)
def test_the_line_of_an_error_is_the_one_that_says_what_it_is(error: str | None, line: str) -> None:
    assert error_line(error).startswith(line)
