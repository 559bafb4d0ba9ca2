"""`holdfast show` of runs that were driven, and `holdfast logs`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import cli, main
from holdfast.cli.logs import logs
from holdfast.control.metrics.writer import METRICS, MetricRows
from holdfast.control.record.open_run import OpenRun, open_run
from holdfast.core.run.budget import Budget
from holdfast.core.run.history import KIND, data_of
from holdfast.core.run.machine import (
    DriverStarted,
    Ending,
    Event,
    GroupEnded,
    GroupNotStarted,
    StopRequested,
)
from holdfast.core.run.outcomes import Died, Finished, Raised
from holdfast.storage.locate import open_store
from tests.runs import commit_to, save_files

RAISED = Raised(0, "n", "ValueError: loss\nis nan", "Traceback")
DIED = Died(1, "n", 77, signal=9)
START = DriverStarted(Budget())


class Ran:
    """What one run of the command did."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def fact(self, name: str) -> str | None:
        """Return what is printed beside a name."""
        lines = [line.strip() for line in self.out.splitlines()]
        return next((x.removeprefix(f"{name}  ") for x in lines if x.startswith(f"{name}  ")), None)


@pytest.fixture
def holdfast(capsys: pytest.CaptureFixture[str]) -> Any:
    cli.add_command(logs)

    def run(*arguments: object) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Ran(int(ended.value.code or 0), out, err)

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "lab" / "bert-7"


@pytest.fixture
def run(folder: Path) -> Iterator[OpenRun]:
    with open_run(open_store(folder)) as run:
        yield run


def happen(run: OpenRun, *events: Event) -> None:
    for event in events:
        run.note(KIND, data_of(event))


def report(run: OpenRun, *metrics: dict[str, Any]) -> None:
    rows = MetricRows(run.store, run.lease.epoch)
    for step, one in enumerate(metrics, start=1):
        rows.append(step, 1, one, run.lease.record.renewed)
    rows.close()


# ---------------------------------------------------------------------- show


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ([], "running"),
        ([GroupEnded(1, (Finished(0, "n"),))], "succeeded"),
        ([GroupEnded(1, (RAISED,))], "failed"),
        ([StopRequested(Ending.STOPPED), GroupEnded(1, ())], "stopped"),
        ([StopRequested(Ending.PREEMPTED), GroupEnded(1, ())], "preempted"),
        ([GroupEnded(1, (RAISED,)), START], "running"),
    ],
    ids=["active", "succeeded", "failed", "stopped", "preempted", "launched again"],
)
def test_show_says_how_a_run_goes_or_came_out(
    holdfast: Any, run: OpenRun, folder: Path, events: list[Event], status: str
) -> None:
    happen(run, START, *events)

    assert holdfast("show", folder).fact("state") == status
    assert holdfast("show", folder, "--json").json["status"] == status


def test_a_run_whose_driver_left_without_an_ending_is_interrupted(
    holdfast: Any, folder: Path
) -> None:
    with open_run(open_store(folder)) as run:
        happen(run, START)

    assert holdfast("show", folder).fact("state") == "interrupted"


def test_ls_says_how_every_run_goes_or_came_out(holdfast: Any, run: OpenRun, folder: Path) -> None:
    happen(run, START, GroupEnded(1, (RAISED,)))
    with open_run(open_store(folder.parent / "gpt")) as other:
        happen(other, START)
        running = holdfast("ls", folder.parent)
    listed = holdfast("ls", folder.parent, "--json").json["runs"]

    rows = {row[0]: row[2] for row in map(str.split, running.out.splitlines())}
    assert rows == {"NAME": "STATUS", "bert-7": "failed", "gpt": "running"}
    assert {row["name"]: row["status"] for row in listed} == {
        "bert-7": "failed",
        "gpt": "interrupted",
    }


def test_show_counts_losses_of_all_drivers_and_names_the_last_failure(
    holdfast: Any, run: OpenRun, folder: Path
) -> None:
    patient = DriverStarted(Budget(failures=2))
    happen(run, patient, GroupEnded(1, (RAISED,)), GroupNotStarted(2, "no room"))
    happen(run, patient, GroupEnded(4, (RAISED, DIED)))
    again = holdfast("show", folder)
    happen(run, START, GroupEnded(6, (RAISED, DIED)))
    failed = holdfast("show", folder)

    assert again.fact("attempts") == "5, 3 lost (code 1, process 1, start 1)"
    assert again.fact("last failure") == (
        "a process died, and others raised ValueError: loss is nan, before a checkpoint was saved"
    )
    assert failed.fact("attempts") == "6, 4 lost (code 1, process 2, start 1)"
    assert failed.fact("last failure") == (
        "rank 0 raised ValueError: loss is nan; rank 1 (pid 77) was killed by SIGKILL"
    )
    assert holdfast("show", folder, "--json").json["losses"] == {
        "code": 1,
        "start": 1,
        "process": 2,
    }


def test_show_tells_how_many_reports_there_were_and_the_last_of_them(
    holdfast: Any, run: OpenRun, folder: Path, tmp_path: Path
) -> None:
    report(run, {"loss": 0.5}, {"loss": 0.25}, {"loss": float("nan")})
    commit_to(run, save_files(tmp_path / "files", {"a": b"a"}), step=4, metrics={"loss": 0.125})

    shown = holdfast("show", folder)
    facts = holdfast("show", folder, "--json").json

    assert (shown.fact("reports") or "").startswith("4, the last ")
    assert (shown.fact("reports") or "").endswith("ago at step 4: loss=0.125")
    assert facts["reports"] == 4
    assert facts["last_report"]["metrics"] == {"loss": 0.125}


