"""Reservations of trials on the nodes: all that a trial needs as one unit, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

Bundles = Sequence[Mapping[str, float]]
Rooms = Mapping[str, Mapping[str, float]]  # by node, then by resource

_SLACK = 1e-9  # amounts are sums of fractions such as 0.1


class Room:
    """The nodes of a study, and where on them a trial fits.

    The last answer is remembered: a study asks for the same place several times in a row.

    Args:
        reserved: Returns what each trial reserves, and on which nodes; on none if it does not run.

    Attributes:
        nodes: What each node has.
    """

    def __init__(self, reserved: Callable[[], Iterable[tuple[Bundles, Sequence[str]]]]) -> None:
        self._reserved = reserved
        self.nodes: dict[str, dict[str, float]] = {}
        self._answer: tuple[Bundles, tuple[str, ...] | None] | None = None  # to the last question

    def become(self, rooms: Rooms) -> None:
        """Replace the nodes."""
        self.nodes = {node: dict(room) for node, room in rooms.items()}
        self.changed()

    def changed(self) -> None:
        """Take in that a reservation was made or given up."""
        self._answer = None

    def place(self, bundles: Bundles) -> tuple[str, ...] | None:
        """Return the node for each bundle, None if they do not all fit now."""
        if self._answer is None or self._answer[0] != bundles:
            self._answer = bundles, reserve(self.free(), bundles)
        return self._answer[1]

    def free(self) -> dict[str, dict[str, float]]:
        """Return what is left of each node."""
        return free_room(self.nodes, ((needs, at) for needs, at in self._reserved() if at))


def free_room(
    rooms: Rooms, reserved: Iterable[tuple[Bundles, Sequence[str]]]
) -> dict[str, dict[str, float]]:
    """Return what is left of each node, given what is reserved and on which nodes."""
    free = {node: dict(room) for node, room in rooms.items()}
    for bundles, places in reserved:
        for need, node in zip(bundles, places, strict=True):
            if node in free:
                _take(free[node], need)
    return free


def reserve(free: Mapping[str, Mapping[str, float]], bundles: Bundles) -> tuple[str, ...] | None:
    """Return the node for each bundle, None if they do not all fit; nodes fill up in order."""
    left = {node: dict(room) for node, room in free.items()}
    places = []
    for need in bundles:
        node = next((name for name, room in left.items() if _fits(room, need)), None)
        if node is None:
            return None
        _take(left[node], need)
        places.append(node)
    return tuple(places)


def total(rooms: Rooms) -> dict[str, float]:
    """Return what all nodes have together."""
    amounts: dict[str, float] = {}
    for room in rooms.values():
        for name, amount in room.items():
            amounts[name] = amounts.get(name, 0.0) + amount
    return amounts


def _fits(room: Mapping[str, float], need: Mapping[str, float]) -> bool:
    return all(room.get(name, 0.0) + _SLACK >= amount for name, amount in need.items() if amount)


def _take(room: dict[str, float], need: Mapping[str, float]) -> None:
    for name, amount in need.items():
        room[name] = room.get(name, 0.0) - amount
