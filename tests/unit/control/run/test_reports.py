"""When a checkpoint of several ranks is begun, and when it is ready to be committed."""

from __future__ import annotations

from typing import Any

from holdfast.checkpoint.commit import Slot
from holdfast.control.run.reports import Gathering
from holdfast.core.checkpoint.manifest import Part


def report(gathering: Gathering, rank: int, index: int, **metrics: Any) -> None:
    gathering.reported(rank, index, metrics)


def save(
    gathering: Gathering, rank: int, index: int, name: str | None = None, **metrics: Any
) -> None:
    report(gathering, rank, index, **metrics)
    gathering.wants(rank, index, name, 0.0)


def begun(gathering: Gathering) -> list[tuple[int, str | None]]:
    """Begin what can be, and return it with the names."""
    names = []
    for gathered in gathering.to_begin():
        gathered.slot = Slot(gathered.index, f"checkpoint_{gathered.index:06d}", 1, 1)
        names.append((gathered.index, gathered.name))
    return names


def settled(gathering: Gathering) -> list[int]:
    return [gathered.index for gathered in gathering.take_settled()]


def test_a_checkpoint_waits_for_the_part_of_every_rank_that_saves() -> None:
    gathering = Gathering([0, 1])
    save(gathering, 0, 1)
    save(gathering, 1, 1)
    assert begun(gathering) == [(1, None)]
    assert begun(gathering) == [], "once"
    gathering.delivered(1, Part(0, ()))

    assert settled(gathering) == []
    assert gathering.missing(1) == [1]
    gathering.delivered(1, Part(1, ()))
    assert settled(gathering) == [1]
    assert settled(gathering) == [], "once"


def test_the_lowest_rank_names_a_checkpoint_whoever_comes_first() -> None:
    gathering = Gathering([0, 1, 2])
    save(gathering, 2, 1, "two")
    save(gathering, 1, 1, "one")
    assert begun(gathering) == [], "rank 0 may have a name for it"

    save(gathering, 0, 1, "zero")
    assert begun(gathering) == [(1, "zero")]


def test_checkpoints_are_numbered_in_the_order_of_their_reports() -> None:
    gathering = Gathering([0, 1, 2])
    report(gathering, 0, 1)
    save(gathering, 1, 1, "one")
    save(gathering, 0, 2)
    assert begun(gathering) == [], "rank 2 may put its part of the first where its user likes"

    report(gathering, 2, 1)
    assert begun(gathering) == [(1, "one"), (2, None)]


def test_where_the_lowest_rank_saves_nothing_the_next_one_names_it() -> None:
    gathering = Gathering([0, 1, 2])
    save(gathering, 2, 1, "two")
    save(gathering, 1, 1, "one")
    report(gathering, 0, 1)

    assert begun(gathering) == [(1, "one")]


def test_nobody_waits_for_the_name_that_a_rank_would_have_given_which_has_returned() -> None:
    gathering = Gathering([0, 1])
    save(gathering, 1, 1, "one")
    gathering.returned(0)

    assert begun(gathering) == [(1, "one")]


def test_a_rank_that_has_nothing_to_add_must_say_so() -> None:
    gathering = Gathering([0, 1])
    save(gathering, 0, 1)
    begun(gathering)
    gathering.delivered(1, Part(0, ()))

    assert settled(gathering) == []
    report(gathering, 1, 1)
    assert settled(gathering) == [1]


def test_nobody_waits_for_a_rank_that_has_returned() -> None:
    gathering = Gathering([0, 1])
    save(gathering, 0, 1)
    begun(gathering)
    gathering.delivered(1, Part(0, ()))
    gathering.returned(1)

    assert settled(gathering) == [1]


def test_what_a_rank_saved_before_it_returned_counts() -> None:
    gathering = Gathering([0, 1])
    save(gathering, 1, 1)
    gathering.returned(1)
    report(gathering, 0, 1)
    begun(gathering)
    gathering.delivered(1, Part(1, ()))

    [gathered] = gathering.take_settled()
    assert gathered.parts.keys() == {1}


def test_checkpoints_are_ready_in_their_order() -> None:
    gathering = Gathering([0, 1])
    for index in (1, 2):
        save(gathering, 0, index)
        begun(gathering)
    gathering.delivered(2, Part(0, ()))
    report(gathering, 1, 2)
    assert settled(gathering) == []

    gathering.delivered(1, Part(0, ()))
    assert settled(gathering) == [1, 2]


