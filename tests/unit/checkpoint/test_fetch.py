"""One copy per machine: real processes that overlap, follow each other, stop and die."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.checkpoint.fetch import fetch_once, let_go
from holdfast.core.manifest import FileEntry
from tests.patience import PATIENCE_S

Fetcher = subprocess.Popen[str]
Start = Callable[..., Fetcher]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with contextlib.ExitStack() as ended:

        def begin(*options: str) -> Fetcher:
            command = [sys.executable, "-m", "tests.unit.checkpoint.fetcher"]
            process = subprocess.Popen(
                [*command, str(tmp_path / "cache"), str(tmp_path / "log"), *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            ended.callback(end, process)
            return process

        yield begin


def end(process: Fetcher) -> None:
    if process.poll() is None:
        os.kill(process.pid, signal.SIGCONT)
    with contextlib.suppress(BrokenPipeError):
        process.communicate(timeout=PATIENCE_S)


def line(process: Fetcher) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def fills(tmp_path: Path) -> int:
    return len((tmp_path / "log").read_text().splitlines())


@pytest.mark.req("T-058", "T-059")
def test_processes_that_ask_at_once_share_one_copy(start: Start, tmp_path: Path) -> None:
    paths = {line(process) for process in [start() for _ in range(4)]}

    assert len(paths) == 1
    assert fills(tmp_path) == 1
    assert Path(paths.pop(), "inner", "config").read_bytes() == b"abc"


@pytest.mark.req("T-058", "T-059")
def test_a_process_that_asks_later_gets_the_same_copy(start: Start, tmp_path: Path) -> None:
    first = start()
    path = line(first)
    later = [start() for _ in range(2)]

    assert {line(process) for process in later} == {path}
    assert fills(tmp_path) == 1


def test_a_copy_is_removed_when_its_last_user_ends(start: Start) -> None:
    first, second = start(), start()
    path = Path(line(first))
    line(second)

    end(first)
    assert path.is_dir(), "the second process still uses it"
    end(second)
    assert list(path.parent.iterdir()) == []


def test_a_fetcher_that_dies_is_replaced_and_its_part_is_never_seen(
    start: Start, tmp_path: Path
) -> None:
    dying = start("--stuck")
    assert line(dying) == "stuck"
    waiting = start()

    os.kill(dying.pid, signal.SIGKILL)
    path = Path(line(waiting))

    assert (path / "weights.bin").read_bytes() == b"w" * 1000
    assert fills(tmp_path) == 2


def test_a_fetcher_that_stops_does_not_stop_the_others(start: Start, tmp_path: Path) -> None:
    stopped = start("--stuck")
    assert line(stopped) == "stuck"
    os.kill(stopped.pid, signal.SIGSTOP)

    path = Path(line(start("--stall", "0.2")))

    assert (path / "weights.bin").read_bytes() == b"w" * 1000
    os.kill(stopped.pid, signal.SIGKILL)


def test_what_a_killed_process_left_is_swept_by_the_next(start: Start, tmp_path: Path) -> None:
    killed = start()
    left = Path(line(killed))
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    assert left.is_dir()

    root = tmp_path / "cache"
    fetch_once("another", lambda folder: None, (), root=root)
    assert not left.exists()
    let_go()
    assert list(root.iterdir()) == []


def test_the_end_of_a_forked_child_leaves_the_parent_its_copy(tmp_path: Path) -> None:
    script = f"""
import os, sys
from pathlib import Path
from holdfast.checkpoint.fetch import fetch_once
path = fetch_once("x", lambda folder: Path(folder, "f").touch(), (), root=Path({str(tmp_path)!r}))
if (child := os.fork()) == 0:
    sys.exit(0)  # runs the exit handlers it inherited
os.waitpid(child, 0)
sys.exit(0 if (path / "f").exists() else 1)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_a_failed_fetch_leaves_nothing_and_can_be_tried_again(tmp_path: Path) -> None:
    def fail(folder: str) -> None:
        Path(folder, "half").touch()
        raise BlockingIOError("not the lock's own error")

    with pytest.raises(BlockingIOError):
        fetch_once("x", fail, (), root=tmp_path)
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []

    path = fetch_once("x", lambda folder: Path(folder, "f").touch(), (), root=tmp_path)
    assert (path / "f").exists()
    let_go()


def test_a_copy_that_was_cut_by_somebody_is_made_again(tmp_path: Path) -> None:
    files = [FileEntry("f", 4, "")]

    def fill(folder: str) -> None:
        Path(folder, "f").write_bytes(b"good")

    path = fetch_once("x", fill, files, root=tmp_path)
    (path / "f").write_bytes(b"go")

    assert (fetch_once("x", fill, files, root=tmp_path) / "f").read_bytes() == b"good"
    let_go()
