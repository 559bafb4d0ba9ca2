"""The watch over progress, under jobs of all manners: the healthy are left alone, the dead found.

A job here is what a person would call healthy: no silence of a worker is more than ten times the
longest that was heard to end, the first step takes what it takes, checkpoints are slow, and the
driver is put to sleep at the worst moments.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.run.hang_detection import Learned, Progress

SILENCE_S = 600.0  # what every job may take for a step, whatever it did before
SILENCE_MAX_S = 10_000.0  # or tenfold after tenfold would take for ever to try
TICK_S = 4.0  # as long as a tick may take without being a sleep, so that a test is quick


@dataclass(frozen=True)
class Step:
    """Work up to the next reports: `size` of the longest that a healthy job may take."""

    size: float
    meets: bool = False


@dataclass(frozen=True)
class Save:
    """A step, and then rank `saver` stores for as long as it likes while all others wait."""

    seconds: float
    saver: int


@dataclass(frozen=True)
class Sleep:
    """A step, in the middle of which the driver, and only it, sleeps."""

    size: float
    seconds: float


@dataclass(frozen=True)
class Restart:
    """A new attempt, which may first repeat all the work that was done."""

    size: float


Phase = Step | Save | Sleep | Restart
sizes = st.floats(0.001, 1.0)
seconds = st.floats(0.5, 6000.0)
phases = st.lists(
    st.one_of(
        st.builds(Step, st.sampled_from([0.001, 0.01]), st.booleans()),
        st.builds(Step, sizes, st.booleans()),
        st.builds(Save, seconds, st.integers(0, 3)),
        st.builds(Sleep, sizes, seconds),
        st.builds(Restart, sizes),
    ),
    min_size=6,
    max_size=14,
)
reporters = st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True)


class Run:
    """A job of four ranks, of which `reporters` report; asserts at every tick that it lives."""

    def __init__(
        self,
        timeout_s: float | None,
        reporters: Sequence[int],
        silence_max_s: float = SILENCE_MAX_S,
    ) -> None:
        self.timeout_s, self.reporters, self.silence_max_s = timeout_s, reporters, silence_max_s
        self.now, self.longest, self.worked = 50.0, 0.0, 0.0
        self.learned = Learned()
        self.begin()

    def begin(self) -> None:
        self.progress = Progress(range(4), self.timeout_s, self.now, self.learned)
        for rank in range(4):
            self.progress.gave_sign(rank, self.now)

    def allowed(self, repeated_s: float = 0.0) -> float:
        if self.timeout_s is not None:
            return 0.9 * self.timeout_s
        return min(max(SILENCE_S, 10.0 * self.longest, repeated_s), self.silence_max_s)

    def listen(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now = min(self.now + TICK_S, until)
            assert self.progress.hung(self.now) is None, "a healthy job was called hung"

    def work(self, seconds: float) -> None:
        self.listen(seconds)
        self.longest, self.worked = max(self.longest, seconds), self.worked + seconds

    def report(self) -> None:
        for rank in self.reporters:
            assert self.progress.hung(self.now) is None
            self.progress.reported(rank, self.now)

    def first_step(self, seconds: float) -> None:
        self.work(seconds)
        self.report()

    def live(self, phase: Phase) -> None:
        match phase:
            case Step(size, meets):
                self.work(size * self.allowed())
                if meets:
                    for rank in range(4):
                        self.progress.gave_sign(rank, self.now)
                    self.work(size * self.allowed())
            case Save(seconds, saver):
                self.progress.busy(saver, self.now)
                self.listen(seconds)
                self.progress.not_busy(saver, self.now)
                self.work(min(20.0, self.allowed() / 2))
            case Sleep(size, seconds):
                before = size * self.allowed() / 2
                self.listen(before)
                self.now += seconds
                assert self.progress.hung(self.now) is None, "the driver's sleep was held against"
                self.listen(before)
                self.worked += 2 * before
            case Restart(size):
                self.begin()
                self.work(size * self.allowed(repeated_s=self.worked))
        self.report()


@settings(max_examples=50)
@given(st.floats(1.0, 5000.0), reporters, phases)
def test_a_healthy_job_is_never_called_hung(
    first_step_s: float, reporters: list[int], phases: list[Phase]
) -> None:
    run = Run(None, reporters)
    run.first_step(first_step_s)

    for phase in phases:
        run.live(phase)


@settings(max_examples=50)
@given(st.floats(8.0, 4000.0), reporters, phases)
def test_a_job_within_the_time_that_was_given_is_never_called_hung(
    timeout_s: float, reporters: list[int], phases: list[Phase]
) -> None:
    run = Run(timeout_s, reporters)

    for phase in phases:
        run.live(phase)


@settings(max_examples=50)
@given(
    st.none() | st.floats(8.0, 4000.0),
    st.floats(1.0, 600.0),
    reporters,
    phases,
    st.lists(st.tuples(st.floats(0.0, 1.0), seconds), max_size=3),
)
def test_a_job_that_stops_is_found_within_twice_the_timeout(
    timeout_s: float | None,
    first_step_s: float,
    reporters: list[int],
    phases: list[Phase],
    sleeps: list[tuple[float, float]],
) -> None:
    """However it lived before; the driver may sleep, and only what it listens to counts."""
    run = Run(timeout_s, reporters, silence_max_s=1000.0)
    run.first_step(min(first_step_s, run.allowed()))
    for phase in [*phases, *[Step(0.001)] * 6]:
        run.live(phase)
    allowed = run.progress.timeout_s
    assert math.isfinite(allowed)

    naps = sorted((at * allowed, length) for at, length in sleeps)
    listened, found = 0.0, None
    while found is None and listened < 2 * allowed:
        while naps and naps[0][0] <= listened:
            run.now += naps.pop(0)[1]
        run.now += min(TICK_S, allowed / 8)
        listened += min(TICK_S, allowed / 8)
        found = run.progress.hung(run.now)
    assert found is not None, "a dead job was not found"
    assert listened > 0.9 * allowed, "it was given up too soon"
    assert found.first in reporters


@settings(max_examples=50)
@given(st.integers(0, 3), st.integers(1, 20), st.floats(0.1, 60.0))
def test_one_rank_that_stops_is_found_while_the_others_go_on(
    stopped: int, steps: int, step_s: float
) -> None:
    run = Run(None, range(4))
    for _ in range(5 + steps):
        run.work(step_s)
        run.report()
    allowed = run.progress.timeout_s

    passed, found = 0.0, None
    while found is None and passed < 2 * allowed:
        run.now += min(TICK_S, step_s)
        passed += min(TICK_S, step_s)
        found = run.progress.hung(run.now)
        for rank in {*range(4)} - {stopped}:
            run.progress.reported(rank, run.now)
    assert found is not None
    assert found.first == stopped
