"""Chooses the engine and the nodes of this process: `holdfast.init`, which is optional."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence

from holdfast.core.study.offers import Offer
from holdfast.engine.base import Engine
from holdfast.engine.local.engine import LocalEngine
from holdfast.engine.nodes import LocalNodes, OfferedNodes
from holdfast.errors import ConfigError

_chosen: tuple[int, LocalNodes] | None = None  # with the pid of the process that chose


def init(
    address: str | None = None,
    *,
    nodes: int | None = None,
    num_cpus: float | None = None,
    num_gpus: int | None = None,
    resources: Mapping[str, float] | None = None,
    ignore_reinit_error: bool = False,
    **of_ray: object,
) -> LocalNodes:
    """Choose the nodes for all later runs of this process, and return them.

    Nothing is started. A process that never calls this uses the machine as it is.

    Args:
        address: The address of a cluster; None or "local" for this machine.
        nodes: How many nodes to simulate on this machine, to test their loss; None for the machine
            itself.
        num_cpus: How many CPUs each node has; None for as many as the machine.
        num_gpus: How many GPUs each node has; None for as many as the machine.
        resources: Other resources of each node, by name.
        ignore_reinit_error: Return the earlier choice, if there is one, instead of raising.
        of_ray: Other arguments of `ray.init`; they are ignored with a warning.
    """
    global _chosen  # noqa: PLW0603  # one choice per process
    if of_ray:
        named = ", ".join(sorted(of_ray))
        warnings.warn(f"holdfast.init does not need, and ignores: {named}", stacklevel=2)
    if address not in (None, "local"):
        raise ConfigError(
            f"address={address!r}: clusters are not supported yet; runs are on this machine",
            hint="leave it out; nodes=2 simulates two nodes",
        )
    if (current := _current()) is not None:
        if ignore_reinit_error:
            return current
        raise ConfigError(
            "holdfast.init was called before in this process",
            hint="call holdfast.shutdown() first, or pass ignore_reinit_error=True",
        )
    room = {**(resources or {})}
    for name, amount in (("CPU", num_cpus), ("GPU", num_gpus)):
        if name in room:
            raise ConfigError(f"resources={resources!r}: {name} is set by num_{name.lower()}s")
        if amount is not None:
            room[name] = amount
    chosen = LocalNodes(nodes, room)
    _chosen = os.getpid(), chosen
    return chosen


def shutdown() -> None:
    """Forget the choice of `init`; runs that are under way are not affected."""
    global _chosen  # noqa: PLW0603
    _chosen = None


def is_initialized() -> bool:
    """Whether `init` was called, and `shutdown` was not since."""
    return _current() is not None


def new_engine(
    entry: str,
    modules: Sequence[str] = (),
    *,
    of_user: Sequence[str] = (),
    later: Sequence[str] = (),
    offer: Offer | None = None,
) -> Engine:
    """Return a new engine on the nodes that `init` chose, else on those offered or this machine.

    Args:
        entry: The worker's entry point, `module:function`; it gets the number of its socket.
        modules: Modules that every worker needs.
        of_user: Modules of the user's that every worker needs.
        later: Modules that workers need, but the first ones not at once.
        offer: What the trial that this process runs may use, if it runs one.
    """
    nodes = _current()
    if nodes is None and offer is not None:
        nodes = OfferedNodes(offer)
    return LocalEngine(entry, modules, nodes, of_user=of_user, later=later)


def _current() -> LocalNodes | None:
    """Return the choice of this process; that of the driver does not count in a forked worker."""
    return _chosen[1] if _chosen is not None and _chosen[0] == os.getpid() else None
