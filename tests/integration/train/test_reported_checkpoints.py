"""The list of checkpoints that a rank gets: what it waits for, and what it must not wait for."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from holdfast import train
from holdfast.train import Checkpoint, collective
from tests.integration.train.conftest import Lab
from tests.integration.train.loops import STATE, folder_with, is_first, note, wait_for

COMMITTED = train.CheckpointConsistencyMode.COMMITTED


def save() -> None:
    with folder_with({STATE: json.dumps({"step": 1})}) as folder:
        train.report({}, Checkpoint.from_directory(folder))


def ask(notes: Path) -> None:
    kept = train.get_all_reported_checkpoints(COMMITTED)
    names = [os.path.basename(one.checkpoint.path) for one in kept]
    note(notes, what="listed", rank=train.get_context().get_world_rank(), names=names)


def is_rank(rank: int) -> bool:
    return train.get_context().get_world_rank() == rank


def test_a_rank_that_is_ahead_waits_for_the_checkpoint_of_another_one(lab: Lab) -> None:
    notes, mark = lab.notes, lab.folder / "mark"

    def loop() -> None:
        if is_rank(0):
            wait_for(mark)
            save()
        else:
            train.report({})
            mark.touch()
            ask(notes)

    lab.fit(loop, workers=2)

    assert [fact["names"] for fact in lab.noted("listed")] == [["checkpoint_000000"]]


def test_a_rank_does_not_wait_for_one_that_has_returned(lab: Lab) -> None:
    notes, mark = lab.notes, lab.folder / "mark"

    def loop() -> None:
        if is_rank(0):
            wait_for(mark)  # and returns while rank 1 waits, or before
        else:
            train.report({})
            mark.touch()
            ask(notes)

    lab.fit(loop, workers=2)

    assert [fact["names"] for fact in lab.noted("listed")] == [[]]


def test_a_rank_does_not_wait_for_one_that_waits_for_it_at_a_barrier(lab: Lab) -> None:
    notes = lab.notes

    def loop() -> None:
        if is_rank(1):
            train.report({})
            ask(notes)
        collective.barrier()
        if is_rank(0):
            train.report({})
        save()
        ask(notes)

    lab.fit(loop, workers=2)

    assert [fact["names"] for fact in lab.noted("listed") if fact["rank"] == 1] == [
        [],
        ["checkpoint_000000"],
    ]


def test_ranks_that_ask_at_different_counts_do_not_wait_for_each_other(lab: Lab) -> None:
    notes = lab.notes

    def loop() -> None:
        for _ in range(1 + train.get_context().get_world_rank()):
            train.report({})
        ask(notes)

    lab.fit(loop, workers=3)

    assert sorted(fact["rank"] for fact in lab.noted("listed")) == [0, 1, 2]


def test_a_rank_is_not_told_too_little_because_another_has_died(lab: Lab) -> None:
    """It would go on with that, and perhaps be blamed for what it does then."""
    notes, mark, died = lab.notes, lab.folder / "mark", lab.folder / "died"

    def loop() -> None:
        if is_rank(0):
            wait_for(mark)
            if is_first(died):
                os.kill(os.getpid(), signal.SIGKILL)
            save()
        else:
            train.report({})
            mark.touch()
            ask(notes)

    lab.fit(loop, workers=2, max_failures=1)

    assert [fact["names"] for fact in lab.noted("listed")] == [["checkpoint_000000"]]
