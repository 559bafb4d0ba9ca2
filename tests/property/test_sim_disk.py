"""A simulated disk does what the real one does, and a power cut spares what was synced."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Sequence

from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.storage.local.disk import Disk, PosixDisk, Stat
from holdfast.testing.crashes import crash_states
from holdfast.testing.disk import SimDisk
from holdfast.testing.fates import Effort

# Few names and shallow paths, so that most steps meet what earlier ones left.
names = st.sampled_from(["a", "b", "c"])
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
handles = st.integers(0, 3)  # counted from the handle opened last
sizes = st.integers(0, 6)

one_path = st.tuples(
    st.sampled_from(
        [
            "create",
            "open",
            "open_append",
            "remove",
            "mkdir",
            "mkdir",
            "rmdir",
            "stat",
            "scan",
            "lock",
        ]
    ),
    paths,
)
two_paths = st.tuples(st.sampled_from(["link", "rename", "rename"]), paths, paths)
on_handle = st.one_of(
    st.tuples(st.just("write"), handles, st.binary(max_size=5)),
    st.tuples(st.just("truncate"), handles, sizes),
    st.tuples(st.just("read"), handles, sizes, sizes),
    st.tuples(st.just("close"), handles),
    st.tuples(st.just("sync"), handles),
)
steps = st.one_of(one_path, two_paths, on_handle, st.tuples(st.just("sync_dir"), paths))
Step = tuple[object, ...]


class Player:
    """Plays steps on a disk and tells what came of them in terms that do not depend on it."""

    def __init__(self, disk: Disk, root: str) -> None:
        self.disk, self._root = disk, root
        self._handles: list[int] = []

    def play(self, step: Step) -> object:
        verb, *arguments = step
        try:
            return self._do(str(verb), arguments)
        except OSError as error:
            return f"errno {error.errno}"

    def _do(self, verb: str, arguments: list[object]) -> object:
        if verb in ("write", "truncate", "read", "close", "sync"):
            return self._on_handle(verb, arguments)
        full = [os.path.join(self._root, str(path)) for path in arguments]
        if verb == "lock":
            with self.disk.lock(full[0], 0.0):
                return None
        result = getattr(self.disk, verb)(*full)
        if verb in ("create", "open", "open_append"):
            self._handles.append(result)
            return "opened"
        if isinstance(result, Stat):
            return "folder" if result.is_folder else result.size
        return sorted(result) if isinstance(result, list) else result

    def _on_handle(self, verb: str, arguments: list[object]) -> object:
        from_last, *rest = arguments
        assert isinstance(from_last, int)
        if from_last >= len(self._handles):
            return None
        handle = self._handles[-1 - from_last]
        if verb == "close":
            self._handles.remove(handle)
        if verb != "read":
            return getattr(self.disk, verb)(handle, *rest)
        offset, size = rest
        assert isinstance(offset, int) and isinstance(size, int)
        buffer = bytearray(size)
        return bytes(buffer[: self.disk.read_into(handle, memoryview(buffer), offset)])

    def close(self) -> None:
        for handle in self._handles:
            self.disk.close(handle)

    def sync_everything(self) -> None:
        """Sync every file that has a name, and every folder."""
        folders = [self._root]
        for folder in folders:
            for name, is_folder in self.disk.scan(folder):
                path = os.path.join(folder, name)
                if is_folder:
                    folders.append(path)
                else:
                    handle = self.disk.open(path)
                    self.disk.sync(handle)
                    self.disk.close(handle)
            self.disk.sync_dir(folder)


def real_tree(root: str) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for folder, folders, files in os.walk(root):
        found.update({os.path.join(folder, name): None for name in folders})
        for name in files:
            with open(os.path.join(folder, name), "rb") as file:
                found[os.path.join(folder, name)] = file.read()
    return dict(sorted(found.items()))


EMPTY_READ_OF_A_FOLDER = [("mkdir", "b"), ("open", "b"), ("read", 0, 0, 0)]


@given(st.lists(steps, max_size=30))
@example(EMPTY_READ_OF_A_FOLDER)
@settings(max_examples=400)
def test_a_simulated_disk_agrees_with_a_real_one(history: Sequence[Step]) -> None:
    with tempfile.TemporaryDirectory() as root, contextlib.ExitStack() as ending:
        real, simulated = Player(PosixDisk(), root), Player(SimDisk(root), root)
        ending.callback(real.close)
        for step in history:
            assert simulated.play(step) == real.play(step), step

        assert isinstance(simulated.disk, SimDisk)
        below = {p: data for p, data in simulated.disk.tree().items() if p.startswith(f"{root}/")}
        assert below == real_tree(root)


@given(st.lists(steps, max_size=20))
def test_every_moment_is_among_the_states_with_nothing_lost(history: Sequence[Step]) -> None:
    disk = SimDisk("/r")
    player = Player(disk, "/r")
    seen = [disk.tree()]
    for step in history:
        player.play(step)
        seen.append(disk.tree())
    effort = Effort(combinations_max=16, samples=0)

    survivors = [survivor.tree() for _, survivor in crash_states(disk, effort)]
    assert all(tree in survivors for tree in seen)


@given(st.lists(steps, max_size=20), st.lists(steps, max_size=8))
def test_what_was_synced_and_then_left_alone_is_in_every_state(
    history: Sequence[Step], later: Sequence[Step]
) -> None:
    disk = SimDisk("/r/kept", "/r/other")
    kept, other = Player(disk, "/r/kept"), Player(disk, "/r/other")
    for step in history:
        kept.play(step)
    kept.sync_everything()
    disk.mark("synced")
    promised = [(path, data) for path, data in disk.tree().items() if path.startswith("/r/kept")]
    for step in later:
        other.play(step)

    for point, survivor in crash_states(disk, Effort(combinations_max=64, samples=8)):
        if point.marks:
            there = survivor.tree().items()
            assert [item for item in there if item[0].startswith("/r/kept")] == promised, point


moves = st.lists(st.tuples(paths, paths), max_size=8)
INTO_ITSELF = [("a/a", "b/b"), ("a", "b/b/a")]  # what the second would do without the first


@given(moves, st.sets(st.integers(0, 7)))
@example(INTO_ITSELF, set())
def test_what_was_only_renamed_has_one_name_in_every_state(
    history: Sequence[tuple[str, str]], synced_after: set[int]
) -> None:
    """Renames alone, over nothing, lose and double nothing, whichever of them a cut undoes."""
    disk = SimDisk("/r/a/a", "/r/b", "/r/c")
    for path in ("/r/a/a/b", "/r/a/b", "/r/b/a", "/r/c/a"):
        handle = disk.create(path)
        disk.write(handle, path.encode())
        disk.close(handle)
    disk.settle()
    for number, (old, new) in enumerate(history):
        with contextlib.suppress(OSError):
            if disk.stat(f"/r/{new}") is None:
                disk.rename(f"/r/{old}", f"/r/{new}")
                if number in synced_after:
                    disk.sync_dir(os.path.dirname(f"/r/{old}"))

    for point, survivor in crash_states(disk):
        contents = sorted(data for data in survivor.tree().values() if data is not None)
        assert contents == [b"/r/a/a/b", b"/r/a/b", b"/r/b/a", b"/r/c/a"], point
