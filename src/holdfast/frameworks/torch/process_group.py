"""Joins the ranks of a group into one process group: rank 0 opens a store, the others connect.

The kernel chooses the port and the driver passes it on within one attempt. On one machine neither
the store nor gloo listens on outside addresses or asks a name server. Nothing has to be taken down:
a worker that is done ends its process without waiting for others.
"""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # which it documents

from holdfast.core.placement import LOOPBACK, Place
from holdfast.engine.machine import interface_of
from holdfast.errors import HoldfastError
from holdfast.frameworks.torch.devices import get_device, get_devices
from holdfast.settings import add_to_environment, is_in_environment

if TYPE_CHECKING:
    from holdfast.frameworks.torch.config import TorchConfig
    from holdfast.worker.context import WorkerContext

# Addresses for documentation (RFC 5737, 3849): a UDP socket connected there has our own address,
# and sends nothing.
_ELSEWHERE = (("192.0.2.1", socket.AF_INET), ("2001:db8::1", socket.AF_INET6))

_our_group: dist.ProcessGroup | None = None


class ProcessGroupError(HoldfastError, RuntimeError):
    """A rank could not join the others."""

    code = "HF230"


def join(context: WorkerContext, config: TorchConfig) -> None:
    """Make this worker a member of its group's process group; return once all are.

    A process group that the user made, in the driver's own process, is left as it is.

    Raises `ProcessGroupError`, which names the rank, if joining fails.
    """
    global _our_group  # noqa: PLW0603  # as the group itself is, in torch
    if dist.is_initialized() and dist.group.WORLD is not _our_group:
        return
    leave()  # the group of an earlier run in this process
    place = context.place
    _share_processors(place)
    timeout = timedelta(seconds=config.timeout_s)
    backend = config.backend or ("gloo" if place.gpus is None else "nccl")
    where = "none"
    try:
        address = _address(place)
        _use_interface_of(address)
        if place.rank == 0:
            store = _open_store(address, place.world_size, timeout)
            where = f"{address} {store.port}"
            context.meet(where.encode())
        else:
            if (data := context.meet()) is None:
                raise ProcessGroupError("rank 0 ended before it could say where to meet")
            where = data.decode()
            host, port = where.split()
            store = TCPStore(host, int(port), place.world_size, timeout=timeout)
        _describe_in_environment(place, *where.split())
        if place.gpus is not None:
            torch.cuda.set_device(get_devices()[0])
        dist.init_process_group(
            backend, store=store, rank=place.rank, world_size=place.world_size, timeout=timeout
        )
        _our_group = dist.group.WORLD
        context.at_end(leave)
        # If rank 0 ended before all have joined, their store would be gone.
        context.meet()
    except HoldfastError:
        raise
    except Exception as error:  # a backend raises what it likes
        raise ProcessGroupError(
            f"rank {place.rank} of {place.world_size} on {place.node} could not join the process"
            f" group (backend {backend!r}, store {where.replace(' ', ':')}): {error}",
            hint="check that the nodes reach each other, and TorchConfig(backend=…)",
        ) from error


def leave() -> None:
    """Leave the process group that `join` has joined, if any, without waiting for other ranks."""
    if dist.is_initialized() and dist.group.WORLD is _our_group:
        dist.destroy_process_group()


def _open_store(address: str, world_size: int, timeout: timedelta) -> TCPStore:
    """Return a store that listens only at `address`, on a port that the kernel chooses.

    By default torch's store listens at every address of the machine.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family, backlog=world_size) as server:
        port, handle = server.getsockname()[1], server.detach()
    opened = partial(
        TCPStore,
        address,
        port,
        world_size,
        is_master=True,
        timeout=timeout,
        wait_for_workers=False,
        master_listen_fd=handle,
    )
    try:
        return opened()
    except NotImplementedError:  # torch before 2.8 takes a socket only without libuv
        return opened(use_libuv=False)


def _address(place: Place) -> str:
    """Return an address of this machine at which the whole group reaches it."""
    if place.local_world_size == place.world_size:
        return LOOPBACK
    if place.address != LOOPBACK:
        return place.address
    for elsewhere, family in _ELSEWHERE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((elsewhere, 9))
                return str(probe.getsockname()[0])
        except OSError:
            continue  # no route by this protocol
    return LOOPBACK  # no network at all, so the other nodes are on this machine too


def _use_interface_of(address: str) -> None:
    """Make gloo use the interface with this address, unless the user has named one.

    By default gloo looks up the host's name, which may be unknown or slow in a container, and on
    many machines is an address that no other machine reaches.
    """
    if is_in_environment("GLOO_SOCKET_IFNAME"):
        return
    if (name := interface_of(address)) is not None:
        add_to_environment({"GLOO_SOCKET_IFNAME": name})


def _describe_in_environment(place: Place, address: str, port: str) -> None:
    """Set the variables that `torchrun` sets."""
    add_to_environment(
        {
            "MASTER_ADDR": address,
            "MASTER_PORT": port,
            "RANK": str(place.rank),
            "WORLD_SIZE": str(place.world_size),
            "LOCAL_RANK": str(place.local_rank),
            "LOCAL_WORLD_SIZE": str(place.local_world_size),
            "NODE_RANK": str(place.node_rank),
            "GROUP_RANK": str(place.node_rank),
            "ACCELERATE_TORCH_DEVICE": str(get_device()),  # read by Hugging Face Accelerate
        }
    )


def _share_processors(place: Place) -> None:
    """Keep the workers of a node from computing with more threads than it has CPUs."""
    if place.local_world_size > 1 and not is_in_environment("OMP_NUM_THREADS"):
        torch.set_num_threads(max(1, _processors() // place.local_world_size))


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
