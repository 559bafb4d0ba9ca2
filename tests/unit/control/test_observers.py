from __future__ import annotations

from typing import Any

import pytest

from holdfast.control.observers import Observer, Observers


class Listener(Observer):
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def group_started(self, attempt: int, world_size: int, step: int | None) -> None:
        self.heard.append((attempt, world_size, step))


class Broken(Observer):
    def group_started(self, attempt: int, world_size: int, step: int | None) -> None:
        raise RuntimeError("a broken progress bar")


def test_those_that_override_a_method_are_told_and_in_order() -> None:
    first, second = Listener(), Listener()
    observers = Observers[Observer]([first, Observer(), second])

    observers.tell(Observer.group_started, 1, 2, None)
    observers.tell(Observer.group_started, 2, 2, 5)
    observers.tell(Observer.rank_reported, 0, 1, {})

    assert first.heard == second.heard == [(1, 2, None), (2, 2, 5)]


def test_what_one_raises_is_logged_and_the_others_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listener = Listener()

    Observers[Observer]([Broken(), listener]).tell(Observer.group_started, 1, 2, None)

    assert listener.heard == [(1, 2, None)]
    assert "Broken failed at group_started; the run goes on" in caplog.text
    assert "a broken progress bar" in caplog.text


def test_there_may_be_none() -> None:
    assert not Observers[Observer]()
    Observers[Observer]().tell(Observer.group_started, 1, 2, None)
