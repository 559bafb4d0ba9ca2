"""What the driver shows of its workers' logs, and that showing it does no harm."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import pty
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.control.host import worker_output
from holdfast.control.host.worker_output import Echo, find_logs, last_lines
from holdfast.engine.log_files import LogFile
from tests.patience import PATIENCE_S


class Screen(io.StringIO):
    """A stream that can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()

    def write(self, text: str) -> int:
        with self._changed:
            self._changed.notify_all()
            return super().write(text)

    def wait_for(self, text: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: text in self.getvalue(), PATIENCE_S), (
                self.getvalue()
            )

    @property
    def lines(self) -> list[str]:
        return self.getvalue().splitlines()


class Logs:
    """The logs of a group in the making."""

    def __init__(self, folder: Path, ranks: int) -> None:
        self.folder = folder
        self.paths = {rank: str(folder / f"rank-{rank}.log") for rank in range(ranks)}

    def opened(self) -> dict[int, LogFile]:
        return {rank: LogFile(path) for rank, path in self.paths.items()}

    def say(self, rank: int, text: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.paths[rank], "a", encoding="utf-8") as file:
            file.write(text)


@pytest.fixture
def screen() -> Screen:
    return Screen()


@pytest.fixture
def echo(screen: Screen) -> Iterator[Echo]:
    echo = Echo(screen)
    yield echo
    echo.stop(PATIENCE_S)


@pytest.fixture
def new_logs(tmp_path: Path) -> Callable[..., Logs]:
    return lambda ranks, attempt=1: Logs(tmp_path / f"attempt-{attempt}", ranks)


NewLogs = Callable[..., Logs]


# ---------------------------------------------------------------------- what is shown


def test_lines_are_shown_as_they_come_with_the_rank_that_printed_them(
    echo: Echo, screen: Screen, new_logs: NewLogs
) -> None:
    logs = new_logs(2)
    echo.watch(1, logs.opened())
    logs.say(1, "hello\nhalf")
    screen.wait_for("(rank 1) hello\n")
    logs.say(0, "there\n")
    screen.wait_for("(rank 0) there\n")
    logs.say(1, " a line\n")
    screen.wait_for("(rank 1) half a line\n")


def test_what_all_ranks_print_is_shown_once(echo: Echo, screen: Screen, new_logs: NewLogs) -> None:
    logs = new_logs(4)
    for rank in range(4):
        logs.say(rank, "epoch 1\n")
    echo.watch(1, logs.opened())
    echo.stop(PATIENCE_S)

    assert screen.lines == ["(ranks 0-3) epoch 1"]


def test_the_end_shows_all_there_is_also_half_lines(
    echo: Echo, screen: Screen, new_logs: NewLogs
) -> None:
    logs = new_logs(2)
    echo.watch(1, logs.opened())
    logs.say(0, "whole\nlast words")
    echo.stop(PATIENCE_S)

    assert screen.lines == ["(rank 0) whole", "(rank 0) last words"]


class Slow(Screen):
    """Takes its time with the first thing it is to show."""

    def __init__(self) -> None:
        super().__init__()
        self.is_ready = threading.Event()

    def write(self, text: str) -> int:
        if "attempt 1" in text:
            assert self.is_ready.wait(PATIENCE_S)
        return super().write(text)


def test_what_is_left_of_one_group_is_shown_before_the_next(new_logs: NewLogs) -> None:
    screen, first, second = Slow(), new_logs(1, attempt=1), new_logs(2, attempt=2)
    echo = Echo(screen)
    echo.watch(1, first.opened())
    first.say(0, "of attempt 1")
    second.say(0, "of attempt 2\n")
    second.say(1, "of attempt 2\n")
    echo.watch(2, second.opened())
    threading.Timer(4 * worker_output.TICK_S, screen.is_ready.set).start()
    echo.stop(PATIENCE_S)

    assert screen.lines == ["(rank 0) of attempt 1", "(ranks 0-1) of attempt 2"]


def test_a_progress_bar_is_shown_now_and_then_and_when_it_is_done(
    screen: Screen, new_logs: NewLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_output, "PROGRESS_S", 0.01)
    echo, logs = Echo(screen), new_logs(1)
    logs.say(0, "".join(f"\r{number}%" for number in range(50)))
    echo.watch(1, logs.opened())
    screen.wait_for("(rank 0) 49%\n")
    logs.say(0, "".join(f"\r{number}%" for number in range(50, 101)) + "\n")
    screen.wait_for("100%")
    echo.stop(PATIENCE_S)

    assert screen.lines == ["(rank 0) 49%", "(rank 0) 100%"]


