"""Tells whether the kernel killed a process for its memory use, from the kernel's counters.

Such a process ends by SIGKILL, like one that was killed by hand. But the kernel counts these kills
for each memory cgroup and for the whole machine: if a count has risen when a worker is found
killed, memory was the reason.
"""

from __future__ import annotations

from pathlib import Path

_ESCAPED_SPACE = "\\040"


class MemoryKills:
    """The kernel's kills since `begin`; each can be claimed for one dead worker.

    Args:
        root: The folder that /proc is in; another one in tests.
    """

    def __init__(self, root: str = "/") -> None:
        self._root = Path(root)
        self._before: dict[Path, int] = {}

    def begin(self) -> None:
        """Count from now."""
        # The machine's counter is a last resort, because it includes kills in other cgroups. But
        # the root cgroup, which a machine's own processes are in, has no counter of its own.
        file = self._counter(self._read("proc/self/cgroup")) or self._root / "proc/vmstat"
        self._before = {file: kills_in(_text(file))}

    def claim(self, cgroup: str = "") -> bool:
        """Return whether there was a kill that was not claimed yet, and claim it.

        Args:
            cgroup: The text of /proc/PID/cgroup of the dead worker, read before it was reaped: it
                may have been moved since it was forked.
        """
        # Not for cgroups of version 1: dead processes are shown in the root there.
        own = "".join(line for line in cgroup.splitlines(keepends=True) if line.startswith("0::"))
        if (file := self._counter(own)) is not None:
            self._before.setdefault(file, 0)  # a cgroup made for the worker starts at 0
        risen = [file for file, before in self._before.items() if kills_in(_text(file)) > before]
        for file in risen:  # a kill is counted in the cgroups above as well
            self._before[file] += 1
        return bool(risen)

    def _counter(self, cgroup: str) -> Path | None:
        for path in counter_files(cgroup, self._read("proc/self/mountinfo")):
            file = self._root / path.relative_to("/")
            if file.is_file():
                return file
        return None

    def _read(self, path: str) -> str:
        return _text(self._root / path)


def counter_files(cgroup: str, mountinfo: str) -> list[Path]:
    """Return the files that may count the kills in a process's memory cgroup, best first.

    Args:
        cgroup: The text of its /proc/PID/cgroup.
        mountinfo: The text of /proc/self/mountinfo, which says where cgroups are mounted.
    """
    paths: dict[str, str] = {}
    for line in cgroup.splitlines():
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            paths["cgroup"] = path
        elif number == "0" and not controllers:
            paths["cgroup2"] = path
    files: dict[str, Path] = {}
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        root, mount = left.split()[3:5]
        kind, _, options = right.split(maxsplit=2)
        if kind not in paths or (kind == "cgroup" and "memory" not in options.split(",")):
            continue
        if (inside := _below(paths[kind], root)) is not None:
            name = "memory.oom_control" if kind == "cgroup" else "memory.events"
            files[kind] = Path(mount.replace(_ESCAPED_SPACE, " "), inside, name)
    return [files[kind] for kind in ("cgroup", "cgroup2") if kind in files]


def _below(path: str, root: str) -> str | None:
    """Return a cgroup's path below the mounted root, None if it is not below it."""
    if path.startswith("/.."):
        return None
    if root == "/":
        return path.lstrip("/")
    if path == root or path.startswith(f"{root}/"):
        return path[len(root) :].lstrip("/")
    return None


def kills_in(text: str) -> int:
    """Return the count of kills in one of the kernel's lists of counters, 0 if it has none."""
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill":
            return int(value)
    return 0


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""  # removed with its cgroup, or not ours to read
