from __future__ import annotations

import io

import pytest

from holdfast.core.checkpoint.record import Kept, RunRecord
from holdfast.core.run.machine import Active, Ending, Over, Run
from holdfast.train.display import announce
from holdfast.train.resume_policy import Standing, opening_line, standing_of

NOW = 1_800_000_000.0


def line(standing: Standing, policy: str = "auto") -> str:
    return opening_line("bert-7", "s3://lab/runs/bert-7", standing, policy=policy, now=NOW)


def test_a_new_run_is_called_new_and_says_where_it_is_kept() -> None:
    assert line(Standing()) == "holdfast: run 'bert-7' is new; it is kept at s3://lab/runs/bert-7"


@pytest.mark.req("T-077")
def test_a_run_that_carries_on_says_from_where_and_why_it_may() -> None:
    standing = Standing(starts=2, checkpoint="checkpoint_000012", step=12000, saved=NOW - 240)

    assert line(standing) == (
        "holdfast: run 'bert-7', which was interrupted, carries on from checkpoint_000012"
        " (step 12000, saved 4 min ago); started 2 times before [RunConfig(resume='auto')]"
    )


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (None, "which was interrupted"),
        (Ending.SUCCEEDED, "which had finished"),
        (Ending.FAILED, "which had failed"),
        (Ending.STOPPED, "which was stopped"),
        (Ending.PREEMPTED, "which was preempted"),
    ],
)
def test_the_line_says_how_the_run_came_out_the_last_time(
    ending: Ending | None, words: str
) -> None:
    text = line(Standing(starts=1, ending=ending, checkpoint="c", saved=NOW))

    assert f"run 'bert-7', {words}, carries on from c (saved 0 s ago); started once before" in text


def test_a_run_without_a_checkpoint_begins_again() -> None:
    text = line(Standing(starts=3, ending=Ending.FAILED), policy="must")

    assert text == (
        "holdfast: run 'bert-7', which had failed, begins again, because it has no checkpoint;"
        " started 3 times before [RunConfig(resume='must')]"
    )


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-5, "0 s"), (90, "90 s"), (600, "10 min"), (3 * 3600, "3 h"), (4 * 86400, "4 d")],
)
def test_an_age_is_said_in_the_largest_unit_that_fits(seconds: float, words: str) -> None:
    assert f"saved {words} ago" in line(Standing(checkpoint="c", saved=NOW - seconds))


def kept(number: int, *problems: str) -> Kept:
    return Kept(
        number=number,
        directory=f"checkpoint_{number:06d}",
        epoch=1,
        attempt=1,
        step=number * 10,
        metrics={},
        created=NOW + number,
        problems=problems,
    )


def test_the_newest_checkpoint_that_may_be_used_is_the_one_named() -> None:
    record = RunRecord(kept={1: kept(1), 2: kept(2), 3: kept(3, "a bit flipped")})

    standing = standing_of(record, Run(phase=Over(Ending.FAILED), attempts=4))

    assert standing == Standing(
        starts=4, ending=Ending.FAILED, checkpoint="checkpoint_000002", step=20, saved=NOW + 2
    )


def test_a_run_cut_off_in_an_attempt_has_no_ending() -> None:
    assert standing_of(RunRecord(), Run(phase=Active(2), attempts=2)) == Standing(starts=2)


@pytest.mark.parametrize(
    ("level", "printed"), [("DEBUG", "x\n"), ("INFO", "x\n"), ("WARNING", ""), ("ERROR", "")]
)
def test_a_line_is_said_unless_the_level_is_above_info(
    level: str, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    announce("x", level)

    assert capsys.readouterr() == ("", printed)


@pytest.mark.parametrize("stream", ["none", "closed"])
def test_a_process_without_stderr_is_no_obstacle(
    stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr("sys.stderr", None if stream == "none" else closed)

    announce("nobody reads this")
