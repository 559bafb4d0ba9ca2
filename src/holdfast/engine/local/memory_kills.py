"""Whether the kernel killed a process for the memory it used: its own counters tell.

A process that is killed so ends by SIGKILL, like one that somebody killed by hand. The kernel
counts such kills for each memory cgroup, and for the whole machine; a count that has risen by the
time a worker is found killed is the difference.
"""

from __future__ import annotations

from pathlib import Path

_ESCAPED_SPACE = "\\040"


class MemoryKills:
    """Counts the kernel's kills since `begin`, each to be claimed for one dead worker.

    Args:
        root: Where to find /proc; another folder in tests.
    """

    def __init__(self, root: str = "/") -> None:
        self._root = Path(root)
        self._before: dict[Path, int] = {}

    def begin(self) -> None:
        """Count from now."""
        # The counter of the machine is no proof: other cgroups' kills are in it. But the root
        # cgroup, in which a machine's own processes are, has no counter of its own.
        file = self._counter(self._read("proc/self/cgroup")) or self._root / "proc/vmstat"
        self._before = {file: kills_in(_text(file))}

    def claim(self, cgroup: str = "") -> bool:
        """Return whether the kernel has killed a process that was not claimed yet.

        Args:
            cgroup: The text of /proc/PID/cgroup of the dead worker, not reaped yet: it may have
                been moved since it was forked.
        """
        # Of the older kind of cgroup the dead are no members; the kernel shows them in the root.
        own = "".join(line for line in cgroup.splitlines(keepends=True) if line.startswith("0::"))
        if (file := self._counter(own)) is not None:
            self._before.setdefault(file, 0)  # made for the worker: it has no past
        risen = [file for file, before in self._before.items() if kills_in(_text(file)) > before]
        for file in risen:  # one kill is counted in the cgroups above as well
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
    """Return where the kills of a process's memory cgroup are counted, best first.

    Args:
        cgroup: The text of its /proc/PID/cgroup.
        mountinfo: The text of /proc/self/mountinfo, which says where cgroups are to be seen.
    """
    paths: dict[str, str] = {}
    for line in cgroup.splitlines():
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            paths["cgroup"] = path
        elif number == "0" and not controllers:
            paths["cgroup2"] = path
    found: dict[str, Path] = {}
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        root, mount = left.split()[3:5]
        kind, _, options = right.split(maxsplit=2)
        if kind not in paths or (kind == "cgroup" and "memory" not in options.split(",")):
            continue
        if (inside := _below(paths[kind], root)) is not None:
            name = "memory.oom_control" if kind == "cgroup" else "memory.events"
            found[kind] = Path(mount.replace(_ESCAPED_SPACE, " "), inside, name)
    return [found[kind] for kind in ("cgroup", "cgroup2") if kind in found]


def _below(path: str, root: str) -> str | None:
    """Return a cgroup's path below what is mounted, None if it is not to be seen there."""
    if path.startswith("/.."):
        return None
    if root == "/":
        return path.lstrip("/")
    if path == root or path.startswith(f"{root}/"):
        return path[len(root) :].lstrip("/")
    return None


def kills_in(text: str) -> int:
    """Return the count of kills in a kernel's list of counters, 0 if it keeps none."""
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
