"""What is shown of a study: lines that do not flood, screens that cannot fail."""

from __future__ import annotations

import io
import os
import pty
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.core.checkpoint.record import Kept
from holdfast.core.run.machine import Run
from holdfast.core.run.outcomes import Blame
from holdfast.core.study.trial import Status, Trial, values_now
from holdfast.errors import ConfigError
from holdfast.tune.outputs import lines
from holdfast.tune.outputs.lines import LastStart, LineBudget
from holdfast.tune.outputs.output import ReporterOutput, StudyOutput
from holdfast.tune.outputs.screens import (
    LiveScreen,
    NotebookScreen,
    PlainScreen,
    Screen,
    screen_for,
)
from holdfast.tune.outputs.tables import Layout, Progress
from holdfast.tune.progress_reporter import (
    CLIReporter,
    JupyterNotebookReporter,
    ProgressReporter,
)
from tests.clocks import FakeClock
from tests.unit.tune.outputs.shown_trials import several, trial


class Paper:
    """A screen that keeps what is printed."""

    def __init__(self, *, keeps_status: bool = False) -> None:
        self.keeps_status = keeps_status
        self.lines: list[str] = []
        self.shown = 0

    def print(self, text: str) -> None:
        self.lines.append(text)

    def show(self, progress: Progress, layout: Layout, header: Sequence[str]) -> None:
        self.shown += 1

    def close(self) -> None:
        self.lines.append("closed")


def output(screen: Screen, verbosity: int = 1, clock: FakeClock | None = None) -> StudyOutput:
    return StudyOutput(
        verbosity=verbosity, screen=screen, clock=clock or FakeClock(), metric="loss", mode="min"
    )


def test_without_a_terminal_every_event_is_a_line() -> None:
    paper = Paper()
    study_output = output(paper)
    retried = trial(3, run=Run(attempts=2))
    study_output.begin("bert", "s3://lab/bert", {"search": "random"})
    study_output.trial_started(retried)
    study_output.trial_reported(retried, retried.last_result)
    study_output.trial_failed(
        trial(1, Status.ERROR, error="ValueError: lr"), "+-card-+", is_last=True
    )
    study_output.trial_finished(retried)

    assert paper.lines == [
        "Study 'bert' at s3://lab/bert\n  search: random",
        "trainable_t003 started again (attempt 2) with lr=0.3, net/depth=3",
        "trainable_t003 iteration 4, loss=0.25, 1.5 s in total",
        "trainable_t001 failed for good: ValueError: lr\n+-card-+",
        "trainable_t003 finished: iteration 4, loss=0.25, 1.5 s in total",
    ]


def test_results_of_a_trial_are_told_every_few_seconds_only() -> None:
    paper, clock = Paper(), FakeClock()
    study_output = output(paper, clock=clock)
    for _ in range(100):
        study_output.trial_reported(trial(0), trial(0).last_result)
        clock.time += 0.1

    assert len(paper.lines) == 2


def test_a_flood_of_events_is_counted_and_not_printed() -> None:
    paper, clock = Paper(), FakeClock()
    study_output = output(paper, clock=clock)
    for number in range(5000):
        study_output.trial_started(trial(number))
        study_output.trial_finished(trial(number))
        clock.time += 0.0001
    assert len(paper.lines) == 20

    clock.time += 1
    study_output.update(Progress(trials=[]))
    assert paper.lines[-1] == "… and 4990 started, 4990 finished more"
    budget = LineBudget(lines_max=1)
    assert budget.take("x", "one", 0.0) == ["one"]
    assert budget.take("x", "two", 0.5) == []
    assert budget.take("x", "three", 1.5) == ["… and 1 x more", "three"]


def test_a_status_is_printed_now_and_then_where_it_does_not_stay() -> None:
    paper, clock = Paper(), FakeClock()
    study_output = output(paper, clock=clock)
    for _ in range(700):
        study_output.update(Progress(trials=several(RUNNING=1)))
        clock.time += 0.1
    assert len(paper.lines) == 2 and paper.shown == 0

    live = Paper(keeps_status=True)
    output(live).update(Progress(trials=several(RUNNING=1)))
    assert live.shown == 1 and not live.lines


