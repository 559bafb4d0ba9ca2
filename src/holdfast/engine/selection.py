"""Which engine this process uses, and with what nodes: `holdfast.init` chooses, nobody has to."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence

from holdfast.core.study.offers import Offer
from holdfast.engine.base import Engine
from holdfast.engine.local.engine import LocalEngine
from holdfast.engine.nodes import LocalNodes, OfferedNodes
from holdfast.errors import ConfigError

_chosen: tuple[int, LocalNodes] | None = None  # with the process that chose


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
    """Choose what all later runs of this process are placed on, and return it.

    Nothing is started. A process that never calls this uses the machine as it is.

    Args:
        address: Of a cluster; None or "local" for this machine.
        nodes: How many nodes to simulate on this machine, so that their loss can be tried; None
            for the machine itself.
        num_cpus: How many CPUs each node has; None for what the machine has.
        num_gpus: How many GPUs each node has; None for what the machine has.
        resources: What else each node has, by name.
        ignore_reinit_error: Return what was chosen before instead of raising, if something was.
        of_ray: What else `ray.init` takes; nothing here needs it, which is said.
    """
    global _chosen  # noqa: PLW0603  # it is the process's choice
    if of_ray:
        named = ", ".join(sorted(of_ray))
        warnings.warn(f"holdfast.init does not need, and ignores: {named}", stacklevel=2)
    if address not in (None, "local"):
        raise ConfigError(
            f"address={address!r}: clusters are not there yet; runs are on this machine",
            hint="leave it out; nodes=2 simulates two nodes",
        )
    if (known := _current()) is not None:
        if ignore_reinit_error:
            return known
        raise ConfigError(
            "holdfast.init was called before in this process",
            hint="call holdfast.shutdown() first, or pass ignore_reinit_error=True",
        )
    room = {**(resources or {})}
    for name, amount in (("CPU", num_cpus), ("GPU", num_gpus)):
        if name in room:
            raise ConfigError(f"resources={resources!r}: {name} is given by num_{name.lower()}s")
        if amount is not None:
            room[name] = amount
    found = LocalNodes(nodes, room)
    _chosen = os.getpid(), found
    return found


def shutdown() -> None:
    """Forget what `init` chose; runs that are under way are not touched."""
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
        entry: Where a worker begins, `module:function`; it gets the number of its socket.
        modules: What workers will want imported.
        of_user: Modules of the user's that workers will want imported.
        later: What workers will want imported, but the first ones not at once.
        offer: What the trial may use that this process runs, if it runs one.
    """
    nodes = _current()
    if nodes is None and offer is not None:
        nodes = OfferedNodes(offer)
    return LocalEngine(entry, modules, nodes, of_user=of_user, later=later)


def _current() -> LocalNodes | None:
    """Return this process's choice; a worker that was forked has not made the driver's."""
    return _chosen[1] if _chosen is not None and _chosen[0] == os.getpid() else None
