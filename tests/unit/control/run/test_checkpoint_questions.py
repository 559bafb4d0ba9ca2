"""Questions of workers about checkpoints are answered, also several at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import pytest

from holdfast.control.record.open_run import OpenTrainingRun
from holdfast.control.run.checkpoint_questions import CheckpointQuestions
from holdfast.control.run.group import Group
from holdfast.control.run.plan import Plan
from holdfast.core.checkpoint.record import RunRecord
from holdfast.core.checkpoint.retention import Retention
from holdfast.core.run.budget import Budget
from holdfast.core.run.validation import ValidationLedger
from holdfast.engine.base import Engine
from holdfast.wire import Asked, Listed


@dataclass
class Some:
    """A group as far as it is looked at here."""

    attempt: int = 1
    settled: int = 0
    made: dict[int, int] = field(default_factory=dict)  # reports, by rank

    def is_settled(self, index: int) -> bool:
        return index <= self.settled

    def behind(self, index: int) -> list[int]:
        return sorted(rank for rank, made in self.made.items() if made < index)

    def is_too_late(
        self, kind: str, index: int, since: float, missing: list[int], what: str, now: float
    ) -> bool:
        return bool(missing) and now - since >= 1800.0


@dataclass
class Scene:
    """A run and its engine, as far as they are looked at here."""

    record: RunRecord = field(default_factory=RunRecord)
    validations: ValidationLedger = field(default_factory=ValidationLedger)
    sent: list[tuple[int, Listed]] = field(default_factory=list)
    some: Some = field(default_factory=Some)

    def send(self, attempt: int, rank: int, listed: Listed) -> None:
        assert attempt == self.some.attempt
        self.sent.append((rank, listed))


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def questions(scene: Scene) -> CheckpointQuestions:
    plan = Plan(
        function=print,
        config=None,
        workers=2,
        budget=Budget(),
        retention=Retention(),
        log_folder="logs",
    )
    return CheckpointQuestions(cast(OpenTrainingRun, scene), cast(Engine, scene), plan)


def answer(questions: CheckpointQuestions, scene: Scene, now: float = 0.0) -> list[tuple[int, int]]:
    questions.answer(cast(Group, scene.some), now)
    return [(rank, listed.index) for rank, listed in scene.sent]


def test_two_threads_of_one_worker_that_ask_at_once_are_both_answered(
    questions: CheckpointQuestions, scene: Scene
) -> None:
    questions.add(0, Asked(1, 3, validated=False), 0.0)
    questions.add(0, Asked(2, 3, validated=False), 0.0)
    assert answer(questions, scene) == []
    scene.some.settled = 3

    assert answer(questions, scene) == [(0, 1), (0, 2)]
    assert questions.asking(cast(Group, scene.some)) == set()


def test_a_question_whose_time_was_up_is_not_answered_any_more(
    questions: CheckpointQuestions, scene: Scene
) -> None:
    questions.add(0, Asked(1, 3, validated=False), 0.0)
    questions.add(0, Asked(2, 0, validated=False, instead_of=1), 0.0)

    assert answer(questions, scene) == [(0, 2)]
    assert (
        questions.asking(cast(Group, scene.some)) == set()
    )  # else its worker would never count as hung


def test_a_rank_that_is_ahead_is_answered_when_the_others_have_reported_as_often(
    questions: CheckpointQuestions, scene: Scene
) -> None:
    scene.some.settled, scene.some.made = 9, {0: 2, 1: 3}
    questions.add(1, Asked(1, 3, validated=False), 0.0)
    assert answer(questions, scene) == []
    scene.some.made[0] = 3

    assert answer(questions, scene) == [(1, 1)]


def test_a_rank_that_waits_for_another_one_does_not_stop_the_clock_for_hangs(
    questions: CheckpointQuestions, scene: Scene
) -> None:
    scene.some.settled, scene.some.made = 9, {0: 2, 1: 3}
    questions.add(1, Asked(1, 3, validated=False), 0.0)
    questions.add(0, Asked(1, 2, validated=True), 0.0)

    assert questions.asking(cast(Group, scene.some)) == {0}


def test_a_question_does_not_wait_for_ever_for_a_rank_that_never_reports(
    questions: CheckpointQuestions, scene: Scene
) -> None:
    scene.some.settled, scene.some.made = 9, {0: 2, 1: 3}
    questions.add(1, Asked(1, 3, validated=False), 0.0)
    assert answer(questions, scene, now=1799.0) == []

    assert answer(questions, scene, now=1800.0) == [(1, 1)]
