"""Logs are kept within their limit, and nothing that is written meanwhile is lost."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from holdfast.clock import SYSTEM_CLOCK
from holdfast.control.host import log_quota
from holdfast.control.host.log_quota import BYTES_MAX, LogRoom, bytes_allowed
from holdfast.engine import log_files
from holdfast.engine.log_files import MARK, cut_middle, used_bytes
from holdfast.errors import ConfigError

MIB = 1 << 20


def write(folder: Path, attempt: int, size: int, rank: int = 0) -> Path:
    path = folder / f"attempt-{attempt}" / f"rank-{rank}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    line = f"{'x' * 62}\n".encode()
    path.write_bytes(b"first\n" + line * (size // len(line)) + b"last\n")
    return path


def room(folder: Path, bytes_max: int | None) -> LogRoom:
    return LogRoom(str(folder), bytes_max, SYSTEM_CLOCK)


def attempts(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_logs_within_the_limit_are_left_alone(tmp_path: Path) -> None:
    for attempt in (1, 2, 3, 4):
        write(tmp_path, attempt, MIB)
    before = [path.read_bytes() for path in sorted(tmp_path.glob("*/*"))]

    room(tmp_path, 8 * MIB).look(4)
    room(tmp_path, None).look(4)

    assert [path.read_bytes() for path in sorted(tmp_path.glob("*/*"))] == before


def test_the_oldest_attempts_go_first_and_only_as_many_as_it_takes(tmp_path: Path) -> None:
    for attempt in range(1, 12):
        write(tmp_path, attempt, MIB)

    room(tmp_path, 4 * MIB + MIB // 2).look(11)

    assert attempts(tmp_path) == ["attempt-10", "attempt-11", "attempt-8", "attempt-9"]


def test_this_attempt_and_the_one_before_lose_their_middle_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, 1, MIB)
    logs = [write(tmp_path, attempt, 8 * MIB) for attempt in (2, 3)]

    room(tmp_path, 4 * MIB).look(3)

    assert attempts(tmp_path) == ["attempt-2", "attempt-3"]
    for path in logs:
        assert used_bytes(str(path)) <= 2 * MIB
        told = path.read_bytes()
        assert told.startswith(b"first\n") and told.endswith(b"last\n")
        assert told.count(MARK) == 1
        assert f"{path} has lost its middle" in caplog.text


def test_a_log_that_goes_on_growing_is_cut_again_and_again(tmp_path: Path) -> None:
    path = write(tmp_path, 1, MIB)
    for _ in range(5):
        with path.open("ab") as file:
            file.write(b"more\n" * MIB)
        room(tmp_path, 2 * MIB).look(1)

        assert used_bytes(str(path)) <= 2 * MIB
    assert path.read_bytes().startswith(b"first\n")
    assert path.read_bytes().endswith(b"more\nmore\n")


@pytest.mark.parametrize("can_collapse", [True, False])
def test_what_is_written_while_a_log_is_cut_is_all_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, can_collapse: bool
) -> None:
    if not can_collapse:
        monkeypatch.setattr(log_files, "_COLLAPSE_RANGE", 1 << 30)  # which no disk knows
    path = write(tmp_path, 1, 8 * MIB)
    is_over = threading.Event()

    def go_on_writing() -> None:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND)
        for number in range(20_000):
            os.write(handle, f"line {number}\n".encode())
        os.close(handle)
        is_over.set()

    writer = threading.Thread(target=go_on_writing)
    writer.start()
    cuts = 0
    while not is_over.is_set():
        cuts += cut_middle(str(path), 4096, MIB)
    writer.join()

    told = path.read_bytes().decode().split("last\n")[1].splitlines()
    assert cuts > 0
    assert told == [f"line {number}" for number in range(20_000)]


def test_where_logs_cannot_be_cut_that_is_said_once_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log_quota, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(log_files, "_COLLAPSE_RANGE", 1 << 30)
    monkeypatch.setattr(log_files, "_PUNCH_HOLE", 1 << 30)
    write(tmp_path, 1, 8 * MIB)
    kept = room(tmp_path, MIB)

    kept.look(1)
    kept.look(1)

    assert caplog.text.count("may take more room than they should: this disk cannot cut them") == 1


def test_a_folder_that_is_not_there_is_no_trouble(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    room(tmp_path / "none", 1).look(1)

    assert caplog.text == ""


def test_the_limit_is_looked_at_only_now_and_then(tmp_path: Path) -> None:
    kept = room(tmp_path, 2 * MIB)
    kept.look(9)
    for attempt in (1, 8, 9):
        write(tmp_path, attempt, MIB)

    kept.look(9)

    assert len(attempts(tmp_path)) == 3


@pytest.mark.parametrize(("said", "meant"), [("", BYTES_MAX), ("0", None), ("1000", 1000)])
def test_the_limit_is_chosen_by_a_variable(
    monkeypatch: pytest.MonkeyPatch, said: str, meant: int | None
) -> None:
    monkeypatch.setenv("HOLDFAST_LOG_BYTES", said)

    assert bytes_allowed() == meant


@pytest.mark.parametrize("said", ["1 GB", "-1", "1e9"])
def test_a_limit_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setenv("HOLDFAST_LOG_BYTES", said)

    with pytest.raises(ConfigError, match=r"HOLDFAST_LOG_BYTES=.* whole number of bytes"):
        bytes_allowed()
