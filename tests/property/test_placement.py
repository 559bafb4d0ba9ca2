"""Where ranks go, for machines of all kinds."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.placement import STRATEGIES, Demand, Node, capacity, place

rooms = st.builds(
    lambda cpus, gpus: ({"CPU": float(cpus), "GPU": float(gpus)}, tuple(map(str, range(gpus)))),
    st.integers(0, 5),
    st.integers(0, 4),
)
clusters = st.lists(rooms, min_size=1, max_size=5).map(
    lambda all_rooms: [Node(f"n{at}", room, gpus) for at, (room, gpus) in enumerate(all_rooms)]
)
demands = st.builds(
    lambda cpu, gpu, strategy: Demand(
        each={name: need for name, need in (("CPU", cpu), ("GPU", gpu)) if need}, strategy=strategy
    ),
    st.sampled_from([0, 0.5, 1, 2]),
    st.sampled_from([0, 0, 0.25, 0.5, 1, 2]),
    st.sampled_from(STRATEGIES),
).filter(lambda demand: bool(demand.each))


@given(clusters, demands, st.integers(1, 12))
def test_there_is_room_exactly_for_the_capacity(
    nodes: list[Node], demand: Demand, workers: int
) -> None:
    found = place(nodes, demand, workers)

    assert (found is not None) == (workers <= capacity(nodes, demand))


@given(clusters, demands, st.integers(1, 12))
def test_no_node_gets_more_than_it_has(nodes: list[Node], demand: Demand, workers: int) -> None:
    found = place(nodes, demand, workers) or []
    for node in nodes:
        count = sum(one.node == node.name for one in found)
        for name, need in demand.each.items():
            assert count * need <= node.room[name] + 1e-6
    for one in found:
        assert (one.gpus is not None) == ("GPU" in demand.each)
    shares = Counter((one.node, gpu) for one in found for gpu in one.gpus or ())
    share = min(1.0, demand.each.get("GPU", 1.0))
    assert all(count * share <= 1 + 1e-6 for count in shares.values()), "a GPU was given twice"


@given(clusters, demands, st.integers(1, 12))
def test_ranks_and_local_ranks_are_whole(nodes: list[Node], demand: Demand, workers: int) -> None:
    found = place(nodes, demand, workers)
    if found is None:
        return
    assert [one.rank for one in found] == list(range(workers))
    for name in {one.node for one in found}:
        there = [one for one in found if one.node == name]
        assert [one.local_rank for one in there] == list(range(len(there)))
        assert {one.local_world_size for one in there} == {len(there)}
        assert len({one.node_rank for one in there}) == 1
        assert [one.rank for one in there] == list(
            range(there[0].rank, there[0].rank + len(there))
        ), "neighbours share a node"
    assert {one.node_rank for one in found} == set(range(len({one.node for one in found})))


@given(rooms, st.integers(1, 5), demands, st.integers(1, 12), st.data())
def test_a_rank_stays_on_its_node_when_another_node_is_lost(
    room: tuple[dict[str, float], tuple[str, ...]],
    count: int,
    demand: Demand,
    workers: int,
    data: st.DataObject,
) -> None:
    nodes = [Node(f"n{at}", *room) for at in range(count)]
    before = place(nodes, demand, workers)
    if before is None:
        return
    lost = data.draw(st.sampled_from(sorted({one.node for one in before})))
    rest = [node for node in nodes if node.name != lost]

    again = place([*rest, Node("new", *room)], demand, workers, before)

    assert again is not None
    for old, new in zip(before, again, strict=True):
        assert (new.node == old.node) == (old.node != lost)


@given(clusters, demands, st.integers(1, 12))
def test_nothing_is_placed_on_a_node_that_leaves(
    nodes: list[Node], demand: Demand, workers: int
) -> None:
    leaving = [Node(node.name, node.room, node.gpus, leaves=1.0) for node in nodes]

    assert place(leaving, demand, workers) is None
