"""Ranks on several nodes: they find each other by an address, not by a host's name."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, cast

import psutil
import torch
import torch.distributed as dist

from holdfast.core.placement import Place
from holdfast.frameworks.torch.process_group import _address
from holdfast.train.torch import TorchConfig
from holdfast.worker.context import WorkerContext


@dataclass
class TwoRanks:
    """What a worker has of its context, with a pipe to the other rank in place of a driver."""

    place: Place
    other: Connection

    def at_end(self, do: Callable[[], None]) -> None:
        """Nothing ends here: the process is done when its peer is."""

    def meet(self, data: bytes | None = None) -> bytes | None:
        self.other.send(data)
        brought: bytes | None = self.other.recv()
        return data if self.place.rank == 0 else brought


def _place(rank: int) -> Place:
    return Place(
        rank=rank,
        world_size=2,
        local_rank=0,
        local_world_size=1,
        node_rank=rank,
        node=f"node-{rank}",
    )


def _join(rank: int, other: Connection, result: Connection) -> None:
    for setup in TorchConfig().setups():
        setup(cast(WorkerContext, TwoRanks(_place(rank), other)))
    total = torch.ones(1)
    dist.all_reduce(total)
    listens = [
        one.laddr.ip
        for one in psutil.Process().net_connections("inet")
        if one.status == psutil.CONN_LISTEN
    ]
    result.send((total.item(), listens))
    other.send(None)  # rank 0 stays until rank 1 is done
    other.recv()


def test_ranks_on_different_nodes_meet_at_an_address_that_both_reach() -> None:
    """The nodes are this machine, which the ranks do not know: they use its loopback only where
    there is no other network.
    """
    spawn = multiprocessing.get_context("spawn")
    ends: tuple[Connection, Connection] = spawn.Pipe()
    found: list[tuple[Connection, Any]] = []
    for rank, end in enumerate(ends):
        ours, theirs = spawn.Pipe(duplex=False)
        process = spawn.Process(target=_join, args=(rank, end, theirs), daemon=True)
        process.start()
        found.append((ours, process))
    results = [ours.recv() for ours, _ in found]
    for _, process in found:
        process.join()

    assert [total for total, _ in results] == [2.0, 2.0]
    assert {address for _, listens in results for address in listens} == {_address(_place(0))}
