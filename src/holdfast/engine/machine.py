"""The CPUs, memory, GPUs and network interfaces of this machine."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from holdfast import settings

_GET_ADDRESS = 0x8915  # SIOCGIFADDR of Linux
_GPU_NAME = re.compile(r"\d+|(GPU|MIG)-\S+")


def room_here() -> dict[str, float]:
    """Return how much this process may use of each resource."""
    gpus = gpus_here()
    room = {"CPU": float(cpus_here()), "memory": float(memory_here())}
    return room | {"GPU": float(len(gpus))} if gpus else room


def cpus_here() -> int:
    """Return how many CPUs this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_here() -> int:
    """Return how many bytes of memory this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def memory_available(root: str = "/") -> int | None:
    """Return how many bytes of memory are available; None if the system does not say.

    A container's limit counts where it is lower than what the machine has left.
    """
    left = [
        int(line.split()[1]) * 1024
        for line in _lines(Path(root, "proc/meminfo"))
        if line.startswith("MemAvailable:")
    ]
    group = Path(root, "sys/fs/cgroup")
    limit, used = _lines(group / "memory.max"), _lines(group / "memory.current")
    if limit and used and limit[0].isdecimal():
        left.append(max(0, int(limit[0]) - int(used[0])))
    return min(left, default=None)


def _lines(path: Path) -> list[str]:
    """Return the lines of a system file, none if it cannot be read."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def gpus_here(root: str = "/") -> tuple[str, ...]:
    """Return the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    if (chosen := settings.visible_gpus()) is not None:
        return _named(chosen)
    by_driver = [*Path(root, "proc/driver/nvidia/gpus").glob("*")]
    by_device = [
        path for path in Path(root, "dev").glob("nvidia*") if path.name[len("nvidia") :].isdecimal()
    ]
    return tuple(str(number) for number in range(len(by_driver) or len(by_device)))


def _named(chosen: str) -> tuple[str, ...]:
    """Return the GPUs in a list, as CUDA reads it: up to the first invalid or repeated name."""
    names: list[str] = []
    for name in (part.strip() for part in chosen.split(",")):
        if not _GPU_NAME.fullmatch(name) or name in names:
            break
        names.append(name)
    return tuple(names)


def interface_of(address: str) -> str | None:
    """Return the network interface that has this address, None if none has."""
    if sys.platform != "linux":
        return _interface_elsewhere(address)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    packed = socket.inet_pton(family, address)
    interfaces = _with_ipv6() if family == socket.AF_INET6 else _with_ipv4()
    return next((name for name, own in interfaces if own == packed), None)


def _with_ipv4() -> Iterator[tuple[str, bytes]]:
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = name.encode()[:15].ljust(40, b"\0")
            try:
                answer = fcntl.ioctl(probe, _GET_ADDRESS, request)
            except OSError:  # it has none
                continue
            yield name, answer[20:24]


def _with_ipv6() -> Iterator[tuple[str, bytes]]:
    with open("/proc/net/if_inet6") as file:
        for line in file:
            address, *_, name = line.split()
            yield name, bytes.fromhex(address)


def _interface_elsewhere(address: str) -> str | None:
    import psutil

    for name, addresses in psutil.net_if_addrs().items():
        if any(own.address.partition("%")[0] == address for own in addresses):
            return name
    return None