def test_a_failed_part_settles_its_checkpoint_and_no_other() -> None:
    gathering = Gathering([0, 1])
    save(gathering, 0, 1)
    begun(gathering)
    gathering.failed(1, "no space left")

    [gathered] = gathering.take_settled()
    assert gathered.error == "no space left"
    gathering.delivered(1, Part(0, ()))  # late news of it
    assert gathering.wants(1, 1, None, 0.0) is None, "nor of those who come late"
    save(gathering, 0, 2)
    begun(gathering)
    report(gathering, 1, 2)
    gathering.delivered(2, Part(0, ()))
    assert settled(gathering) == [2]


def test_a_checkpoint_that_some_ranks_send_again_is_settled_once_they_have() -> None:
    gathering = Gathering([0, 1])
    for rank in (0, 1):
        save(gathering, rank, 1)
    begun(gathering)
    for rank in (0, 1):
        gathering.delivered(1, Part(rank, ()))
    [gathered] = gathering.take_settled()
    gathering.reopen(gathered, [0])

    assert settled(gathering) == []
    assert gathering.missing(1) == [0]
    gathering.resent(1, 0)
    assert settled(gathering) == [1]


def test_metrics_are_those_of_the_lowest_rank_however_far_the_ranks_have_gone_on() -> None:
    gathering = Gathering([0, 1])
    save(gathering, 1, 1, loss=1)
    report(gathering, 0, 1, loss=0)
    begun(gathering)
    for rank in (0, 1):
        report(gathering, rank, 2, loss=9)
    assert gathering.take_complete() == [], "the first is not done yet"
    gathering.delivered(1, Part(1, ()))

    [gathered] = gathering.take_settled()
    assert gathered.metrics == {"loss": 0}


def test_counting_goes_on_after_a_restart() -> None:
    gathering = Gathering([0, 1], reports_before=5)
    save(gathering, 0, 6)
    begun(gathering)
    gathering.delivered(6, Part(0, ()))
    assert gathering.missing(6) == [1]
    report(gathering, 1, 6)
    assert settled(gathering) == [6]


def test_a_report_is_complete_once_every_running_rank_has_made_it() -> None:
    gathering = Gathering([0, 1])
    report(gathering, 0, 1, loss=0)
    report(gathering, 0, 2, loss=0)
    assert gathering.take_complete() == []

    report(gathering, 1, 1, loss=1)
    assert gathering.take_complete() == [(1, {0: {"loss": 0}, 1: {"loss": 1}})]
    gathering.returned(1)
    assert gathering.take_complete() == [(2, {0: {"loss": 0}})]
    assert gathering.take_complete() == []


def test_the_validation_that_counts_is_that_of_the_lowest_rank_that_wants_one() -> None:
    gathering = Gathering([0, 1, 2])
    for rank in (2, 0, 1):
        save(gathering, rank, 1)
    [gathered] = gathering.waiting()
    assert gathered.validation is None
    gathered.validations[2] = {"fn_kwargs": {"rank": 2}}
    gathered.validations[1] = {"fn_kwargs": {"rank": 1}}

    assert gathered.validation == {"fn_kwargs": {"rank": 1}}


def test_ranks_are_behind_that_run_and_have_reported_less_often() -> None:
    gathering = Gathering([0, 1, 2], reports_before=4)
    report(gathering, 0, 5)
    assert gathering.behind(5) == {1, 2} and gathering.behind(4) == set()
    gathering.returned(1)

    assert gathering.behind(5) == {2}


def test_a_checkpoint_is_not_named_by_whoever_comes_first() -> None:
    gathering = Gathering([0, 1, 2])
    report(gathering, 0, 1)
    save(gathering, 2, 1, "of-two")
    assert begun(gathering) == []
    save(gathering, 1, 1, "of-one")

    assert begun(gathering) == [(1, "of-one")]


def test_a_checkpoint_without_a_name_waits_for_no_higher_rank_to_begin() -> None:
    gathering = Gathering([0, 1, 2])
    report(gathering, 0, 1)
    save(gathering, 1, 1)

    assert begun(gathering) == [(1, None)]


def test_a_folder_is_shared_if_parts_are_there_and_others_come() -> None:
    gathering = Gathering([0, 1])
    save(gathering, 0, 1, "mine")
    report(gathering, 1, 1)
    gathering.wants(1, 1, None, 0.0, placed="mine")
    [gathered] = gathering.waiting()
    assert gathered.is_shared and gathered.name == "mine"
    gathered.in_place[1] = "yours"

    assert not gathered.is_shared
