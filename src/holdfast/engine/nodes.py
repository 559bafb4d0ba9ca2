"""The nodes of the local engine: this machine, or simulated nodes on it that can fail and join.

Simulated nodes are for testing the loss of a machine: all workers on a node that fails die at once
without a message, and a new node can take its place.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from holdfast.core.placement import Demand
from holdfast.core.study.offers import Claim, Offer, claimed, granted, is_counted
from holdfast.engine.base import Node
from holdfast.engine.claims import HeldClaim, claim
from holdfast.engine.machine import gpus_here, room_here
from holdfast.errors import ConfigError

log = logging.getLogger(__name__)

WAITING_LOGGED_EVERY_S = 60.0

Listener = Callable[[str | None], None]


class LocalNodes:
    """The current nodes; any thread may change them, and engines are notified.

    Args:
        count: How many nodes to simulate; None for this machine, as one node that cannot fail.
        room: How much of each resource a node has; by default as much as this machine.
    """

    def __init__(self, count: int | None = None, room: Mapping[str, float] | None = None) -> None:
        if count is not None and (type(count) is not int or count < 1):
            raise ConfigError(f"nodes={count!r}: must be a whole number, 1 or more")
        self._room = {**room_here(), **_checked(room or {})}
        self._real_gpus = gpus_here()
        self._lock = threading.RLock()
        self._nodes: dict[str, Node] = {}
        self._names: set[str] = set()  # ever used
        self._listeners: list[Listener] = []
        self.are_simulated = count is not None
        for _ in range(count or 1):
            self._add(None)

    def reserve(self, demand: Demand, workers_min: int, workers_max: int) -> bool:
        """Return True: these nodes are not shared, so there is nothing to reserve."""
        return True

    def release(self) -> None:
        """Give back what was reserved, if anything was."""

    def now(self) -> tuple[Node, ...]:
        """Return the current nodes, oldest first."""
        with self._lock:
            return tuple(self._nodes.values())

    def fail(self, name: str) -> None:
        """Make a node fail: all workers on it die at once, without a message."""
        self._must_be_simulated("fail")
        with self._lock:
            del self._nodes[self._existing(name)]
        self._notify(name)

    def join(self, name: str | None = None) -> Node:
        """Add a node and return it; without `name` it gets a name that was never used."""
        self._must_be_simulated("join")
        with self._lock:
            if name in self._nodes:
                raise ConfigError(f"node {name!r} exists already")
            node = self._add(name)
        self._notify(None)
        return node

    def drain(self, name: str, leaves: float) -> None:
        """Announce that a node goes away at `leaves`, seconds since 1970.

        It stays until the caller makes it `fail`.
        """
        with self._lock:
            self._nodes[name] = replace(self._nodes[self._existing(name)], leaves=leaves)
        self._notify(None)

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` after every change, in the thread that made it.

        Its argument is the name of the node that failed, None if none did.
        """
        with self._lock:
            self._listeners.append(listener)

    def unsubscribe(self, listener: Listener) -> None:
        """End a subscription; it is no error if there is none."""
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def _notify(self, failed: str | None) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:  # without the lock, because a listener may call us
            listener(failed)

    def _add(self, name: str | None) -> Node:
        if name is None:
            number = len(self._names)
            while f"node-{number}" in self._names:
                number += 1
            name = f"node-{number}"
        self._names.add(name)
        self._nodes[name] = Node(name, dict(self._room), self._gpus())
        return self._nodes[name]

    def _gpus(self) -> tuple[str, ...]:
        """Return the GPUs of a new node: real ones that are free, or else made-up ones."""
        count = int(self._room.get("GPU", 0))
        taken = {gpu for node in self._nodes.values() for gpu in node.gpus}
        free = [gpu for gpu in self._real_gpus if gpu not in taken]
        return tuple(free[:count] if len(free) >= count else map(str, range(count)))

    def _existing(self, name: str) -> str:
        if name not in self._nodes:
            names = ", ".join(self._nodes) or "none"
            raise ConfigError(f"there is no node {name!r}", hint=f"the nodes are: {names}")
        return name

    def _must_be_simulated(self, verb: str) -> None:
        if not self.are_simulated:
            raise ConfigError(
                f"this machine cannot {verb}: its nodes are not simulated",
                hint="use holdfast.init(nodes=2)",
            )


class OfferedNodes(LocalNodes):
    """The nodes that a run inside a trial of a study may use."""

    def __init__(self, offer: Offer) -> None:
        super().__init__()
        self._offer = offer
        self._held: HeldClaim | None = None
        self._reserved: tuple[Demand, int, int] | None = None  # the arguments of the reservation
        self._waiting_logged_at = -math.inf
        self._use(offer.nodes)

    def reserve(self, demand: Demand, workers_min: int, workers_max: int) -> bool:
        """Claim the GPUs and other counted resources that this run needs, for it alone.

        Returns False while other runs have them, and logs that once a minute.
        """
        if self._held is not None and self._reserved == (demand, workers_min, workers_max):
            return True
        self.release()
        folder = self._offer.claims
        shared = {name for name in demand.each if is_counted(name)} - self._offer.own
        if folder is None or not any(demand.each[name] > 0 for name in shared):
            return True

        def choose(others: list[Claim]) -> list[Claim] | None:
            return claimed(self._offer, others, demand, workers_min, workers_max)

        if (claim_made := claim(folder, choose)) is not None:
            chosen, self._held = claim_made
            self._reserved = demand, workers_min, workers_max
            self._use(granted(self._offer, chosen))
            return True
        now = time.monotonic()
        if now - self._waiting_logged_at >= WAITING_LOGGED_EVERY_S:
            self._waiting_logged_at = now
            needs = ", ".join(f"{demand.each[name]:g} {name}" for name in sorted(shared))
            log.warning("waiting for other trials: %d workers with %s each", workers_min, needs)
        return False

    def release(self) -> None:
        """Give back what was reserved, for the runs of other trials."""
        if self._held is not None:
            self._held.release()
            self._held = None

    def _use(self, nodes: Sequence[Node]) -> None:
        with self._lock:
            self._nodes = {node.name: node for node in nodes}


def _checked(room: Mapping[str, float]) -> dict[str, float]:
    for name, amount in room.items():
        if type(amount) not in (int, float) or not amount >= 0:
            raise ConfigError(f"room for {name}={amount!r}: must be a number, 0 or more")
        if name == "GPU" and amount % 1 != 0:
            raise ConfigError(f"room for GPU={amount!r}: a node has whole GPUs")
    return {name: float(amount) for name, amount in room.items()}
