"""The kernel's counters of kills are found and read, from copies of its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.engine.local.memory_kills import MemoryKills, counter_files, kills_in

V2_MOUNT = "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNT = (
    "30 25 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    "33 25 0:28 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory\n"
)
DOCKER_MOUNT = (
    "33 25 0:28 /docker/abc /sys/fs/cgroup/memory ro shared:1 master:2 - cgroup cgroup rw,memory\n"
)


@pytest.mark.parametrize(
    ("cgroup", "mounts", "expected"),
    [
        ("0::/user.slice/run", V2_MOUNT, "/sys/fs/cgroup/user.slice/run/memory.events"),
        ("0::/", V2_MOUNT, "/sys/fs/cgroup/memory.events"),
        ("0::/../other", V2_MOUNT, None),
        (
            "5:memory:/jobs\n3:cpu,cpuacct:/\n0::/",
            V1_MOUNT,
            "/sys/fs/cgroup/memory/jobs/memory.oom_control",
        ),
        (
            "5:memory:/docker/abc\n0::/",
            DOCKER_MOUNT,
            "/sys/fs/cgroup/memory/memory.oom_control",
        ),
        ("5:memory:/docker/abcd", DOCKER_MOUNT, None),
        ("3:cpu,cpuacct:/", V1_MOUNT, None),
        ("0::/a b", V2_MOUNT.replace("/sys/fs", r"/my\040sys"), "/my sys/cgroup/a b/memory.events"),
        ("", V2_MOUNT, None),
        ("0::/x", "", None),
    ],
)
def test_the_counter_of_a_process_is_found(cgroup: str, mounts: str, expected: str | None) -> None:
    assert [str(path) for path in counter_files(cgroup, mounts)] == [expected] * bool(expected)


def test_the_older_kind_comes_first_where_both_are_mounted() -> None:
    files = counter_files("5:memory:/j\n0::/j", V1_MOUNT + V2_MOUNT)

    assert [path.name for path in files] == ["memory.oom_control", "memory.events"]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 1\n", 2),
        ("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n", 5),
        ("nr_free_pages 1\noom_kill 7\n", 7),
        ("oom_kill_disable 0\nunder_oom 0\n", 0),
        ("", 0),
    ],
)
def test_the_count_is_read(text: str, count: int) -> None:
    assert kills_in(text) == count


class Machine:
    """A folder with the files that the kernel would show."""

    def __init__(self, root: Path, cgroup: str = "0::/run") -> None:
        self.root = root
        self.write("proc/self/cgroup", f"{cgroup}\n")
        self.write("proc/self/mountinfo", V2_MOUNT)
        self.kills = MemoryKills(str(root))

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def count(self, cgroup: str, count: int) -> None:
        self.write(f"sys/fs/cgroup/{cgroup}/memory.events", f"oom 9\noom_kill {count}\n")


def test_only_kills_since_the_beginning_count_and_each_once(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.count("run", 3)
    machine.kills.begin()
    assert not machine.kills.claim()

    machine.count("run", 5)

    assert machine.kills.claim()
    assert machine.kills.claim()
    assert not machine.kills.claim()


def test_a_new_beginning_forgets_what_was_not_claimed(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.count("run", 0)
    machine.kills.begin()
    machine.count("run", 4)
    machine.kills.begin()

    assert not machine.kills.claim()


def test_a_worker_that_was_moved_is_looked_for_where_it_was(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.count("run", 0)
    machine.kills.begin()
    machine.count("elsewhere", 1)

    assert not machine.kills.claim("0::/run\n")
    assert machine.kills.claim("0::/elsewhere\n")
    assert not machine.kills.claim("0::/elsewhere\n")


def test_a_kill_that_is_counted_on_two_levels_is_one_kill(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.count("run", 0)
    machine.kills.begin()
    machine.count("run", 1)
    machine.count("run/worker", 1)

    assert machine.kills.claim("0::/run/worker\n")
    assert not machine.kills.claim("0::/run\n")


def test_the_root_cgroup_goes_by_the_count_of_the_machine(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "0::/")
    machine.write("proc/vmstat", "nr_dirty 3\noom_kill 8\n")
    machine.kills.begin()
    assert not machine.kills.claim("0::/\n")

    machine.write("proc/vmstat", "nr_dirty 3\noom_kill 9\n")

    assert machine.kills.claim("0::/\n")


def test_where_there_are_no_counters_nothing_is_claimed(tmp_path: Path) -> None:
    kills = MemoryKills(str(tmp_path))
    kills.begin()

    assert not kills.claim("0::/x\n")


def test_the_dead_of_an_older_cgroup_are_not_looked_for_in_its_root(tmp_path: Path) -> None:
    """There the kernel shows every process that has ended, wherever it was."""
    machine = Machine(tmp_path, "5:memory:/run\n0::/")
    machine.write("proc/self/mountinfo", V1_MOUNT)
    machine.write("sys/fs/cgroup/memory/run/memory.oom_control", "oom_kill 0\n")
    machine.write("sys/fs/cgroup/memory/memory.oom_control", "oom_kill 40\n")
    machine.kills.begin()

    assert not machine.kills.claim("5:memory:/\n0::/\n")
