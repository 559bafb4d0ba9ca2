"""The output of workers: finds their logs, and shows in the driver what is added to them.

Workers write to files, so a driver can neither lose nor delay what they print. What is shown is a
courtesy: it is cut short when there is too much, it ends quietly when the stream is closed, and it
can neither delay a run nor fail it.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import select
import sys
import threading
import time
from collections.abc import Mapping
from typing import TextIO

from holdfast.core.log_lines import (
    RAISED,
    LeftOut,
    Line,
    LineCutter,
    Together,
    ranks_text,
    shown_plainly,
)
from holdfast.engine.base import WorkerLog
from holdfast.storage.local.errors import explained

log = logging.getLogger(__name__)

TICK_S = 0.1
WINDOW_S = 0.5
LINES_MAX = 200  # a second
PROGRESS_S = 5.0  # between two states of a progress bar
STOP_TIMEOUT_S = 1.0
READ_BYTES = 1 << 18
BACKLOG_BYTES = 1 << 17  # if more comes in a tick, only `KEPT_BYTES` of it are read
KEPT_BYTES = 1 << 15
_ATTEMPT = re.compile(r"attempt-(\d+)")
_RANK = re.compile(r"rank-(\d+)\.log")


# ---------------------------------------------------------------------- finding logs


def find_logs(folder: str) -> dict[int, dict[int, str]]:
    """Return the paths of all logs, by attempt and rank, both ascending."""
    by_attempt: dict[int, dict[int, str]] = {}
    for attempt, subfolder in _numbered(folder, _ATTEMPT):
        if logs := dict(_numbered(subfolder, _RANK)):
            by_attempt[attempt] = logs
    return by_attempt


def _numbered(folder: str, pattern: re.Pattern[str]) -> list[tuple[int, str]]:
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    matches = [(name, pattern.fullmatch(name)) for name in names]
    return sorted((int(m[1]), os.path.join(folder, name)) for name, m in matches if m is not None)


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file; if it is a pipe, without waiting for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def last_lines(path: str, count: int) -> list[str]:
    """Return the last lines of a log, reading little more of it than these."""
    with explained("read", path, None), open(path, "rb", opener=_open_without_waiting) as file:
        start = file.seek(0, os.SEEK_END)
        data = b""
        while start > 0 and data.count(b"\n") <= count:
            size = min(READ_BYTES, start)
            start -= size
            file.seek(start)
            data = file.read(size) + data
    # Only at newlines: progress bars are full of other line ends.
    lines = data.decode(errors="replace").removesuffix("\n").split("\n") if data else []
    return lines[-count:]


# ---------------------------------------------------------------------- showing logs


class Echo:
    """Shows what the workers of a group print, each line with the ranks that printed it.

    Args:
        stream: Where to write; stderr by default. Its errors are never raised.
        window_s: Equal lines of several ranks within this time are shown once.
        lines_max: How many lines to show in a second; more are left out, with a note.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        window_s: float = WINDOW_S,
        lines_max: int = LINES_MAX,
    ) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._window_s, self._lines_max = window_s, lines_max
        self._watched: _GroupEcho | None = None

    def watch(self, attempt: int, logs: Mapping[int, WorkerLog]) -> None:
        """Show what is added to these logs, given by rank, and close them in the end.

        What is left of the group before is shown first. Returns at once.
        """
        before = self._watched
        if before is not None:
            before.end()
        together = Together(logs, window_s=self._window_s, lines_max=self._lines_max)
        self._watched = _GroupEcho(self._stream, attempt, logs, together, before)
        try:
            self._watched.start()
        except RuntimeError as error:  # no more threads can be started
            log.warning("the output of attempt %d is not shown: %s", attempt, error)
            self._watched = None

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Return once everything in the logs was shown, or after `timeout_s`."""
        watched, self._watched = self._watched, None
        if watched is not None:
            watched.end()
            watched.join(timeout_s)


class _GroupEcho(threading.Thread):
    """Follows the logs of one group, in a daemon thread."""

    def __init__(
        self,
        stream: TextIO | None,
        attempt: int,
        logs: Mapping[int, WorkerLog],
        together: Together,
        before: _GroupEcho | None,
    ) -> None:
        super().__init__(name=f"holdfast-output-{attempt}", daemon=True)
        self._stream, self._together, self._before = stream, together, before
        self._logs = {rank: _Tail(log) for rank, log in logs.items()}
        self._folder = next((os.path.dirname(log.where) for log in logs.values()), "")
        self._has_ended = threading.Event()
        self._progress_at = time.monotonic() + PROGRESS_S

    def end(self) -> None:
        """Show what is left in the logs, and end: nothing more is added to them."""
        self._has_ended.set()

    def run(self) -> None:
        if self._before is not None:
            self._before.join()
            self._before = None
        if self._stream is None:
            return
        try:
            with contextlib.closing(_Sink(self._stream)) as sink:
                while not self._has_ended.wait(TICK_S):
                    self._turn(sink, is_end=False)
                self._turn(sink, is_end=True)
        except (OSError, ValueError):  # the stream is closed, or nothing reads it any more
            log.debug("the output of workers is no longer shown", exc_info=True)
        except Exception:
            log.exception("the output of workers is no longer shown; it is in %s", self._folder)
        finally:
            for tail in self._logs.values():
                tail.close()

    def _turn(self, sink: _Sink, *, is_end: bool) -> None:
        now = time.monotonic()
        is_time = now >= self._progress_at
        if is_time:
            self._progress_at = now + PROGRESS_S
        for rank, tail in self._logs.items():
            for line in tail.read(is_end=is_end, with_progress=is_time):
                self._together.add(rank, line, now)
            if tail.skipped_bytes:
                self._together.skipped(rank, tail.skipped_bytes, now)
                tail.skipped_bytes = 0
        entries = self._together.take(now, is_end=is_end)
        if entries:
            sink.write("".join(self._text(entry, sink) for entry in entries))

    def _text(self, entry: Line | LeftOut, sink: _Sink) -> str:
        prefix = f"({ranks_text(entry.ranks)})"
        if sink.is_terminal:
            prefix = f"\x1b[36m{prefix}\x1b[0m"
        if isinstance(entry, Line):
            return f"{prefix} {shown_plainly(entry.text, keeps_colour=sink.is_terminal)}\n"
        counts = [f"{entry.lines} lines"] if entry.lines else []
        counts += [f"{entry.size_bytes / 1e6:.1f} MB"] if entry.size_bytes else []
        where = self._logs[min(entry.ranks)].where if len(entry.ranks) == 1 else self._folder
        return f"{prefix} … {' and '.join(counts)} left out; everything is in {where}\n"


class _Tail:
    """A log that is read as it grows."""

    def __init__(self, worker_log: WorkerLog) -> None:
        self._log = worker_log
        self.where = worker_log.where
        self.skipped_bytes = 0
        self._cutter = LineCutter()
        self._is_given_up = self._has_raised = False
        self._offset = 0

    def read(self, *, is_end: bool, with_progress: bool) -> list[str]:
        """Return the new lines; at the end also one that is not complete."""
        lines: list[str] = []
        if not self._is_given_up:
            try:
                end = self._seek()
                while self._offset < end and (data := self._read_some(end)):
                    lines += self._cutter.feed(data)
            except OSError as error:
                log.warning("%s cannot be read and is not shown: %s", self.where, error)
                self._is_given_up = True
                self.close()
        if is_end:
            lines += self._cutter.finish()
        elif with_progress and (state := self._cutter.progress()) is not None:
            lines.append(state)
        return self._without_final_trace(lines)

    def _without_final_trace(self, lines: list[str]) -> list[str]:
        """Return the lines before the worker's final traceback, which is shown elsewhere."""
        if self._has_raised:
            return []
        if RAISED in lines:
            self._has_raised = True
            return lines[: lines.index(RAISED)]
        return lines

    def _seek(self) -> int:
        """Move to where reading continues, skipping a long backlog; return up to where to read."""
        size = self._log.size_bytes()
        if size < self._offset:  # it was cut, to make room
            self._offset = 0
            self._cutter.skip()
        if size - self._offset > BACKLOG_BYTES:
            self.skipped_bytes += size - KEPT_BYTES - self._offset
            self._offset = size - KEPT_BYTES
            self._cutter.skip()
        return size

    def _read_some(self, end: int) -> bytes:
        data = self._log.read(self._offset, min(READ_BYTES, end - self._offset))
        self._offset += len(data)
        return data

    def close(self) -> None:
        self._log.close()


class _Sink:
    """Writes lines to a stream.

    A real file is written to directly, not through the stream: if Python exits while a thread is
    inside a stream, the stream stays locked, and Python aborts.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._handle: int | None = None
        self.is_terminal = stream.isatty()
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(io.UnsupportedOperation):
                self._handle = os.dup(stream.fileno())

    def write(self, text: str) -> None:
        if self._handle is None:
            self._stream.write(text)
            self._stream.flush()
            return
        data = memoryview(text.encode(self._stream.encoding, errors="backslashreplace"))
        while len(data):
            try:
                data = data[os.write(self._handle, data) :]
            except BlockingIOError:
                if not select.select([], [self._handle], [], 1.0)[1]:
                    return  # it is full and stays full; the rest is in the logs

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
