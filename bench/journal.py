"""How many events a second become durable, and does each cost the same in a journal of any length?

Group commit is what is measured: threads that each wait for their event share an fsync, and so do
the events of one thread that has several on their way. The limit is the rate of the disk alone: a
line appended and fdatasync'ed, one at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
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
    def produce(_: int) -> None:
        for number in range(count // THREADS):
            journal.record(*event(number))

    with ThreadPoolExecutor(THREADS) as pool:
        return count // THREADS * THREADS / seconds(lambda: list(pool.map(produce, range(THREADS))))


def _fdatasync(path: Path) -> float:
    line = b"x" * 150 + b"\n"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)

    def append() -> None:
        for _ in range(RAW_APPENDS):
            os.write(handle, line)
            os.fdatasync(handle)

    try:
        return RAW_APPENDS / seconds(append)
    finally:
        os.close(handle)
