"""How long the rest of a group may go on when a worker is lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import pytest

from holdfast.control.run.grace import CAUSE_S, FINISH_SAVE_S, Grace
from holdfast.control.run.group import Group
from holdfast.core.run.outcomes import Died, Finished, Raised, WorkerExit
from tests.clocks import FakeClock

GONE = Raised(0, "n", "RuntimeError: Connection closed by peer", "")
BUG = Raised(1, "n", "ValueError: loss is nan", "")
DEAD = Died(1, "n", 7, signal=9)
DONE = Finished(2, "n")


@dataclass
class Some:
    """A group as far as it is looked at here."""

    exits: dict[int, WorkerExit] = field(default_factory=dict)
    is_over: bool = False
    saves: bool = False

    def is_finishing_a_save(self) -> bool:
        return self.saves


class Scene:
    def __init__(self) -> None:
        self.clock, self.some = FakeClock(), Some()
        self.moments = Grace(self.clock)

    def lose(self, *exits: WorkerExit) -> None:
        for ended in exits:
            self.some.exits[ended.rank] = ended
            if not isinstance(ended, Finished):
                self.moments.lost()

    def are_over(self, after_s: float = 0.0) -> bool:
        self.clock.sleep(after_s)
        return self.moments.is_over(cast(Group, self.some))


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_group_that_has_lost_nobody_goes_on(scene: Scene) -> None:
    scene.lose(DONE)

    assert not scene.are_over(1e6)
    assert scene.moments.left_s() is None


@pytest.mark.parametrize("lost", [[BUG], [DEAD], [GONE, BUG], [GONE, DEAD], [DONE, DEAD]])
def test_a_group_whose_loss_has_a_cause_is_stopped_at_once(
    scene: Scene, lost: list[WorkerExit]
) -> None:
    scene.lose(*lost)

    assert scene.are_over()


def test_the_cause_of_what_survivors_say_is_waited_for_but_not_for_long(scene: Scene) -> None:
    scene.lose(DONE, GONE)

    assert not scene.are_over()
    assert not scene.are_over(CAUSE_S * 0.9)
    left_s = scene.moments.left_s()
    assert left_s is not None and scene.are_over(left_s)


def test_once_the_cause_has_come_nothing_is_waited_for(scene: Scene) -> None:
    scene.lose(GONE)
    assert not scene.are_over()

    scene.lose(DEAD)

    assert scene.are_over()


@pytest.mark.parametrize("lost", [GONE, DEAD])
def test_parts_of_a_checkpoint_that_are_on_their_way_are_waited_for_longer(
    scene: Scene, lost: WorkerExit
) -> None:
    scene.lose(lost)
    scene.some.saves = True

    assert not scene.are_over(FINISH_SAVE_S * 0.9)
    assert scene.are_over(FINISH_SAVE_S * 0.2)


def test_a_group_that_is_over_is_not_stopped(scene: Scene) -> None:
    scene.some.is_over = True
    scene.lose(DEAD)
    assert not scene.are_over(), "there is nobody left to stop"