@pytest.mark.parametrize(("verbosity", "count"), [(0, 0), (1, 1), (2, 5), (3, 5)])
def test_a_live_table_says_what_lines_need_not(verbosity: int, count: int) -> None:
    live = Paper(keeps_status=True)
    study_output = output(live, verbosity)
    study_output.trial_started(trial(0))
    study_output.trial_reported(trial(0), {"loss": 1, "other": 2})
    study_output.trial_saved(trial(0), "checkpoint_000001")
    study_output.trial_finished(trial(0))
    study_output.trial_failed(trial(1), "card", is_last=False)

    assert len(live.lines) == count
    if verbosity == 3:
        assert live.lines[1].endswith("loss=1, other=2")


def test_only_the_first_cards_are_shown_in_full() -> None:
    paper, clock = Paper(), FakeClock()
    study_output = output(paper, clock=clock)
    for number in range(30):
        study_output.trial_failed(trial(number, error="E: x"), "the whole card", is_last=True)
        clock.time += 1

    assert sum("the whole card" in line for line in paper.lines) == 10
    assert sum("failed for good: E: x" in line for line in paper.lines) == 30


def test_the_end_says_what_came_out_and_how_to_go_on() -> None:
    paper = Paper()
    trials = [trial(0, Status.TERMINATED), trial(1, Status.ERROR, error="ValueError: lr")]
    study_output = output(paper)

    study_output.end(
        Progress(trials=trials, elapsed_s=61), resume="Tuner.restore('/a/b', trainable=f).fit()"
    )

    closed, text = paper.lines
    assert closed == "closed"
    assert "Trials: 2 of 2 done (1 TERMINATED, 1 ERROR) in 1 min 1 s" in text
    assert "Best: trainable_t001, loss=0.5" in text
    assert "ValueError: lr" in text
    assert text.endswith("To go on with it:\n  Tuner.restore('/a/b', trainable=f).fit()")


@pytest.mark.parametrize("is_reporter", [False, True])
def test_a_script_that_goes_on_after_ctrl_c_is_told_of_with_what_is_done(
    is_reporter: bool,
) -> None:
    paper = Paper()
    study_output = output(paper)
    if is_reporter:
        study_output = ReporterOutput(CLIReporter(), screen=paper)
    trials = several(TERMINATED=3, ERROR=1, RUNNING=2)

    study_output.end(Progress(trials=trials, total=20), resume="restore(…)", interrupted=True)

    text = "\n".join(paper.lines)
    assert (
        "Interrupted: 3 of 20 trials are done. fit() returns the results so far, with .interrupted"
        " True, and the script goes on\n"
    ) in text
    assert text.endswith("To go on with it:\n  restore(…)")


def test_nothing_is_said_at_verbosity_0() -> None:
    paper = Paper()
    study_output = output(paper, 0)
    study_output.begin("a", "b")
    study_output.trial_failed(trial(0), "card", is_last=True)
    study_output.update(Progress(trials=[]))
    study_output.end(Progress(trials=[]), resume="x")

    assert paper.lines == ["closed"]


def test_a_verbosity_that_there_is_not_is_refused() -> None:
    for bad in (4, -1, "loud"):
        with pytest.raises(ConfigError, match="0, 1, 2 or 3"):
            output(Paper(), bad)  # type: ignore[arg-type]


def test_a_screen_that_fails_is_told_of_once_and_the_study_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Torn(Paper):
        def print(self, text: str) -> None:
            raise RuntimeError("torn")

    study_output = output(Torn())
    for _ in range(3):
        study_output.trial_started(trial(0))
    study_output.end(Progress(trials=[]))

    assert len(caplog.records) == 1


# ---------------------------------------------------------------------- screens


def test_a_pipe_that_nobody_reads_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    stream = open(writer, "w")  # noqa: SIM115  # closing it fails, because nobody reads it
    screen = PlainScreen(stream)
    screen.print("one")
    screen.print("two")

    with pytest.raises(BrokenPipeError):
        stream.close()


def test_a_file_gets_plain_lines_without_colour() -> None:
    stream = io.StringIO()
    study_output = output(screen_for(stream))
    study_output.trial_started(trial(0))
    study_output.end(Progress(trials=[trial(0)]))

    assert "\x1b" not in stream.getvalue() and "started" in stream.getvalue()


def read_all(handle: int) -> str:
    received = b""
    while True:
        try:
            data = os.read(handle, 65536)
        except OSError:  # the other side is closed, and all is read
            return received.decode()
        if not data:
            return received.decode()
        received += data


