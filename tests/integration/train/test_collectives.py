"""Ranks that wait for each other, and what a function knows about its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import train
from holdfast.train.collective import barrier, broadcast_from_rank_zero
from tests.integration.train.conftest import Lab
from tests.integration.train.loops import begin, die, is_first, note, read_notes


def test_nobody_passes_a_barrier_before_everybody_has_come(lab: Lab) -> None:
    notes = lab.notes

    def loop() -> None:
        for meeting in range(20):
            note(notes, what="came", meeting=meeting)
            barrier()
            came = [fact for fact in read_notes(notes, "came") if fact["meeting"] == meeting]
            note(notes, what="passed", came=len(came))

    lab.fit(loop, workers=3)

    assert [fact["came"] for fact in lab.noted("passed")] == [3] * 60


def test_all_ranks_get_what_rank_zero_brought(lab: Lab) -> None:
    notes = lab.notes

    def loop() -> None:
        rank = train.get_context().get_world_rank()
        got = broadcast_from_rank_zero({"seed": 17} if rank == 0 else None)
        nothing = broadcast_from_rank_zero(None if rank == 0 else "ignored")
        note(notes, what="got", got=got, nothing=nothing)

    lab.fit(loop, workers=3)

    assert lab.noted("got") == [{"what": "got", "got": {"seed": 17}, "nothing": None}] * 3


def test_a_function_of_the_script_is_broadcast(lab: Lab) -> None:
    def loop() -> int:
        rank = train.get_context().get_world_rank()
        double = train.collective.broadcast_from_rank_zero(lambda one: 2 * one if not rank else 0)
        return int(train.collective.broadcast_from_rank_zero(double(21)))

    assert lab.fit(loop, workers=2).return_value == 42


def test_a_large_object_is_broadcast_whole(lab: Lab) -> None:
    def loop() -> int:
        return len(broadcast_from_rank_zero(bytes(20_000_000)))

    assert lab.fit(loop, workers=2).return_value == 20_000_000


def test_a_barrier_does_not_wait_for_a_rank_that_has_returned(lab: Lab) -> None:
    def loop() -> str:
        if train.get_context().get_world_rank() == 0:
            barrier()
        return "passed"

    assert lab.fit(loop, workers=3).return_value == "passed"


def test_a_death_at_a_barrier_ends_the_wait_of_the_others(lab: Lab) -> None:
    notes = lab.notes

    def loop() -> None:
        begin(notes)
        if train.get_context().get_world_rank() == 2 and is_first(notes.with_name("death")):
            die("SIGKILL")
        barrier()

    lab.fit(loop, workers=3, max_failures=1)

    assert len(lab.begun(rank=2)) == 2


def test_a_function_knows_its_place(lab: Lab) -> None:
    notes = lab.notes

    def loop() -> None:
        context = train.get_context()
        note(
            notes,
            what="place",
            name=context.get_experiment_name(),
            world=[context.get_world_rank(), context.get_world_size()],
            local=[context.get_local_rank(), context.get_local_world_size()],
            node=context.get_node_rank(),
        )

    lab.fit(loop, workers=2)

    assert sorted(lab.noted("place"), key=lambda fact: fact["world"]) == [
        {"what": "place", "name": "run", "world": [0, 2], "local": [0, 2], "node": 0},
        {"what": "place", "name": "run", "world": [1, 2], "local": [1, 2], "node": 0},
    ]


@pytest.mark.parametrize(
    "call",
    [train.get_context, train.get_checkpoint, barrier, lambda: train.report({})],
    ids=["get_context", "get_checkpoint", "barrier", "report"],
)
def test_outside_a_training_function_there_is_nothing_to_talk_to(call: object) -> None:
    assert callable(call)
    with pytest.raises(RuntimeError, match=r"inside|in a training function"):
        call()


def test_a_function_gets_a_config_of_its_own(lab: Lab) -> None:
    config = {"lr": 0.1, "folder": Path("somewhere")}

    def loop(given: dict[str, object]) -> dict[str, object]:
        given["changed"] = True
        return given

    result = lab.fit(loop, config=config)

    assert result.return_value == {"lr": 0.1, "folder": Path("somewhere"), "changed": True}
    assert config == {"lr": 0.1, "folder": Path("somewhere")}


def test_a_function_that_takes_a_config_and_was_given_none_gets_an_empty_one(lab: Lab) -> None:
    def loop(given: dict[str, object]) -> dict[str, object]:
        return given

    assert lab.fit(loop).return_value == {}
