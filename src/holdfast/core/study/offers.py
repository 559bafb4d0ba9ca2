"""Resources of a study's nodes that runs launched inside its trials may use.

An `Offer` describes the nodes to a trial. What the trial has reserved is its own. The rest is
shared by all trials that have reserved none of it; a run inside a trial claims what it needs before
it starts. CPUs and memory are not counted: workers may outnumber CPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from holdfast.core.placement import Demand, Node, capacity, place

_NOT_COUNTED = ("CPU", "memory")


@dataclass(frozen=True)
class Offer:
    """The nodes that runs inside a trial are placed on.

    Attributes:
        own: The names of resources of which all that is offered is the trial's own.
        claims: The folder in which claims on the rest are kept, None if there is nothing to claim.
    """

    nodes: tuple[Node, ...]
    own: frozenset[str] = frozenset()
    claims: str | None = None


@dataclass(frozen=True)
class Claim:
    """What a run has taken of a node: amounts by resource, and which GPUs."""

    node: str
    room: Mapping[str, float]
    gpus: tuple[str, ...] = ()


def is_counted(name: str) -> bool:
    """Whether runs of a machine must share what there is of a resource."""
    return name not in _NOT_COUNTED


def offered(
    nodes: Sequence[Node],
    reserved: Sequence[tuple[str, Mapping[str, float]]],
    gpus: Mapping[str, tuple[str, ...]],
    claims: str | None,
) -> Offer:
    """Return what a trial may use, given what it reserved on which node and its GPUs by node."""
    own = {name for _, need in reserved for name in need if is_counted(name)}
    offers = []
    for node in nodes:
        room = {name: amount for name, amount in node.room.items() if name not in own}
        for where, need in reserved:
            if where == node.name:
                for name in own & need.keys():
                    room[name] = room.get(name, 0.0) + need[name]
        its_gpus = gpus.get(node.name, ()) if "GPU" in own else node.gpus
        offers.append(replace(node, room=room, gpus=its_gpus))
    return Offer(tuple(offers), frozenset(own), claims)


def claimed(
    offer: Offer, others: Iterable[Claim], demand: Demand, fewest: int, most: int
) -> list[Claim] | None:
    """Return what to take so that as many workers as possible fit; None if too few do now."""
    claims = list(others)
    free = [
        _without(node, [claim for claim in claims if claim.node == node.name], offer.own)
        for node in offer.nodes
    ]
    workers = int(min(most, capacity(free, demand)))
    if workers < fewest:
        return None
    places = place(free, demand, workers) or []
    taken = []
    for node in free:
        here = [rank for rank in places if rank.node == node.name]
        room = {name: need * len(here) for name, need in demand.each.items() if is_counted(name)}
        gpus = dict.fromkeys(gpu for rank in here for gpu in rank.gpus or ())
        taken.append(Claim(node.name, room, tuple(gpus)))
    return taken


def granted(offer: Offer, claims: Sequence[Claim]) -> list[Node]:
    """Return the nodes as a run with these claims sees them."""
    by_node = {claim.node: claim for claim in claims}
    nodes = []
    for node in offer.nodes:
        claim = by_node[node.name]
        room = {**node.room, **claim.room}
        nodes.append(replace(node, room=room, gpus=claim.gpus if "GPU" in claim.room else ()))
    return nodes


def _without(node: Node, claims: Sequence[Claim], own: frozenset[str]) -> Node:
    """Return a node without what others have claimed; a GPU belongs to one run."""
    taken = {gpu for claim in claims for gpu in claim.gpus if "GPU" not in own}
    gpus = tuple(gpu for gpu in node.gpus if gpu not in taken)
    room = dict(node.room)
    for claim in claims:
        for name, amount in claim.room.items():
            if name in own:
                continue
            room[name] = room.get(name, 0.0) - amount
    if taken:
        room["GPU"] = float(len(gpus))
    return replace(node, room=room, gpus=gpus)
