"""Actors take turns, time passes when nobody can go on, and whoever waits for ever is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.stage import Killed, Process, Stage, Stuck
from tests.simulation.threads import (
    SimCondition,
    SimEvent,
    SimLock,
    SimQueue,
    SimThread,
)


@pytest.fixture
def stage() -> Stage:
    return Stage(ends=1000.0)


@pytest.fixture
def said(stage: Stage) -> Callable[[str], list[str]]:
    """Return what was said, and when, after having something said now."""
    lines: list[str] = []

    def say(line: str) -> list[str]:
        if line:
            lines.append(f"{stage.now:g} {line}")
        return lines

    return say


def test_who_sleeps_less_goes_on_first(stage: Stage, said: Callable[[str], list[str]]) -> None:
    def sleeper(name: str, seconds: float) -> Callable[[], None]:
        def sleep() -> None:
            stage.sleep(seconds)
            said(name)

        return sleep

    def play() -> None:
        others = [
            stage.start(Process("p"), name, sleeper(name, seconds))
            for name, seconds in (("b", 2.0), ("a", 1.0), ("c", 2.0))
        ]
        for other in others:
            stage.join(other)

    stage.play("root", play)

    assert said("") == ["1 a", "2 b", "2 c"]


def test_no_real_time_passes(stage: Stage) -> None:
    stage.play("root", lambda: stage.sleep(999.0))

    assert stage.now == 999.0


def test_nobody_runs_while_another_does(stage: Stage) -> None:
    running: list[str] = []

    def work() -> None:
        for _ in range(50):
            running.append("x")
            assert len(running) == 1
            running.pop()
            stage.sleep(0.001)

    def play() -> None:
        others = [stage.start(Process("p"), str(n), work) for n in range(5)]
        for other in others:
            stage.join(other)

    stage.play("root", play)

    assert running == []


def test_who_waits_for_ever_is_named(stage: Stage) -> None:
    def play() -> None:
        stage.start(Process("driver"), "listener", listen)
        stage.wait("the end of the world")

    def listen() -> None:
        stage.wait("word from nobody")

    with pytest.raises(Stuck) as caught:
        stage.play("root", play)

    assert "listener of driver waits for word from nobody" in str(caught.value)
    assert "root waits for the end of the world" in str(caught.value)


def test_a_play_that_takes_too_long_is_stuck(stage: Stage) -> None:
    with pytest.raises(Stuck, match="the time is up"):
        stage.play("root", lambda: stage.sleep(1001.0))


def test_a_play_that_goes_round_in_circles_is_stuck() -> None:
    stage = Stage(ends=1000.0, turns_max=500)

    def tick() -> None:
        while True:
            stage.wait("its own shadow", 0.0)

    with pytest.raises(Stuck, match="500 turns are taken after"):
        stage.play("root", tick)


def test_what_an_actor_raises_ends_the_play(stage: Stage) -> None:
    def fail() -> None:
        raise ValueError("no")

    def play() -> None:
        stage.start(Process("p"), "other", fail)
        stage.sleep(5.0)

    with pytest.raises(ValueError, match="no"):
        stage.play("root", play)
    assert stage.now == 0.0


def test_what_happens_by_itself_may_end_the_play(stage: Stage) -> None:
    def happen() -> None:
        raise ValueError("no")

    stage.at(3.0, happen)

    with pytest.raises(ValueError, match="no"):
        stage.play("root", lambda: stage.sleep(5.0))


def test_a_killed_process_has_no_effect_any_more(
    stage: Stage, said: Callable[[str], list[str]]
) -> None:
    victim = Process("victim")

    def suffer() -> None:
        try:
            stage.sleep(10.0)
            said("survived")
        finally:
            said("unwinds")
            with pytest.raises(Killed):
                stage.sleep(1.0)

    def begin() -> None:
        said("begun")

    def play() -> None:
        actor = stage.start(victim, "a", suffer)
        stage.start(victim, "b", begin)
        stage.at(1.0, lambda: stage.kill(victim))
        stage.join(actor)

    stage.play("root", play)

    assert said("") == ["0 begun", "1 unwinds"]


def test_whoever_is_left_at_the_end_unwinds(stage: Stage, said: Callable[[str], list[str]]) -> None:
    def linger() -> None:
        try:
            stage.wait("something")
        finally:
            said("unwinds")

    def play() -> None:
        stage.start(Process("p"), "lingers", linger)
        stage.sleep(1.0)

    stage.play("root", play)

    assert said("") == ["1 unwinds"]


def test_a_frozen_process_gets_no_turn(stage: Stage, said: Callable[[str], list[str]]) -> None:
    frozen = Process("frozen")

    def tick() -> None:
        for _ in range(3):
            stage.sleep(1.0)
            said("tick")

    def play() -> None:
        actor = stage.start(frozen, "a", tick)
        stage.at(1.5, lambda: stage.freeze(frozen, 10.0))
        stage.join(actor)

    stage.play("root", play)

    assert said("") == ["1 tick", "11.5 tick", "12.5 tick"]


# ---------------------------------------------------------------------- threads


def test_a_lock_is_had_by_one_at_a_time_in_order(
    stage: Stage, said: Callable[[str], list[str]]
) -> None:
    lock = SimLock(stage)

    def work(name: str) -> None:
        with lock:
            said(f"{name} has it")
            stage.sleep(1.0)

    def play() -> None:
        crew = [SimThread(stage, work, name, [name], {}) for name in "abc"]
        for thread in crew:
            thread.start()
        for thread in crew:
            thread.join()

    stage.play("root", play)

    assert said("") == ["0 a has it", "1 b has it", "2 c has it"]


def test_a_condition_is_waited_for_until_it_holds_or_the_time_is_up(
    stage: Stage, said: Callable[[str], list[str]]
) -> None:
    changed, facts = SimCondition(stage), list[int]()

    def wait(count: int, timeout: float | None) -> None:
        with changed:
            found = changed.wait_for(lambda: len(facts) >= count, timeout)
        said(f"{count} {bool(found)}")

    def play() -> None:
        crew = [
            SimThread(stage, wait, None, [1, None], {}),
            SimThread(stage, wait, None, [2, 5], {}),
        ]
        for thread in crew:
            thread.start()
        stage.sleep(2.0)
        with changed:
            facts.append(1)
            changed.notify_all()
        for thread in crew:
            thread.join()

    stage.play("root", play)

    assert said("") == ["2 1 True", "5 2 False"]


def test_a_full_queue_holds_up_who_puts(stage: Stage, said: Callable[[str], list[str]]) -> None:
    queue = SimQueue(stage, 1)

    def take() -> None:
        for _ in range(3):
            stage.sleep(1.0)
            said(f"got {queue.get()}")

    def play() -> None:
        thread = SimThread(stage, take, None, [], {})
        thread.start()
        for number in range(3):
            queue.put(number)
            said(f"put {number}")
        thread.join()
        assert not thread.is_alive()

    stage.play("root", play)

    assert said("") == ["0 put 0", "1 got 0", "1 put 1", "2 got 1", "2 put 2", "3 got 2"]


def test_an_event_is_waited_for(stage: Stage, said: Callable[[str], list[str]]) -> None:
    event = SimEvent(stage)

    def play() -> None:
        said(str(event.wait(1.0)))
        stage.at(3.0, event.set)
        said(str(event.wait(90.0)))
        event.clear()
        said(str(event.is_set()))

    stage.play("root", play)

    assert said("") == ["1 False", "3 True", "3 False"]
