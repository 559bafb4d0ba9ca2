"""Which rank runs on which node: arithmetic on what nodes have and workers need.

Neighbouring ranks share a node. A rank keeps its node from one attempt to the next while that node
is there, so that it finds what it left on that machine's disk.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.core.names import shown

LOOPBACK = "127.0.0.1"
STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")


@dataclass(frozen=True, slots=True)
class Node:
    """A machine that workers can be placed on, with what it has while no group runs there.

    Attributes:
        room: How much it has of each resource, such as "CPU"; 0 of those it does not name.
        gpus: What its GPUs are called in CUDA_VISIBLE_DEVICES; `room["GPU"]` is their number.
        leaves: When it goes away, seconds since 1970; None if that is not announced.
        address: Where processes on the other nodes reach it, as an IP address or host name.
    """

    name: str
    room: Mapping[str, float]
    gpus: tuple[str, ...] = ()
    leaves: float | None = None
    address: str = LOOPBACK


@dataclass(frozen=True)
class Place:
    """A worker's rank in its group, and the node it runs on.

    Attributes:
        gpus: The GPUs it may use, None if it did not ask for any.
        address: Where workers on other nodes reach its node.
    """

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int
    node: str
    gpus: tuple[str, ...] | None = None
    address: str = LOOPBACK


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What each worker of a group needs, and how the group may be spread."""

    each: Mapping[str, float]
    strategy: str = "PACK"


def capacity(nodes: Sequence[Node], demand: Demand) -> int | float:
    """Return how many workers fit; infinity if they need no resource."""
    rooms = [_fitting(node, demand.each) for node in nodes if node.leaves is None]
    match demand.strategy:
        case "STRICT_PACK":
            return max(rooms, default=0)
        case "STRICT_SPREAD":
            return sum(1 for room in rooms if room)
        case _:
            return sum(rooms)


def place(
    nodes: Sequence[Node], demand: Demand, workers: int, before: Sequence[Place] = ()
) -> list[Place] | None:
    """Return where every rank goes, None if there is no room for that many."""
    if capacity(nodes, demand) < workers:
        return None
    order = _familiar_first(nodes, before)
    rooms = {node.name: _fitting(node, demand.each) for node in order}
    counts = _shares(rooms, workers, demand.strategy)
    gpus_each = demand.each.get("GPU", 0.0)
    addresses = {node.name: node.address for node in order}
    devices = {node.name: _devices(node, gpus_each) for node in order if gpus_each}
    places: list[Place] = []
    for node_rank, (name, count) in enumerate(counts.items()):
        places += [
            Place(
                rank=len(places) + local_rank,
                world_size=workers,
                local_rank=local_rank,
                local_world_size=count,
                node_rank=node_rank,
                node=name,
                gpus=devices[name][local_rank] if devices else None,
                address=addresses[name],
            )
            for local_rank in range(count)
        ]
    return places


def why_not(nodes: Sequence[Node], demand: Demand, workers: int) -> str:
    """Return a message that compares what is wanted with what there is."""
    each = ", ".join(f"{_amount(need)} {name}" for name, need in sorted(demand.each.items()))
    rooms = [_described(node) for node in nodes]
    there = "; ".join(rooms[:8]) + ("; …" if len(rooms) > 8 else "")
    wanted = f"{workers} workers with {each or 'nothing'} each"
    strategy = f" ({demand.strategy})" if demand.strategy.startswith("STRICT") else ""
    fit = capacity(nodes, demand)
    return (
        f"{wanted}{strategy} do not fit: there is room for {fit:.0f}. There is {there or 'no node'}"
    )


def _described(node: Node) -> str:
    if node.leaves is not None:
        return f"{node.name}, which is about to leave"
    amounts = {"CPU": 0.0, "GPU": 0.0, **node.room}  # that a node has none is worth showing
    amounts.pop("memory", None)
    room = ", ".join(f"{_amount(amount)} {name}" for name, amount in amounts.items())
    return f"{shown(node.name)} with {room}"


def _amount(value: float) -> str:
    return f"{value:g}"


def _fitting(node: Node, each: Mapping[str, float]) -> int | float:
    """Return how many workers a node has room for."""
    if node.leaves is not None:
        return 0
    limits = [node.room.get(name, 0.0) / need + 1e-9 for name, need in each.items() if need > 0]
    tightest = min(limits, default=math.inf)
    return tightest if math.isinf(tightest) else math.floor(tightest)


def _familiar_first(nodes: Sequence[Node], before: Sequence[Place]) -> list[Node]:
    """Return the nodes in the order of the ranks that were on them; new ones fill the gaps."""
    there = {node.name: node for node in nodes if node.leaves is None}
    old = list(dict.fromkeys(place.node for place in before))
    fresh = [name for name in there if name not in old]
    order = []
    for name in old:
        if name in there:
            order.append(name)
        elif fresh:
            order.append(fresh.pop(0))
    return [there[name] for name in [*order, *fresh]]


def _shares(rooms: Mapping[str, int | float], workers: int, strategy: str) -> dict[str, int]:
    """Return how many workers each node gets, in order, leaving out those that get none."""
    match strategy:
        case "STRICT_PACK":
            name = next(name for name, room in rooms.items() if room >= workers)
            return {name: workers}
        case "SPREAD" | "STRICT_SPREAD":
            counts = dict.fromkeys(rooms, 0)
            while sum(counts.values()) < workers:
                open_to = [name for name in rooms if counts[name] < rooms[name]]
                emptiest = min(open_to, key=lambda name: counts[name])
                counts[emptiest] += 1
        case _:
            counts, left = {}, workers
            for name, room in rooms.items():
                counts[name] = int(min(room, left))
                left -= counts[name]
    return {name: count for name, count in counts.items() if count}


def _devices(node: Node, each: float) -> list[tuple[str, ...]]:
    """Return the GPUs of each worker on a node; workers that need less than one share it."""
    if each >= 1:
        size = int(each)
        return [node.gpus[at : at + size] for at in range(0, len(node.gpus) - size + 1, size)]
    sharing = math.floor(1 / each + 1e-9)
    return [(gpu,) for gpu in node.gpus for _ in range(sharing)]
