"""Ranks whose peer is gone, or does not come, while they wait for it inside torch."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from holdfast import train
from holdfast.train import WorkerGroupError
from holdfast.train.torch import TorchConfig
from tests.integration.torch.conftest import TorchLab
from tests.integration.train.loops import die, is_running, note, read_notes


def _leave_the_other_waiting(notes: Path, ways: list[str]) -> None:
    """In each attempt, rank 1 goes in another way while rank 0 waits for it to add up."""
    rank = train.get_context().get_world_rank()
    note(notes, what="began", rank=rank, pid=os.getpid())
    turn = len(read_notes(notes, "went"))
    dist.barrier()
    if turn == len(ways):
        return
    if rank == 1:
        note(notes, what="went", way=ways[turn])
        die(ways[turn])
    dist.all_reduce(torch.ones(1))


@pytest.mark.req("T-001", "T-002", "T-036", "T-039", "T-043")
def test_a_rank_that_waits_for_one_that_is_gone_does_not_hold_up_the_next_attempt(
    lab: TorchLab,
) -> None:
    """Torch itself would let it wait for half an hour, which is longer than a test may take."""
    notes, ways = lab.notes, ["ValueError", "SIGKILL", "os._exit(0)"]

    lab.fit(lambda: _leave_the_other_waiting(notes, ways), max_failures=len(ways))

    assert [fact["way"] for fact in lab.noted("went")] == ways
    assert len(lab.begun(rank=0)) == len(ways) + 1
    assert not [fact["pid"] for fact in lab.begun() if is_running(fact["pid"])]


def test_the_error_that_is_told_is_that_of_the_rank_that_failed_first(lab: TorchLab) -> None:
    """The other one raises too, because its peer is gone; that must not hide the reason."""
    notes = lab.notes

    with pytest.raises(
        WorkerGroupError, match=r"^rank 1 .*raised ValueError: loss is nan"
    ) as raised:
        lab.fit(lambda: _leave_the_other_waiting(notes, ["ValueError"]))

    assert isinstance(raised.value.worker_failures[1], ValueError)


def test_a_rank_that_lives_and_does_not_come_is_given_up_after_the_timeout(lab: TorchLab) -> None:
    notes = lab.notes

    def loop() -> None:
        note(notes, what="began", rank=dist.get_rank(), pid=os.getpid())
        if dist.get_rank() == 1:
            signal.pause()
        dist.all_reduce(torch.ones(1))

    with pytest.raises(WorkerGroupError, match=r"^rank 0 .*raised RuntimeError.*Timed out"):
        lab.fit(loop, torch_config=TorchConfig(timeout_s=10))

    assert not [fact["pid"] for fact in lab.begun() if is_running(fact["pid"])]