def test_a_terminal_gets_one_live_table_that_is_drawn_over() -> None:
    master, slave = pty.openpty()
    clock = FakeClock()
    with open(slave, "w") as stream:
        screen = screen_for(stream, clock=clock)
        assert isinstance(screen, LiveScreen)
        study_output = output(screen, clock=clock)
        for count in (1, 2):
            study_output.update(Progress(trials=several(RUNNING=count)))
            study_output.update(Progress(trials=several(RUNNING=9)))  # too soon
            clock.time += 1
        study_output.trial_failed(trial(7, error="E: x"), "[bold]card[/bold]", is_last=False)
        study_output.end(Progress(trials=several(TERMINATED=2)), resume="restore(…)")
    seen = read_all(master)
    os.close(master)

    assert "1 RUNNING" in seen and "2 RUNNING" in seen and "9 RUNNING" not in seen
    assert "\x1b[" in seen
    assert "[bold]card[/bold]" in seen, "markup of the user's is text"
    assert seen.rstrip().endswith("restore(…)")


def test_a_terminal_without_rich_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rich", "rich.console"):
        monkeypatch.setitem(sys.modules, name, None)
    master, slave = pty.openpty()
    with open(slave, "w") as stream:
        assert isinstance(screen_for(stream), PlainScreen)
    os.close(master)


def test_a_notebook_gets_one_table_that_is_replaced() -> None:
    shown: list[str] = []
    clock = FakeClock()
    screen = screen_for(io.StringIO(), clock=clock, display=shown.append)
    assert isinstance(screen, NotebookScreen)
    study_output = output(screen, clock=clock)
    study_output.update(Progress(trials=several(RUNNING=1)))
    study_output.update(Progress(trials=several(RUNNING=2)))
    clock.time += 2
    study_output.update(Progress(trials=several(RUNNING=3)))
    study_output.trial_failed(trial(0, error="<E>"), "<card>", is_last=True)

    assert len(shown) == 3
    assert "1 RUNNING" in shown[0] and "3 RUNNING" in shown[1]
    assert "&lt;card&gt;" in shown[2] and "<table>" in shown[2]


# ---------------------------------------------------------------------- reporters


def test_a_reporter_prints_a_status_as_people_know_it(capsys: pytest.CaptureFixture[str]) -> None:
    clock = FakeClock()
    reporter = CLIReporter(
        metric_columns=["loss"], parameter_columns={"lr": "rate"}, max_progress_rows=2, clock=clock
    )
    reporter.setup(start_time=clock.now(), total_samples=5, metric="loss", mode="min")
    clock.time += 3.0

    reporter.report(several(RUNNING=3, ERROR=1), False, "FIFO", "")

    text = capsys.readouterr().out
    assert text.startswith(
        "== Status ==\nTrials: 1 of 5 done (3 RUNNING, 1 ERROR), running for 3 s"
    )
    assert "Best so far: trainable_t003" in text and "FIFO" in text
    assert "rate" in text and "… 2 more trials not shown (2 RUNNING)" in text
    assert "Failed:" in text


def test_a_reporter_reports_no_more_often_than_told_but_always_at_the_end() -> None:
    clock = FakeClock()
    reporter = CLIReporter(max_report_frequency=5, clock=clock)
    due = []
    for _ in range(12):
        due.append(reporter.should_report([]))
        clock.time += 1

    assert [second for second, is_due in enumerate(due) if is_due] == [0, 5, 10]
    assert reporter.should_report([], done=True)


def test_columns_can_be_added_to_a_reporter() -> None:
    reporter = CLIReporter()
    reporter.add_metric_column("loss", "the loss")
    reporter.add_parameter_column("fixed")
    with pytest.raises(ConfigError, match="has a column already"):
        reporter.add_metric_column("loss")
    with pytest.raises(ConfigError, match="must be a list"):
        CLIReporter(metric_columns="loss")
    with pytest.raises(ConfigError, match="max_progress_rows=-1"):
        CLIReporter(max_progress_rows=-1)
    with pytest.raises(ConfigError, match="mode='max'"):
        CLIReporter(mode="maximize")


def test_a_reporter_in_a_notebook_shows_html_and_elsewhere_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown: list[str] = []
    JupyterNotebookReporter(display=shown.append).report(several(ERROR=1), True)
    assert "<table>" in shown[0] and "1 ERROR" in shown[0]

    JupyterNotebookReporter().report(several(ERROR=1), True)
    assert "== Status ==" in capsys.readouterr().out


