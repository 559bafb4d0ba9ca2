"""A count of all that runs have made, so that afterwards nothing is left that nobody uses.

Processes are known by a variable that they inherit. Sockets and shared memory have no such mark, so
those that marked processes hold are written down while they live, and looked for afterwards.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.control.record.litter import find_litter
from holdfast.control.record.run_view import look, verify
from holdfast.storage.locate import open_store
from tests.patience import pause

SHARED_MEMORY = Path("/dev/shm")
OTHERS_TAKE_S = 10.0

# Everything that a run has in its folder once it is over, and nothing else.
_BELONGS = re.compile(
    r"""checkpoint_\d{6}(/[^.][^/]*)?
      | logs (/attempt-\d+ (/rank-\d+\.log)?)?
      | \.holdfast ( /run\.json | /trainer\.json
                   | /lease (/\d{8}(-[0-9a-f]{16})?\.json)?
                   | /journal (/\d{6}-\d{6}(\.snapshot)?\.jsonl)?
                   | /metrics (/\d{6}-\d{6}\.jsonl)?
                   | /manifests (/checkpoint_\d{6}\.json)?
                   | /staging )?""",
    re.VERBOSE,
)


@dataclass
class Leftovers:
    """What was found that should not be there; falsy if nothing was."""

    processes: list[str] = field(default_factory=list)
    sockets: list[str] = field(default_factory=list)
    temporary_files: list[str] = field(default_factory=list)
    shared_memory: list[str] = field(default_factory=list)
    in_run: list[str] = field(default_factory=list)
    leases: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any(vars(self).values())


class Census:
    """Counts what was made by processes with a mark.

    Args:
        mark: `NAME=value`, as it stands in their environment.
        run: The folder of the run that they work at.
        temporary: Their TMPDIR, and nobody else's; also whatever else they must leave empty.
        memory: Where shared memory is seen as files.
    """

    def __init__(
        self, mark: str, run: Path, temporary: list[Path], *, memory: Path = SHARED_MEMORY
    ) -> None:
        self._mark, self._run, self._temporary = mark.encode(), run, temporary
        self._memory = memory
        self._segments_before = set(_names_in(memory))
        self.pids: set[int] = set()
        self.sockets: set[int] = set()
        self.segments: set[str] = set()

    def processes(self) -> list[int]:
        """Return the processes with the mark that run now."""
        return [pid for pid in _everybody() if self._mark in _read(pid, "environ").split(b"\0")]

    def observe(self) -> list[int]:
        """Write down what marked processes hold at this moment; return which they are."""
        found = self.processes()
        for pid in found:
            self.pids.add(pid)
            for target in _open_files(pid):
                if socket := re.fullmatch(r"socket:\[(\d+)\]", target):
                    self.sockets.add(int(socket[1]))
            self.segments |= self._segments_of(pid)
        return found

    def leftovers(self) -> Leftovers:
        """Return what is left of everything, now that the run is over."""
        return Leftovers(
            processes=[f"{pid}: {_command(pid)}" for pid in self.processes()],
            sockets=self._left_sockets(),
            temporary_files=[str(path) for one in self._temporary for path in one.rglob("*")],
            shared_memory=self._left_segments() + self._left_old_segments(),
            in_run=self._left_in_run(),
            leases=self._open_leases(),
        )

    # ------------------------------------------------------------------ sockets and memory

    def _left_sockets(self) -> list[str]:
        """Return sockets that were ours and are still there, and ours by where they are bound."""
        ours = tuple(str(one) for one in [self._run, *self._temporary])
        left = []
        for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
            fields = line.split()
            bound = fields[7] if len(fields) > 7 else ""
            if int(fields[6]) in self.sockets or bound.startswith(ours):
                left.append(f"unix socket {fields[6]} {bound}")
        for table in ("tcp", "tcp6", "udp", "udp6"):
            path = Path("/proc/net", table)
            for line in path.read_text().splitlines()[1:] if path.exists() else []:
                fields = line.split()
                if int(fields[9]) in self.sockets:
                    left.append(f"{table} socket {fields[9]} at {fields[1]}")
        return left

    def _left_segments(self) -> list[str]:
        """Return shared memory that was ours, or that came since and nobody uses."""
        new = set(_names_in(self._memory)) - self._segments_before
        return sorted(name for name in new if name in self.segments or self._is_forgotten(name))

    def _is_forgotten(self, name: str) -> bool:
        """Whether nobody uses a segment for a while: others may have made it just now."""
        path, deadline = self._memory / name, time.monotonic() + OTHERS_TAKE_S
        while time.monotonic() < deadline:
            try:
                facts = path.stat()
            except FileNotFoundError:
                return False
            if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.getuid():
                return False  # what others use of another user's is not to be seen
            if any(name in self._segments_of(pid) for pid in _everybody()):
                return False
            pause()
        return True

    def _segments_of(self, pid: int) -> set[str]:
        """Return the shared memory that a process has open, or in its address space."""
        inside = f"{self._memory}/"
        mapped = [line.split(maxsplit=5)[-1] for line in _read(pid, "maps").decode().splitlines()]
        paths = [path for path in (*_open_files(pid), *mapped) if path.startswith(inside)]
        return {path.removeprefix(inside).removesuffix(" (deleted)") for path in paths}

    def _left_old_segments(self) -> list[str]:
        """Return segments of the older kind that a process of ours has made."""
        path = Path("/proc/sysvipc/shm")
        if not path.exists():
            return []
        rows = [line.split() for line in path.read_text().splitlines()[1:]]
        return [f"segment {row[1]} made by {row[4]}" for row in rows if int(row[4]) in self.pids]

    # ------------------------------------------------------------------ the run

    def _left_in_run(self) -> list[str]:
        if not self._run.exists():
            return []
        store = open_store(self._run)
        view = look(store)
        litter = [one.key for one in find_litter(store, view.identity.run_id, view.record)]
        strange = [
            name
            for path in self._run.rglob("*")
            if not _BELONGS.fullmatch(name := path.relative_to(self._run).as_posix())
            or not (path.is_file() or path.is_dir())
        ]
        known = {kept.directory for kept in view.record.kept.values()}
        unknown = [path.name for path in self._run.glob("checkpoint_*") if path.name not in known]
        found = verify(view)
        return [*litter, *strange, *unknown, *found.foreign, *found.damaged, *found.quarantined]

    def _open_leases(self) -> list[str]:
        if not self._run.exists():
            return []
        view = look(open_store(self._run))
        if view.lease is not None and view.lease.released and not view.is_live:
            return []
        return [f"{view.lease}"]


# ---------------------------------------------------------------------- what the kernel says


def _everybody() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _read(pid: int, name: str) -> bytes:
    """Return what a file of a process says; nothing of one that has ended, or is another user's."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _command(pid: int) -> str:
    return _read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()


def _open_files(pid: int) -> list[str]:
    found: list[str] = []
    for handle in _names_in(Path(f"/proc/{pid}/fd")):
        with contextlib.suppress(OSError):  # it has just been closed
            found.append(os.readlink(f"/proc/{pid}/fd/{handle}"))
    return found


def _names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []  # there is none any more, or it is not ours to look at
