"""When a checkpoint of several ranks is ready to be committed."""

from __future__ import annotations

from holdfast.checkpoint.commit import Slot
from holdfast.control.gathering import Gathering
from holdfast.core.manifest import Part


def slot(number: int) -> Slot:
    return Slot(number, f"checkpoint_{number:06d}", 1, 1)


def settled(gathering: Gathering) -> list[int]:
    return [one.index for one in gathering.take_settled()]


def test_a_checkpoint_waits_for_the_part_of_every_rank_that_saves() -> None:
    gathering = Gathering([0, 1])
    gathering.begin(1, slot(0))
    gathering.reported(0, 1, {}, saves=True)
    gathering.reported(1, 1, {}, saves=True)
    gathering.delivered(1, Part(0, ()))

    assert settled(gathering) == []
    assert gathering.missing(1) == [1]
    gathering.delivered(1, Part(1, ()))
    assert settled(gathering) == [1]
    assert settled(gathering) == [], "once"


def test_a_rank_that_has_nothing_to_add_must_say_so() -> None:
    gathering = Gathering([0, 1])
    gathering.begin(1, slot(0))
    gathering.reported(0, 1, {}, saves=True)
    gathering.delivered(1, Part(0, ()))

    assert settled(gathering) == []
    gathering.reported(1, 1, {}, saves=False)
    assert settled(gathering) == [1]


def test_nobody_waits_for_a_rank_that_has_returned() -> None:
    gathering = Gathering([0, 1])
    gathering.begin(1, slot(0))
    gathering.reported(0, 1, {}, saves=True)
    gathering.delivered(1, Part(0, ()))
    gathering.returned(1)

    assert settled(gathering) == [1]


def test_what_a_rank_saved_before_it_returned_counts() -> None:
    gathering = Gathering([0, 1])
    gathering.begin(1, slot(0))
    gathering.reported(1, 1, {}, saves=True)
    gathering.delivered(1, Part(1, ()))
    gathering.returned(1)
    assert settled(gathering) == []

    gathering.reported(0, 1, {}, saves=False)
    [one] = gathering.take_settled()
    assert one.parts.keys() == {1}


def test_checkpoints_are_ready_in_their_order() -> None:
    gathering = Gathering([0, 1])
    for index in (1, 2):
        gathering.begin(index, slot(index))
        gathering.reported(0, index, {}, saves=True)
    gathering.delivered(2, Part(0, ()))
    gathering.reported(1, 2, {}, saves=False)
    assert settled(gathering) == []

    gathering.delivered(1, Part(0, ()))
    assert settled(gathering) == [1, 2]


def test_a_failed_part_settles_its_checkpoint_and_no_other() -> None:
    gathering = Gathering([0, 1])
    gathering.begin(1, slot(0))
    gathering.reported(0, 1, {}, saves=True)
    gathering.failed(1, "no space left")

    [one] = gathering.take_settled()
    assert one.error == "no space left"
    gathering.delivered(1, Part(0, ()))  # late news of it
    gathering.begin(2, slot(1))
    gathering.reported(0, 2, {}, saves=True)
    gathering.reported(1, 2, {}, saves=False)
    gathering.delivered(2, Part(0, ()))
    assert settled(gathering) == [2]


def test_metrics_are_those_of_the_lowest_rank_however_far_the_ranks_have_gone_on() -> None:
    gathering = Gathering([0, 1])
    gathering.begin(1, slot(0))
    gathering.reported(1, 1, {"loss": 1}, saves=True)
    gathering.reported(0, 1, {"loss": 0}, saves=False)
    for rank in (0, 1):
        gathering.reported(rank, 2, {"loss": 9}, saves=False)
    gathering.delivered(1, Part(1, ()))

    [one] = gathering.take_settled()
    assert one.metrics == {"loss": 0}


def test_counting_goes_on_after_a_restart() -> None:
    gathering = Gathering([0, 1], reports_before=5)
    gathering.begin(6, slot(9))
    gathering.reported(0, 6, {}, saves=True)
    gathering.delivered(6, Part(0, ()))
    assert gathering.missing(6) == [1]
    gathering.reported(1, 6, {}, saves=False)
    assert settled(gathering) == [6]
