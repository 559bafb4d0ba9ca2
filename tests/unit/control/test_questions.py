"""What workers ask about checkpoints is answered, whoever asks besides."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import pytest

from holdfast.control.group import Group
from holdfast.control.open_run import OpenRun
from holdfast.control.plan import Plan
from holdfast.control.questions import Questions
from holdfast.core.budget import Budget
from holdfast.core.record import RunRecord
from holdfast.core.retention import Retention
from holdfast.core.validation import ValidationLedger
from holdfast.engine.base import Engine
from holdfast.wire import Asked, Listed


@dataclass
class Some:
    """A group as far as it is looked at here."""

    attempt: int = 1
    settled: int = 0

    def has_reported(self, index: int) -> bool:
        return index <= self.settled


@dataclass
class Scene:
    """A run and its engine, as far as they are looked at here."""

    record: RunRecord = field(default_factory=RunRecord)
    sent: list[tuple[int, Listed]] = field(default_factory=list)
    some: Some = field(default_factory=Some)

    def send(self, attempt: int, rank: int, listed: Listed) -> None:
        assert attempt == self.some.attempt
        self.sent.append((rank, listed))


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def questions(scene: Scene) -> Questions:
    plan = Plan(
        function=print,
        config=None,
        workers=2,
        budget=Budget(),
        retention=Retention(),
        log_folder="logs",
    )
    return Questions(cast(OpenRun, scene), cast(Engine, scene), plan, ValidationLedger())


def answer(questions: Questions, scene: Scene) -> list[tuple[int, int]]:
    questions.answer(cast(Group, scene.some))
    return [(rank, listed.index) for rank, listed in scene.sent]


def test_two_threads_of_one_worker_that_ask_at_once_are_both_answered(
    questions: Questions, scene: Scene
) -> None:
    questions.add(0, Asked(1, 3, validated=False))
    questions.add(0, Asked(2, 3, validated=False))
    assert answer(questions, scene) == []
    scene.some.settled = 3

    assert answer(questions, scene) == [(0, 1), (0, 2)]
    assert questions.asking == set()


def test_a_question_whose_time_was_up_is_not_answered_any_more(
    questions: Questions, scene: Scene
) -> None:
    questions.add(0, Asked(1, 3, validated=False))
    questions.add(0, Asked(2, 0, validated=False, instead_of=1))

    assert answer(questions, scene) == [(0, 2)]
    assert questions.asking == set()  # else its worker would never count as hung