class Own(ProgressReporter):
    """As users write them: reports when a trial has ended."""

    def __init__(self) -> None:
        self.reports: list[tuple[int, bool, tuple[Any, ...]]] = []

    def should_report(self, trials: Sequence[Trial], done: bool = False) -> bool:
        return done or any(shown.is_finished() for shown in trials)

    def report(self, trials: Sequence[Trial], done: bool, *sys_info: Any) -> None:
        self.reports.append((len(trials), done, sys_info))
        if done:
            raise RuntimeError("a bug of the user's")


def test_a_reporter_of_the_users_decides_when_and_cannot_end_the_study(
    caplog: pytest.LogCaptureFixture,
) -> None:
    own, paper = Own(), Paper()
    study_output = ReporterOutput(own, screen=paper, clock=FakeClock())
    study_output.setup(start_time=0.0, total_samples=3, metric="loss", mode="min")
    study_output.update(Progress(trials=several(RUNNING=1)))
    study_output.update(Progress(trials=several(RUNNING=1, TERMINATED=1), resources="1 CPU"))
    study_output.end(Progress(trials=several(TERMINATED=2)), resume="restore()")

    assert own.reports == [(2, False, ("1 CPU",)), (2, True, ())]
    assert paper.lines == ["To go on with it:\n  restore()"]
    assert len(caplog.records) == 1


# ---------------------------------------------------------------------- attempts, not failures


def paused(config: dict[str, Any], **fields: Any) -> Trial:
    parameters = {"lr": config["lr"], "net/depth": config["net"]["depth"]}
    return trial(
        3, config=config, evaluated_params=parameters, step=6, run=Run(attempts=11), **fields
    )


def other(number: int) -> Trial:
    """Return a trial that has saved itself."""
    saved = Kept(number=0, directory="c", epoch=1, attempt=1, step=1, metrics={}, created=1.0)
    donor = trial(number, folder=f"folder-{number}")
    donor.checkpoints.kept[0] = saved
    return donor


def test_a_pause_does_not_read_as_a_failure() -> None:
    paused_trial = paused({"lr": 0.1, "net": {"depth": 2}})

    assert lines.started(paused_trial, LastStart.of(paused_trial)) == (
        "trainable_t003 goes on after step 6 with lr=0.1, net/depth=2"
    )


def test_a_trial_that_has_failed_since_is_started_again() -> None:
    paused_trial = paused({"lr": 0.1, "net": {"depth": 2}})
    before = LastStart.of(paused_trial)
    paused_trial.run = Run(attempts=12, losses={Blame.PROCESS: 1})

    assert lines.started(paused_trial, before).startswith(
        "trainable_t003 started again (attempt 12) with"
    )


def test_who_takes_over_weights_is_told_with_what_has_changed() -> None:
    paused_trial = paused({"lr": 0.00012, "net": {"depth": 2}, "batch": 8, "fixed": [1]})
    before = LastStart.of(paused_trial)
    config = {"lr": 0.0152, "net": {"depth": 2}, "batch": 16, "fixed": [1]}

    assert paused_trial.become(other(7), config, "3@perturbed")

    assert paused_trial.evaluated_params == {"lr": 0.0152, "net/depth": 2, "batch": 16}
    assert lines.started(paused_trial, before, "trainable_t007") == (
        "trainable_t003 took over the weights of trainable_t007: lr 0.00012 → 0.0152, batch 8 → 16"
    )
    assert lines.started(paused_trial, LastStart.of(paused_trial), "trainable_t007").startswith(
        "trainable_t003 goes on after step 6 with lr=0.0152"
    )


def test_under_another_driver_only_what_is_now_is_told() -> None:
    paused_trial = paused({"lr": 0.1, "net": {"depth": 2}})
    paused_trial.become(other(7), {"lr": 0.5, "net": {"depth": 2}}, "tag")
    before = LastStart(None, 0, None)

    assert lines.started(paused_trial, before, "trainable_t007") == (
        "trainable_t003 took over the weights of trainable_t007 with lr=0.5, net/depth=2"
    )


def test_values_that_are_no_plain_ones_are_found_in_a_new_config() -> None:
    parameters = {"size": (1, 2), "layers/0": 8, "a/b": 1, "by/3": 1}
    before = {"size": (1, 2), "layers": [8, 4], "a/b": 1, "gone": 1, "by": {3: 1}}
    after = {"size": (3, 4), "layers": [9, 4], "a/b": 2, "by": {3: 2, (4,): {5: 6}}}

    assert values_now(parameters, before, after) == {
        "size": (3, 4),
        "layers/0": 9,
        "a/b": 2,
        "by/3": 2,
        "by/(4,)/5": 6,
    }