def test_show_says_that_metrics_are_damaged_and_goes_on(
    holdfast: Any, run: OpenRun, folder: Path
) -> None:
    report(run, {"loss": 0.5}, {"loss": 0.25})
    [segment] = (folder / METRICS).iterdir()
    segment.write_bytes(segment.read_bytes().replace(b"0.5", b"0.6"))

    shown = holdfast("show", folder)

    assert shown.code == 0
    assert "! metrics: .holdfast/metrics/" in shown.out
    assert (shown.fact("reports") or "").startswith("1, ")
    assert len(holdfast("show", folder, "--json").json["metric_damage"]) == 1
    verified = holdfast("verify", folder, "--json")
    assert verified.code == 1
    assert list(verified.json["damaged"]) == [METRICS]


class Uncomprehending(OpenRun):
    """A run whose journal is written to by somebody who takes nothing of it in."""

    kind = "train"


def test_a_run_whose_journal_makes_no_sense_is_shown_as_far_as_it_goes(
    holdfast: Any, folder: Path
) -> None:
    with Uncomprehending.open(open_store(folder)) as run:
        happen(run, START)
        run.note(KIND, {"event": "something new", "attempt": 1})

    shown = holdfast("show", folder)

    assert shown.code == 0
    assert shown.fact("state") == "interrupted"
    assert "! journal: record 3 cannot follow those before it" in shown.out


def test_a_run_that_nobody_drove_is_shown_without_attempts(holdfast: Any, folder: Path) -> None:
    with open_run(open_store(folder)):
        pass

    shown = holdfast("show", folder)

    assert shown.fact("state") == "closed"
    assert (shown.fact("attempts"), shown.fact("reports"), shown.fact("logs")) == (None,) * 3


# ---------------------------------------------------------------------- logs


@pytest.fixture
def printed(run: OpenRun, folder: Path) -> Path:
    """The logs of a run with two attempts of two ranks."""
    for attempt in (1, 2):
        for rank in (0, 1):
            path = folder / "logs" / f"attempt-{attempt}" / f"rank-{rank}.log"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f"{attempt}.{rank} line {n}\n" for n in range(1, 151)))
    return folder / "logs"


def test_show_says_where_the_logs_are(holdfast: Any, printed: Path, folder: Path) -> None:
    shown = holdfast("show", folder)

    assert shown.fact("logs") == f"{printed}/attempt-2/rank-0.log and 1 more"
    assert holdfast("show", folder, "--json").json["logs"]["1"]["1"].endswith("rank-1.log")


def test_logs_prints_the_end_of_every_log_of_the_last_attempt(
    holdfast: Any, printed: Path, folder: Path
) -> None:
    lines = holdfast("logs", folder).out.splitlines()

    assert lines[0] == f"==> rank 0, {printed}/attempt-2/rank-0.log <=="
    assert lines[1:3] == ["2.0 line 51", "2.0 line 52"]
    assert lines[100:104] == [
        "2.0 line 150",
        "",
        f"==> rank 1, {printed}/attempt-2/rank-1.log <==",
        "2.1 line 51",
    ]
    assert lines[-1] == "2.1 line 150"


def test_logs_of_one_rank_are_printed_as_they_are(
    holdfast: Any, printed: Path, folder: Path
) -> None:
    ran = holdfast("logs", folder, "--rank", 1, "--attempt", 1, "-n", 2)

    assert (ran.code, ran.out) == (0, "1.1 line 149\n1.1 line 150\n")


def test_logs_can_be_had_as_json(holdfast: Any, printed: Path, folder: Path) -> None:
    found = holdfast("logs", folder, "--json", "-n", 1).json

    assert found["attempt"] == 2
    assert [(one["rank"], one["lines"]) for one in found["logs"]] == [
        (0, ["2.0 line 150"]),
        (1, ["2.1 line 150"]),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rank", 7], "--rank 7: in attempt 2 there are logs of ranks 0-1"),
        (["--attempt", 3], "--attempt 3: there are logs of attempt 1, 2"),
    ],
)
def test_logs_that_are_not_there_are_an_error_that_names_those_that_are(
    holdfast: Any, printed: Path, folder: Path, arguments: list[Any], message: str
) -> None:
    ran = holdfast("logs", folder, *arguments)

    assert ran.code == 3
    assert message in ran.err


def test_a_run_without_logs_says_so(holdfast: Any, run: OpenRun, folder: Path) -> None:
    ran = holdfast("logs", folder)

    assert ran.code == 3
    assert f"there are no logs of run 'bert-7' in {folder}/logs on this machine" in ran.err


def test_logs_of_a_run_that_is_far_away_are_looked_for_on_its_drivers_machine(
    holdfast: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with open_run(open_store("memory://far/bert-7")) as run:
        missing = holdfast("logs", "memory://far/bert-7")
        path = tmp_path / ".cache/holdfast/logs" / run.identity.run_id / "attempt-1/rank-0.log"
        path.parent.mkdir(parents=True)
        path.write_text("from here\n")
        found = holdfast("logs", "memory://far/bert-7")

    assert f"its last driver ran on {os.uname().nodename}" in missing.err
    assert found.out == "from here\n"
