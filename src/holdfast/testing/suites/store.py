"""The conformance suite of `Store`.

Subclass `StoreSuite` and give it a fixture named `store` that opens an empty store:

    class TestMyStore(StoreSuite):
        @pytest.fixture
        def store(self, tmp_path):
            return MyStore(tmp_path)

In a store whose `fences` is False, several of many writers may win; all else must hold.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.reduction import ForkingPickler

import pytest

from holdfast.errors import Conflict, ObjectMissing, StoreError
from holdfast.storage.base import ALWAYS, IF_ABSENT, Condition, IfVersion, Store
from holdfast.storage.digest import Digester, digest_bytes
from holdfast.storage.locate import child
from holdfast.testing.sources import Refilled

WRITERS = 8
LARGE_BYTES = (17 << 20) + 5  # more than any backend sends in one piece
ODD_NAMES = [
    "with space",
    "lr=0.1,batch=32",
    "100%",
    "a%20b",
    "ümläut-雪",
    "plus+and&hash#question?",
    "~tilde",
    "brackets[1]{2}(3)",
    "star*",
    "colon:semi;comma,",
    "quote'\"",
    "...dots...",
    ".hidden",
    "UPPER-lower",
    "n" * 200,
]


class StoreSuite:
    """The contract of `holdfast.storage.base.Store`, as tests.

    Attributes:
        folders_linger: The server still lists a folder some time after it became empty.
        many: How many objects to list; more than the store lists in one page, to test that.
    """

    folders_linger = False
    many = 150

    # ------------------------------------------------------------------ objects

    def test_what_was_put_is_what_is_read(self, store: Store) -> None:
        store.put("a/b/c.bin", bytes(range(256)))

        assert store.get("a/b/c.bin").data == bytes(range(256))

    def test_a_put_replaces_the_whole_object(self, store: Store) -> None:
        store.put("a", b"a long one")
        store.put("a", b"short")

        assert store.get("a").data == b"short"

    def test_an_empty_object_is_an_object(self, store: Store) -> None:
        store.put("empty", b"")

        entry = store.stat("empty")
        assert store.get("empty").data == b""
        assert store.read("empty", 0, 10) == b""
        assert [bytes(chunk) for chunk in store.stream("empty")] in ([], [b""])
        assert entry is not None
        assert entry.size == 0

    def test_a_missing_object_is_reported_as_missing(self, store: Store) -> None:
        store.put("there/it/is", b"")

        for look in (
            lambda: store.get("there/it"),
            lambda: store.get("not/there"),
            lambda: store.read("not/there", 0, 1),
            lambda: store.read("not/there", 0, 0),
            lambda: list(store.stream("not/there")),
        ):
            with pytest.raises(ObjectMissing):
                look()
        assert store.stat("not/there") is None
        assert store.stat("there/it") is None

    def test_a_reader_sees_the_old_object_or_the_new_one(self, store: Store) -> None:
        """A reader reads without pause while a writer replaces one large object with another."""
        size, is_over = 300_000, threading.Event()
        contents = [bytes([letter]) * size for letter in b"ab"]
        store.put("shared", contents[0])

        def write() -> None:
            try:
                for turn in range(10):
                    store.put("shared", contents[turn % 2])
            finally:
                is_over.set()

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            seen = [store.get("shared").data]
            while not is_over.is_set():
                seen.append(store.get("shared").data)
            writing.result()

        assert all(data in contents for data in seen)

    # ------------------------------------------------------------------ conditions

    def test_put_returns_the_version_that_get_returns(self, store: Store) -> None:
        for condition in (IF_ABSENT, ALWAYS):
            version = store.put("a", f"{condition}".encode(), condition)

            assert store.get("a").version == version

    def test_a_put_if_absent_succeeds_once(self, store: Store) -> None:
        store.put("a", b"first", IF_ABSENT)

        with pytest.raises(Conflict):
            store.put("a", b"second", IF_ABSENT)
        assert store.get("a").data == b"first"

    def test_a_put_if_absent_succeeds_again_after_a_delete(self, store: Store) -> None:
        store.put("a", b"first", IF_ABSENT)
        store.delete("a")

        store.put("a", b"second", IF_ABSENT)

        assert store.get("a").data == b"second"

    def test_a_put_if_version_needs_the_version_that_is_there(self, store: Store) -> None:
        old = store.put("a", b"one")
        new = store.put("a", b"two", IfVersion(old))

        with pytest.raises(Conflict):
            store.put("a", b"three", IfVersion(old))
        assert store.get("a").data == b"two"
        assert store.get("a").version == new

    def test_a_put_if_version_loses_where_nothing_is(self, store: Store) -> None:
        version = store.put("a", b"one")
        store.delete("a")

        with pytest.raises(Conflict):
            store.put("a", b"two", IfVersion(version))
        assert store.stat("a") is None

    def test_of_many_writers_one_creates(self, store: Store) -> None:
        self._race(store, "a", IF_ABSENT)

    def test_of_many_writers_one_replaces(self, store: Store) -> None:
        version = store.put("a", b"before")

        self._race(store, "a", IfVersion(version))

    def _race(self, store: Store, key: str, condition: Condition) -> None:
        start = threading.Barrier(WRITERS)

        def put(number: int) -> bytes | None:
            data = f"writer {number}".encode()
            start.wait()
            try:
                store.put(key, data, condition)
            except Conflict:
                return None
            return data

        with ThreadPoolExecutor(WRITERS) as pool:
            won = [data for data in pool.map(put, range(WRITERS)) if data is not None]
        assert store.get(key).data in won
        assert len(won) == 1 or not store.fences, f"{len(won)} writers won: {won}"

    # ------------------------------------------------------------------ parts of objects

    def test_a_range_is_cut_where_the_object_ends(self, store: Store) -> None:
        store.put("a", b"0123456789")

        assert store.read("a", 0, 10) == b"0123456789"
        assert store.read("a", 3, 4) == b"3456"
        assert store.read("a", 8, 100) == b"89"
        assert store.read("a", 10, 5) == b""
        assert store.read("a", 1000, 5) == b""
        assert store.read("a", 5, 0) == b""

    def test_a_stream_gives_all_bytes_in_order(self, store: Store) -> None:
        data = bytes(range(256)) * 4096
        store.put("a", data)

        streamed = bytearray()
        for chunk in store.stream("a", 100_000):
            streamed += chunk

        assert streamed == data

    # ------------------------------------------------------------------ listings

    def test_entries_are_complete_and_sorted_by_key(self, store: Store) -> None:
        """The names sort on both sides of the slash, where folders would sort differently."""
        keys = ["a-b", "a.txt", "a/x", "a/y/z", "a0", "ab/x", "b", "ü"]
        for key in reversed(keys):
            store.put(key, key.encode())

        entries = list(store.entries())

        assert [entry.key for entry in entries] == keys
        assert [entry.size for entry in entries] == [len(key.encode()) for key in keys]

    def test_a_prefix_is_a_folder_and_not_a_beginning(self, store: Store) -> None:
        for key in ("a/x", "a/b/y", "ab/z", "b/a/x"):
            store.put(key, b"")

        assert [entry.key for entry in store.entries("a")] == ["a/b/y", "a/x"]
        assert [entry.key for entry in store.entries("a/")] == ["a/b/y", "a/x"]
        assert [entry.key for entry in store.entries("a/b")] == ["a/b/y"]
        assert list(store.entries("c")) == []

    def test_stat_agrees_with_a_listing(self, store: Store) -> None:
        store.put("a/b", b"123")

        entry = store.stat("a/b")
        assert entry is not None
        assert (entry.key, entry.size) == ("a/b", 3)
        [listed] = store.entries("a")
        assert (listed.key, listed.size) == ("a/b", 3)
        assert abs(listed.modified - entry.modified) < 2.0

    def test_folders_are_those_directly_below(self, store: Store) -> None:
        for key in ("a/b/c/d", "a/b2/x", "a/file", "ab/x", "top"):
            store.put(key, b"")

        assert store.folders() == ["a", "ab"]
        assert store.folders("a") == ["b", "b2"]
        assert store.folders("a/") == ["b", "b2"]
        assert store.folders("a/b/c") == []
        assert store.folders("nowhere") == []

    def test_a_listing_longer_than_a_page_is_complete(self, store: Store) -> None:
        keys = [f"many/{number:05d}" for number in range(self.many)]
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda key: store.put(key, b""), keys))

        assert [entry.key for entry in store.entries("many")] == keys

        store.delete_tree("many")

        assert list(store.entries()) == []

    def test_odd_names_are_stored_unchanged(self, store: Store) -> None:
        for name in ODD_NAMES:
            store.put(f"odd/{name}/{name}", name.encode())

        assert [entry.key for entry in store.entries("odd")] == sorted(
            f"odd/{name}/{name}" for name in ODD_NAMES
        )
        assert store.folders("odd") == sorted(ODD_NAMES)
        for name in ODD_NAMES:
            assert store.get(f"odd/{name}/{name}").data == name.encode(), name
            store.delete(f"odd/{name}/{name}")
        assert list(store.entries("odd")) == []

    def test_a_name_that_cannot_be_stored_is_refused_with_our_error(self, store: Store) -> None:
        for name in ("n" * 3_000, "tab\tbell\x07", "new\nline"):
            try:
                store.put(f"odd/{name}", b"1")
            except StoreError:
                continue
            assert store.get(f"odd/{name}").data == b"1"

    # ------------------------------------------------------------------ deleting

    def test_a_deleted_object_is_gone_and_may_be_deleted_again(self, store: Store) -> None:
        store.put("a/b", b"")

        store.delete("a/b")
        store.delete("a/b")
        store.delete("never/was")

        assert store.stat("a/b") is None
        assert list(store.entries()) == []

    def test_deleting_a_tree_leaves_its_neighbours(self, store: Store) -> None:
        for key in ("a/x", "a/b/y", "ab/z", "b/a/x", "c"):
            store.put(key, b"")

        store.delete_tree("a")
        store.delete_tree("a")
        store.delete_tree("never/was")

        assert [entry.key for entry in store.entries()] == ["ab/z", "b/a/x", "c"]
        assert "a" not in store.folders() or self.folders_linger

    def test_a_name_is_never_taken_for_a_pattern(self, store: Store) -> None:
        for name in ("a[1]", "a1", "s*", "star", "q?", "qu"):
            store.put(f"{name}/x", b"")

        for name in ("a[1]", "s*", "q?"):
            store.delete_tree(name)

        assert [entry.key for entry in store.entries()] == ["a1/x", "qu/x", "star/x"]

    # ------------------------------------------------------------------ trees

    def test_a_tree_is_written_by_many_threads(self, store: Store) -> None:
        tree = store.write_tree("tree")
        sources = {f"{n % 7}/{n % 3}/file-{n}": Refilled(n * 300) for n in range(60)}

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda item: tree.write(*item), sources.items()))
        tree.make_folder("empty/folder")
        tree.finish()

        sizes = {entry.key: entry.size for entry in store.entries("tree")}
        assert sizes == {f"tree/{name}": source.size for name, source in sources.items()}
        for name, source in sources.items():
            assert store.get(f"tree/{name}").data == source.whole()

    def test_a_large_file_arrives_whole(self, store: Store) -> None:
        source = Refilled(LARGE_BYTES)
        tree = store.write_tree("tree")

        tree.write("large", source)
        tree.finish()

        digester = Digester()
        for chunk in store.stream("tree/large"):
            digester.update(chunk)
        assert digester.hexdigest() == digest_bytes(source.whole())
        assert store.read("tree/large", LARGE_BYTES - 3, 10) == source.whole()[-3:]

    def test_a_file_written_twice_holds_the_second(self, store: Store) -> None:
        tree = store.write_tree("tree")

        tree.write("file", Refilled(5_000))
        tree.write("file", Refilled(10))
        tree.finish()

        assert store.get("tree/file").data == Refilled(10).whole()

    def test_a_tree_can_be_at_the_root(self, store: Store) -> None:
        tree = store.write_tree("")

        tree.write("a/b", Refilled(10))
        tree.finish()

        assert [entry.key for entry in store.entries()] == ["a/b"]

    def test_the_error_of_a_source_comes_out_as_it_is(self, store: Store) -> None:
        for size, fails_at in ((3 << 20, 1), (LARGE_BYTES, 10)):
            with pytest.raises(LookupError):
                store.write_tree("tree").write("broken", Refilled(size, fails_at=fails_at))

        store.delete_tree("tree")

        assert list(store.entries()) == []

    # ------------------------------------------------------------------ litter, probing, travel

    def test_a_probe_leaves_nothing_behind(self, store: Store) -> None:
        store.probe(writable=False)
        store.probe(writable=True)

        assert list(store.entries()) == []
        assert list(store.litter()) == []

    def test_finished_work_leaves_no_litter(self, store: Store) -> None:
        store.put("a/b", b"1", IF_ABSENT)
        store.put("a/b", b"2", IfVersion(store.get("a/b").version))
        tree = store.write_tree("tree")
        tree.write("large", Refilled(LARGE_BYTES))
        tree.finish()

        assert list(store.litter()) == []
        assert list(store.litter("tree")) == []

    def test_a_store_can_be_sent_to_a_worker(self, store: Store) -> None:
        store.put("a", b"1")

        there: Store = ForkingPickler.loads(ForkingPickler.dumps(store))

        assert there.url == store.url
        assert there.get("a").data == b"1"

    def test_a_child_is_the_store_of_a_folder(self, store: Store) -> None:
        store.put("run/a/b", b"1")
        store.put("runner/c", b"2")
        below = child(store, "run")

        below.put("d", b"3")

        assert below.url == f"{store.url.rstrip('/')}/run"
        assert [entry.key for entry in below.entries()] == ["a/b", "d"]
        assert below.folders() == ["a"]
        assert child(below, "a").get("b").data == b"1"
        assert store.get("run/d").data == b"3"
        assert below.fences == store.fences
        assert (below.local is None) == (store.local is None)
