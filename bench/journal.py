"""How many events a second become durable, and does each cost the same in a journal of any length?

Group commit is what is measured: threads that each wait for their event share an fsync, and so do
the events of one thread that has several on their way. The limit is the rate of the disk alone: a
line appended and fdatasync'ed, one at a time. Threads that wait have another limit, which is what
it takes to wake them: bare threads share a sync in the same way, and do nothing else.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.events import event, fill
from bench.question import Claim, Question, Setting, Side, at_least, at_most, ratio, seconds, value
from bench.runs import scratch_run
from holdfast.journal.journal import Journal

THREADS = 64
IN_FLIGHT = 256
RAW_APPENDS = 500
LINE = b"x" * 150 + b"\n"
GROWTH_EVENTS = 5000  # appended per measurement, to a journal that has many already
GROWTH_MAX = 1.25  # flat, as far as a disk that others use can show it


@contextmanager
def rate(setting: Setting) -> Iterator[Question]:
    """Ask for events per second; every event has been acknowledged when the time is taken."""
    with scratch_run(setting.folder / "run") as run:
        journal, count = run.journal, setting.scale.events // 5

        yield Question(
            f"journal: {count:,} events, each acknowledged",
            "events/s",
            [
                Side("pipelined", lambda: _pipelined(journal, count), ours=True),
                Side("threads", lambda: _threads(journal, count), ours=True),
                Side("bare threads", lambda: _bare_threads(setting.folder / "bare", count)),
                Side("fdatasync", lambda: _fdatasync(setting.folder / "raw")),
            ],
            [
                Claim(
                    f"events/s, one thread, {IN_FLIGHT} in flight",
                    value("pipelined"),
                    at_least(20_000),
                ),
                Claim(
                    f"events/s, {THREADS} threads, each waits",
                    value("threads"),
                    at_least(20_000),
                ),
                Claim(f"of bare threads, {THREADS} of them", ratio("threads", "bare threads")),
                Claim("events per raw fdatasync, one thread", ratio("pipelined", "fdatasync")),
                Claim(
                    f"events per raw fdatasync, {THREADS} threads", ratio("threads", "fdatasync")
                ),
            ],
        )


@contextmanager
def growth(setting: Setting) -> Iterator[Question]:
    """Ask for the cost of one more event in journals of several lengths."""
    lengths = setting.scale.growth
    with ExitStack() as runs:
        sides = []
        for length in lengths:
            run = runs.enter_context(scratch_run(setting.folder / str(length)))
            fill(run.journal, length)
            sides.append(_growth_side(run.journal, length))
        yield Question(
            "journal: cost of one more event",
            "µs",
            sides,
            _growth_claims(lengths),
        )


def _growth_side(journal: Journal, length: int) -> Side:
    def measure() -> float:
        return (
            seconds(lambda: fill(journal, GROWTH_EVENTS, in_flight=IN_FLIGHT)) / GROWTH_EVENTS * 1e6
        )

    return Side(f"after {length:,}", measure, ours=True)


def _growth_claims(lengths: Sequence[int]) -> list[Claim]:
    first, *others = lengths
    return [
        Claim(
            f"cost after {length:,} events, of that after {first:,}",
            ratio(f"after {length:,}", f"after {first:,}"),
            at_most(GROWTH_MAX) if length == lengths[-1] else None,
        )
        for length in others
    ]


def _pipelined(journal: Journal, count: int) -> float:
    return count / seconds(lambda: fill(journal, count, in_flight=IN_FLIGHT))


def _threads(journal: Journal, count: int) -> float:
    return _in_threads(lambda number: journal.record(*event(number)), count)


def _bare_threads(path: Path, count: int) -> float:
    with _appending(path) as handle:
        commit = _BareCommit(handle)
        return _in_threads(lambda _: commit.append(LINE), count)


def _in_threads(append: Callable[[int], object], count: int) -> float:
    """Return how many appends a second threads make that each wait for their own."""
    each = count // THREADS

    def produce(_: int) -> None:
        for number in range(each):
            append(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return each * THREADS / seconds(lambda: list(pool.map(produce, range(THREADS))))


class _BareCommit:
    """Group commit and nothing else: whoever finds nobody writing writes for all that wait."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._changed = threading.Condition()
        self._waiting: list[bytes] = []
        self._is_writing = False
        self._batch = 0  # the number of the one that is being gathered
        self._written = -1

    def append(self, line: bytes) -> None:
        with self._changed:
            self._waiting.append(line)
            mine = self._batch
            while self._is_writing and self._written < mine:
                self._changed.wait()
            if self._written >= mine:
                return
            lines, self._waiting = self._waiting, []
            self._batch, self._is_writing = mine + 1, True
        os.write(self._handle, b"".join(lines))
        os.fdatasync(self._handle)
        with self._changed:
            self._written, self._is_writing = mine, False
            self._changed.notify_all()


def _fdatasync(path: Path) -> float:
    with _appending(path) as handle:

        def append() -> None:
            for _ in range(RAW_APPENDS):
                os.write(handle, LINE)
                os.fdatasync(handle)

        return RAW_APPENDS / seconds(append)


@contextmanager
def _appending(path: Path) -> Iterator[int]:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        yield handle
    finally:
        os.close(handle)