def test_too_many_lines_are_left_out_which_is_said_with_the_place_of_all(
    screen: Screen, new_logs: NewLogs
) -> None:
    echo, logs = Echo(screen, lines_max=10), new_logs(1)
    logs.say(0, "".join(f"line {number}\n" for number in range(100)))
    echo.watch(1, logs.opened())
    echo.stop(PATIENCE_S)

    assert screen.lines[:10] == [f"(rank 0) line {number}" for number in range(10)]
    assert screen.lines[10:] == [
        f"(rank 0) … 90 lines left out; everything is in {logs.paths[0]}",
    ]


def test_of_a_flood_only_the_end_is_read(screen: Screen, new_logs: NewLogs) -> None:
    echo, logs = Echo(screen, lines_max=10**6), new_logs(2)
    line = "x" * 99 + "\n"
    for rank in range(2):
        logs.say(rank, line * 30_000 + f"the end of {rank}\n")
    echo.watch(1, logs.opened())
    echo.stop(PATIENCE_S)

    assert "(rank 1) the end of 1" in screen.lines
    assert screen.lines[-1] == f"(ranks 0-1) … 5.9 MB left out; everything is in {logs.folder}"
    assert len(screen.lines) < 700


def test_a_log_that_is_cut_to_make_room_is_read_from_its_new_beginning(
    echo: Echo, screen: Screen, new_logs: NewLogs
) -> None:
    logs = new_logs(1)
    echo.watch(1, logs.opened())
    logs.say(0, "before the cut, a long line\n")
    screen.wait_for("before")
    os.truncate(logs.paths[0], 0)
    logs.say(0, "cut\nafter\n")
    screen.wait_for("(rank 0) after\n")


