"""What training functions of these tests are made of; it runs inside workers.

A loop writes down what it sees, one line of JSON per fact, in a file that outlives it. A line is
appended with one write, so that no death can tear it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from holdfast import train
from holdfast.train import Checkpoint
from tests.patience import pause

STATE = "state.json"
BELL = "bell"  # a named pipe beside the notes, for a test that waits for the next one


# ---------------------------------------------------------------------- what a loop notes


def note(notes: Path, **facts: Any) -> None:
    """Append one line to the notes; it is there whatever happens next."""
    line = json.dumps(facts).encode() + b"\n"
    handle = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, line)
    os.close(handle)
    with contextlib.suppress(OSError):  # nobody listens, or it is ringing already
        bell = os.open(notes.with_name(BELL), os.O_WRONLY | os.O_NONBLOCK)
        os.write(bell, b".")
        os.close(bell)


def read_notes(notes: Path, what: str) -> list[dict[str, Any]]:
    """Return the facts of one kind, in the order they were noted."""
    if not notes.exists():
        return []
    facts = [json.loads(line) for line in notes.read_text().splitlines()]
    return [fact for fact in facts if fact["what"] == what]


def begin(notes: Path) -> int:
    """Note that this rank has begun, and with what; return the step to begin with."""
    context = train.get_context()
    saved = load()
    before = [fact["pid"] for fact in read_notes(notes, "began") if fact["ppid"] == os.getppid()]
    alive = [pid for pid in before if is_running(pid)]
    note(
        notes,
        what="began",
        rank=context.get_world_rank(),
        world_size=context.get_world_size(),
        pid=os.getpid(),
        ppid=os.getppid(),
        step=saved,
        before=len(before),
        alive=alive,
    )
    return 0 if saved is None else saved + 1


def is_running(pid: int) -> bool:
    """Whether there is such a process that is more than an entry waiting to be reaped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


# ---------------------------------------------------------------------- saving and loading


def load() -> int | None:
    """Return the step of the checkpoint that this worker was given, None if it has none."""
    checkpoint = train.get_checkpoint()
    if checkpoint is None:
        return None
    with checkpoint.as_directory() as folder:
        step = json.loads((Path(folder) / STATE).read_text())["step"]
        assert isinstance(step, int)
        return step


def save(step: int, *, kind: type[Checkpoint] = Checkpoint, **metrics: Any) -> None:
    """Report a checkpoint of this step; every rank saves the same file."""
    with folder_with({STATE: json.dumps({"step": step})}) as folder:
        train.report({"step": step, **metrics}, checkpoint=kind.from_directory(folder))


@contextlib.contextmanager
def folder_with(files: Mapping[str, str]) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            Path(folder, name).write_text(text)
        yield folder


# ---------------------------------------------------------------------- waiting and dying


def wait_for(path: Path) -> None:
    """Return once there is such a file; a test that waits in vain is ended by its timeout."""
    while not path.exists():
        pause()


def functions_of(thread: int) -> list[str]:
    """Return the names of the functions that a thread is in, innermost first."""
    names, frame = [], sys._current_frames()[thread]  # noqa: SLF001  # Python's own name for it
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back  # type: ignore[assignment]
    return names


def is_first(mark: Path) -> bool:
    """Whether this is the first call with this mark, of all processes."""
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _raise(error: BaseException) -> None:
    raise error


DEATHS: dict[str, Callable[[], object]] = {
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGABRT": lambda: os.kill(os.getpid(), signal.SIGABRT),
    "segfault": lambda: ctypes.string_at(0),
    "abort": os.abort,
    "os._exit(0)": lambda: os._exit(0),
    "os._exit(1)": lambda: os._exit(1),
    "sys.exit(0)": lambda: sys.exit(0),
    "ValueError": lambda: _raise(ValueError("loss is nan")),
    "OSError": lambda: _raise(OSError("storage went away")),
    "MemoryError": lambda: _raise(MemoryError("CUDA out of memory")),
    "KeyboardInterrupt": lambda: _raise(KeyboardInterrupt()),
}


def die(way: str) -> None:
    """End this worker, in one of the ways in which workers end."""
    DEATHS[way]()
    signal.pause()  # a signal may come a moment late


class Interrupted(Checkpoint):
    """A checkpoint whose worker is killed while its files are on their way."""

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        die("SIGKILL")
        yield ""


# ---------------------------------------------------------------------- a whole loop


def train_until_death(notes: Path, way: str, moment: str, dying: set[int]) -> None:
    """Save every step; in step 1 of the first attempt, the ranks that are to die do."""
    rank = train.get_context().get_world_rank()
    doomed = rank in dying and is_first(notes.with_name(f"death of {rank}"))
    if doomed and moment == "at launch":
        die(way)
    for step in range(begin(notes), 3):
        if doomed and step == 1 and moment == "before report":
            die(way)
        save(step, kind=Interrupted if doomed and step == 1 and moment == "in" else Checkpoint)
        if doomed and step == 1 and moment == "after report":
            die(way)
        note(notes, what="did", rank=rank, step=step)
