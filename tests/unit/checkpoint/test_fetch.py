"""One copy per machine: real processes that overlap, follow each other, stop and die."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.checkpoint import fetch
from holdfast.checkpoint.fetch import (
    CopyKeeper,
    fetch_once,
    keep_idle_copies,
    let_go,
    using_copy,
)
from holdfast.core.checkpoint.manifest import FileEntry
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


@pytest.mark.parametrize("how", ["in place", "and its time set back", "replaced", "no stamps"])
def test_a_copy_that_somebody_wrote_to_is_made_again(tmp_path: Path, how: str) -> None:
    """As many bytes as before, but not those that were saved."""
    files = [FileEntry("weights", 4, "")]
    root = tmp_path / "cache"

    def fill(folder: str) -> None:
        Path(folder, "weights").write_bytes(b"good")

    copy = fetch_once("one", fill, files, root=root)
    weights = copy / "weights"
    before = weights.stat()
    if how == "replaced":
        Path(tmp_path, "other").write_bytes(b"evil")
        os.replace(tmp_path / "other", weights)
    elif how == "no stamps":
        (root / "one.stamps").unlink()
    else:
        weights.write_bytes(b"evil")
    if how == "and its time set back":
        os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))

    again = fetch_once("one", fill, files, root=root)

    assert (again / "weights").read_bytes() == b"good"
    let_go(root)
    assert list(root.iterdir()) == []


# ---------------------------------------------------------------------- copies for a while


def fill(folder: str) -> None:
    Path(folder, "f").write_bytes(b"x" * 4096)


@pytest.fixture
def is_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "_keeps_idle", False)  # and so again after the test
    keep_idle_copies()


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def test_a_copy_is_removed_when_the_last_one_in_the_process_has_left(tmp_path: Path) -> None:
    with using_copy("x", fill, (), root=tmp_path) as outer:
        with using_copy("x", fill, (), root=tmp_path) as inner:
            assert inner == outer
        assert (outer / "f").exists()

    assert names(tmp_path) == []


def test_a_copy_is_removed_after_an_error_too(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), using_copy("x", fill, (), root=tmp_path):
        raise ZeroDivisionError

    assert names(tmp_path) == []


def test_a_thread_that_is_still_inside_keeps_the_copy(tmp_path: Path) -> None:
    is_inside, may_leave = threading.Event(), threading.Event()
    seen = []

    def look() -> None:
        with using_copy("x", fill, (), root=tmp_path) as copy:
            is_inside.set()
            may_leave.wait(PATIENCE_S)
            seen.append((copy / "f").exists())

    thread = threading.Thread(target=look)
    with using_copy("x", fill, (), root=tmp_path):
        thread.start()
        assert is_inside.wait(PATIENCE_S)
    may_leave.set()
    thread.join()

    assert seen == [True] and names(tmp_path) == []


def test_another_process_that_is_inside_keeps_the_copy(start: Start, tmp_path: Path) -> None:
    other = start()
    copy = Path(line(other))
    with using_copy("some-checkpoint", fill, (), root=copy.parent) as same:
        assert same == copy
    assert copy.is_dir()

    end(other)

    assert not copy.exists()


def test_what_was_fetched_for_good_outlives_a_visit(tmp_path: Path) -> None:
    copy = fetch_once("x", fill, (), root=tmp_path)
    with using_copy("x", fill, (), root=tmp_path):
        pass
    assert copy.is_dir()

    let_go()

    assert names(tmp_path) == []


@pytest.mark.usefixtures("is_worker")
def test_a_worker_keeps_what_it_used_last_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "IDLE_BYTES_MAX", 3 * 4096)
    for name in ("a", "b", "a", "c", "d", "e"):
        with using_copy(name, fill, (), root=tmp_path):
            pass
    copies = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    let_go()

    assert copies == {"c", "d", "e"}


@pytest.mark.usefixtures("is_worker")
def test_a_worker_does_not_remove_what_it_is_using_however_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "IDLE_BYTES_MAX", 0)
    with using_copy("a", fill, (), root=tmp_path) as first:
        with using_copy("b", fill, (), root=tmp_path) as second:
            pass
        assert first.is_dir() and not second.exists()
    let_go()


def test_a_keeper_keeps_the_copy_of_one_checkpoint_at_a_time(tmp_path: Path) -> None:
    """Its users may all have been killed: those that start again find it."""
    keeper = CopyKeeper(tmp_path)
    for name in ("a", "b"):
        keeper.keep(name)
        with using_copy(name, fill, (), root=tmp_path):
            pass
        assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [name]

    keeper.close()
    keeper.close()

    assert names(tmp_path) == []


def test_a_forked_child_does_not_remove_what_its_parent_uses(tmp_path: Path) -> None:
    with using_copy("x", fill, (), root=tmp_path) as copy:
        child = os.fork()
        if child == 0:
            with using_copy("x", fill, (), root=tmp_path):
                pass
            os._exit(0 if copy.is_dir() else 1)
        _, status = os.waitpid(child, 0)
        assert status == 0 and copy.is_dir()

    assert names(tmp_path) == []


def test_a_copy_that_is_completed_while_others_look_at_its_progress_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = tmp_path / "abc.part-1"
    (part / "deep").mkdir(parents=True)
    (part / "deep" / "file").write_bytes(b"1")
    scan = os.scandir

    def scan_late(folder: str) -> object:
        """Rename a copy when somebody is about to look into it."""
        if str(folder).startswith(str(part)) and part.exists():
            part.rename(tmp_path / "abc")
        return scan(folder)

    monkeypatch.setattr(os, "scandir", scan_late)

    assert fetch._progress_of(tmp_path, "abc")() == 0  # noqa: SLF001
    assert not part.exists()