def test_a_log_that_is_not_there_or_cannot_be_read_costs_the_others_nothing(
    echo: Echo,
    screen: Screen,
    new_logs: NewLogs,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    logs = new_logs(1)
    logs.say(0, "here\n")
    echo.watch(
        1, {0: LogFile(logs.paths[0]), 1: LogFile("/nowhere/rank-1.log"), 2: LogFile(str(tmp_path))}
    )
    screen.wait_for("(rank 0) here\n")
    echo.stop(PATIENCE_S)

    assert screen.lines == ["(rank 0) here"]
    assert caplog.text.count("cannot be read") == 1


def test_colours_are_for_terminals_only(new_logs: NewLogs) -> None:
    logs = new_logs(1)
    logs.say(0, "\x1b[31mred\x1b[0m\x1b[A\n")
    screen, (there, here) = Screen(), pty.openpty()
    for stream in (screen, open(here, "w", encoding="utf-8")):  # noqa: SIM115
        echo = Echo(stream)
        echo.watch(1, logs.opened())
        echo.stop(PATIENCE_S)
    shown = os.read(there, 1000).decode().replace("\r\n", "\n")
    stream.close()
    os.close(there)

    assert screen.getvalue() == "(rank 0) red\n"
    assert shown == "\x1b[36m(rank 0)\x1b[0m \x1b[31mred\x1b[0m\x1b[0m\n"


def test_a_stream_that_has_no_letter_for_it_gets_another(new_logs: NewLogs, tmp_path: Path) -> None:
    logs = new_logs(1)
    logs.say(0, "50%|█\n")
    with open(tmp_path / "out", "w", encoding="ascii") as stream:
        echo = Echo(stream)
        echo.watch(1, logs.opened())
        echo.stop(PATIENCE_S)

    assert (tmp_path / "out").read_text() == "(rank 0) 50%|\\u2588\n"


# ---------------------------------------------------------------------- doing no harm


def test_stopping_without_watching_or_twice_is_fine(echo: Echo, new_logs: NewLogs) -> None:
    echo.stop(PATIENCE_S)
    echo.watch(1, new_logs(1).opened())
    echo.stop(PATIENCE_S)
    echo.stop(PATIENCE_S)
    echo.watch(2, {})
    echo.stop(PATIENCE_S)


def pipe_of_a_reader_that_left() -> io.TextIOWrapper:
    reads, writes = os.pipe()
    os.close(reads)
    return open(writes, "w", encoding="utf-8")


def closed_stream() -> io.TextIOWrapper:
    stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    stream.close()
    return stream


class Fragile(io.StringIO):
    """Fails in a way that no stream should."""

    def write(self, text: str) -> int:
        raise ZeroDivisionError


@pytest.mark.parametrize("new_stream", [pipe_of_a_reader_that_left, closed_stream])
def test_a_stream_that_nobody_reads_ends_it_quietly(
    new_stream: Callable[[], io.TextIOWrapper], new_logs: NewLogs, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    logs, stream = new_logs(1), new_stream()
    logs.say(0, "anybody there?\n")
    echo = Echo(stream)
    echo.watch(1, logs.opened())
    echo.stop(PATIENCE_S)
    echo.watch(2, logs.opened())
    echo.stop(PATIENCE_S)
    with contextlib.suppress(OSError):
        stream.close()

    assert caplog.text == ""


def test_a_stream_that_breaks_is_told_of_once_with_the_place_of_the_logs(
    new_logs: NewLogs, caplog: pytest.LogCaptureFixture
) -> None:
    logs = new_logs(1)
    logs.say(0, "hello\n")
    echo = Echo(Fragile())
    echo.watch(1, logs.opened())
    echo.stop(PATIENCE_S)

    assert caplog.text.count("the output of workers is no longer shown") == 1
    assert str(logs.folder) in caplog.text


def test_without_a_stream_nothing_is_shown(
    new_logs: NewLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", None)
    logs = new_logs(1)
    logs.say(0, "hello\n")
    echo = Echo()
    echo.watch(1, logs.opened())
    echo.stop(PATIENCE_S)


def test_a_stream_that_blocks_holds_up_neither_a_start_nor_the_end(new_logs: NewLogs) -> None:
    reads, writes = os.pipe()
    stream = open(writes, "w", encoding="utf-8")  # noqa: SIM115
    os.set_blocking(writes, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writes, b"x" * 65536)
    os.set_blocking(writes, True)
    logs = new_logs(1)
    logs.say(0, "hello\n")
    echo = Echo(stream)
    for attempt in range(1, 4):
        echo.watch(attempt, logs.opened())
    echo.stop(timeout_s=0.05)
    is_blocked = any("holdfast-output" in thread.name for thread in threading.enumerate())
    while b"hello" not in os.read(reads, 1 << 20):
        pass  # reading lets the threads end
    stream.close()
    os.close(reads)

    assert is_blocked


def test_a_stream_that_will_not_wait_loses_what_it_cannot_take(new_logs: NewLogs) -> None:
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    logs = new_logs(1)
    logs.say(0, "hello\n")
    with open(writes, "w", encoding="utf-8") as stream:
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writes, b"x" * 65536)
        echo = Echo(stream)
        echo.watch(1, logs.opened())
        echo.stop(PATIENCE_S)
    os.close(reads)

    assert not any("holdfast-output" in thread.name for thread in threading.enumerate())


# ---------------------------------------------------------------------- finding logs


def test_logs_are_found_by_attempt_and_rank_in_the_order_of_numbers(tmp_path: Path) -> None:
    for name in ("attempt-2/rank-0.log", "attempt-10/rank-2.log", "attempt-10/rank-10.log"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "attempt-3").mkdir()
    (tmp_path / "attempt-10" / "notes.txt").touch()
    (tmp_path / "attempt-x").touch()

    by_attempt = find_logs(str(tmp_path))

    assert [(attempt, list(logs)) for attempt, logs in by_attempt.items()] == [
        (2, [0]),
        (10, [2, 10]),
    ]
    assert by_attempt[2][0] == str(tmp_path / "attempt-2" / "rank-0.log")
    assert find_logs(str(tmp_path / "nothing")) == {}


@pytest.mark.parametrize("read_bytes", [1, 7, 1 << 18])
def test_the_last_lines_of_a_log_are_read_from_its_end(
    tmp_path: Path, read_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_output, "READ_BYTES", read_bytes)
    path = tmp_path / "log"
    path.write_text("one\ntwo\r2\n\nfour é\n")

    assert last_lines(str(path), 2) == ["", "four é"]
    assert last_lines(str(path), 9) == ["one", "two\r2", "", "four é"]
    path.write_text("no newline")
    assert last_lines(str(path), 1) == ["no newline"]
    path.write_text("")
    assert last_lines(str(path), 5) == []
