"""S3 when things go wrong: a real server, and a proxy in front of it that fails on request."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from holdfast.clock import SystemClock
from holdfast.errors import (
    Conflict,
    StoreBusy,
    StoreError,
    TransferCancelled,
)
from holdfast.storage.base import ALWAYS, IF_ABSENT, Buffer, Condition, IfVersion, Store
from holdfast.storage.bucket.store import ObjectStore
from holdfast.storage.locate import open_store
from holdfast.storage.retry import Retrying, RetryPolicy
from holdfast.testing.sources import Refilled
from tests.patience import PATIENCE_S
from tests.servers.proxy import (
    Answer,
    CutAnswer,
    Delay,
    DropAnswer,
    DropRequest,
    FaultyProxy,
    Request,
)
from tests.servers.storage import (
    S3Server,
)

pytestmark = pytest.mark.s3

HURRIED = RetryPolicy(wait_first_s=0.001, wait_max_s=0.01, deadline_s=PATIENCE_S)
AT_ONCE = RetryPolicy(deadline_s=0.0, tries_min=1)
LARGE_BYTES = (24 << 20) + 1


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(s3_server.url)
    yield proxy
    proxy.stop()


@pytest.fixture
def uri(s3_server: S3Server, proxy: FaultyProxy, new_folder: Callable[[], str]) -> str:
    return s3_server.uri("lab", f"faults/{new_folder()}", endpoint_override=proxy.url)


@pytest.fixture
def store(uri: str) -> Store:
    return open_store(uri, retry=HURRIED)


def bare(store: Store) -> ObjectStore:
    assert isinstance(store, Retrying)
    assert isinstance(store.store, ObjectStore)
    return store.store


def is_part(request: Request) -> bool:
    return request.method == "PUT" and "partNumber=" in request.path


# ---------------------------------------------------------------------- storms


@pytest.mark.parametrize(
    "fault",
    [Answer(500), Answer(502), Answer(503, "SlowDown"), Answer(429), Delay(0.01)],
    ids=["500", "502", "slow down", "429", "latency"],
)
def test_a_storm_is_waited_out(store: Store, proxy: FaultyProxy, fault: Answer | Delay) -> None:
    for work in (
        lambda: store.put("a", b"1"),
        lambda: store.put("b", b"2", IF_ABSENT),
        lambda: store.put("a", b"3", IfVersion(store.get("a").version)),
        lambda: store.write_tree("tree").write("small", Refilled(1000)),
        lambda: store.stat("a"),
        lambda: store.delete("b"),
    ):
        proxy.plan(fault, times=7)
        work()
        proxy.heal()

    proxy.plan(fault, times=7)
    assert store.get("a").data == b"3"
    assert [entry.key for entry in store.entries()] == ["a", "tree/small"]
    assert store.folders() == ["tree"]
    proxy.plan(fault, times=7)
    store.delete_tree("")
    assert list(store.entries()) == []


def test_a_storm_that_does_not_end_is_reported(uri: str, proxy: FaultyProxy) -> None:
    store = open_store(uri, retry=RetryPolicy(wait_first_s=0.0, deadline_s=0.0, tries_min=4))
    proxy.plan(Answer(503, "SlowDown"), times=None)

    with pytest.raises(StoreBusy) as caught:
        store.get("a")

    assert "503: SlowDown" in caught.value.message
    assert "tried 4 times" in caught.value.message
    assert caught.value.key == "a"


# ---------------------------------------------------------------------- uploads


@pytest.mark.parametrize("after_bytes", [0, 100_000])
def test_a_connection_dropped_in_a_small_upload_is_made_good(
    store: Store, proxy: FaultyProxy, after_bytes: int
) -> None:
    proxy.plan(DropRequest(after_bytes), when=lambda request: request.method == "PUT", times=3)

    store.write_tree("tree").write("file", Refilled(300_000))

    assert store.get("tree/file").data == Refilled(300_000).whole()


def test_connections_dropped_in_a_large_upload_are_made_good(
    store: Store, proxy: FaultyProxy
) -> None:
    proxy.plan(DropRequest(1 << 20), when=is_part, times=3)

    store.write_tree("tree").write("file", Refilled(LARGE_BYTES))

    assert streamed(store, "tree/file") == Refilled(LARGE_BYTES).whole()
    assert list(store.litter()) == []


def test_a_large_upload_begun_anew_leaves_nothing_of_the_first(
    store: Store, proxy: FaultyProxy
) -> None:
    """A part is refused, and obstore's own clean-up fails too, so the first upload stays behind."""
    proxy.plan(Answer(400, "BadDigest"), when=is_part)
    proxy.plan(Answer(500), when=lambda request: request.method == "DELETE", times=5)

    store.write_tree("tree").write("file", Refilled(LARGE_BYTES))

    begun = [request for request in proxy.seen if request.path.endswith("?uploads=")]
    assert len(begun) == 2
    assert streamed(store, "tree/file") == Refilled(LARGE_BYTES).whole()
    assert list(store.litter()) == []


def test_an_upload_that_is_called_off_leaves_nothing(store: Store) -> None:
    class CalledOff(Refilled):
        def chunks(self) -> Iterator[Buffer]:
            for number, chunk in enumerate(super().chunks()):
                if number == 20:
                    raise TransferCancelled("enough")
                yield chunk

    with pytest.raises(TransferCancelled):
        store.write_tree("tree").write("file", CalledOff(LARGE_BYTES))

    assert store.stat("tree/file") is None
    assert list(store.litter()) == []


def test_a_file_that_vanishes_while_it_is_read_is_not_a_missing_object(store: Store) -> None:
    class Vanished(Refilled):
        def chunks(self) -> Iterator[Buffer]:
            yield b"1" * (1 << 20)
            raise FileNotFoundError(2, "No such file or directory", "weights.pt")

    for size in (1000, LARGE_BYTES):
        with pytest.raises(FileNotFoundError, match=r"weights\.pt"):
            store.write_tree("tree").write("file", Vanished(size))


@pytest.mark.parametrize("condition", ["always", "if absent", "if version"])
def test_a_put_whose_answer_is_lost_has_happened_once(
    store: Store, proxy: FaultyProxy, condition: str
) -> None:
    old = store.put("a", b"old") if condition == "if version" else ""
    conditions: dict[str, Condition] = {
        "always": ALWAYS,
        "if absent": IF_ABSENT,
        "if version": IfVersion(old),
    }
    proxy.plan(DropAnswer(), when=lambda request: request.method == "PUT")

    version = store.put("a", b"new", conditions[condition])

    assert store.get("a").data == b"new"
    assert store.get("a").version == version


def test_not_found_means_lost_to_a_put_that_replaces(store: Store, proxy: FaultyProxy) -> None:
    version = store.put("a", b"1")
    proxy.plan(Answer(404, "NoSuchKey"), when=lambda request: request.method == "PUT")

    with pytest.raises(Conflict):
        store.put("a", b"2", IfVersion(version))


def test_a_lost_answer_does_not_hide_that_another_writer_won(
    store: Store, proxy: FaultyProxy
) -> None:
    store.put("a", b"theirs")
    proxy.plan(DropAnswer(), when=lambda request: request.method == "PUT")

    with pytest.raises(Conflict):
        store.put("a", b"ours", IF_ABSENT)

    assert store.get("a").data == b"theirs"


# ---------------------------------------------------------------------- downloads


def test_a_download_that_breaks_goes_on_where_it_was(store: Store, proxy: FaultyProxy) -> None:
    data = Refilled(9 << 20).whole()
    store.put("a", data)
    proxy.plan(CutAnswer(3 << 20), when=lambda request: request.method == "GET", times=2)

    streamed = b"".join(bytes(chunk) for chunk in store.stream("a"))

    assert streamed == data
    ranges = [request.headers.get("range") for request in proxy.seen if request.method == "GET"]
    assert ranges[0] is None
    assert len(ranges) == 3
    assert all(wanted is not None and wanted.startswith("bytes=") for wanted in ranges[1:])
    assert "bytes=0-" not in ranges[1:]


def test_a_download_never_mixes_two_objects(store: Store, proxy: FaultyProxy) -> None:
    store.put("a", b"1" * (9 << 20))
    proxy.plan(CutAnswer(3 << 20), when=lambda request: request.method == "GET", times=1)

    chunks = iter(store.stream("a"))
    first = bytes(next(chunks))
    store.put("a", b"2" * (9 << 20))

    assert set(first) == {ord("1")}
    with pytest.raises(StoreError, match="was replaced while it was read"):
        list(chunks)


def test_a_range_that_breaks_is_read_again(store: Store, proxy: FaultyProxy) -> None:
    data = Refilled(5 << 20).whole()
    store.put("a", data)
    proxy.plan(CutAnswer(100_000), when=lambda request: request.method == "GET", times=2)

    assert store.read("a", 1000, 4 << 20) == data[1000 : 1000 + (4 << 20)]


# ---------------------------------------------------------------------- going away, coming back


def test_a_server_that_comes_back_is_found_again(uri: str, proxy: FaultyProxy) -> None:
    """It is down when the calls begin, and up again at the fourth pause."""

    class Clock(SystemClock):
        pauses = 0

        def sleep(self, seconds: float) -> None:
            self.pauses += 1
            if self.pauses == 4:
                proxy.come_back()

    for work in (
        lambda store: store.put("a", b"1", IF_ABSENT),
        lambda store: store.get("a"),
        lambda store: store.write_tree("tree").write("file", Refilled(LARGE_BYTES)),
        lambda store: b"".join(bytes(chunk) for chunk in store.stream("tree/file")),
        lambda store: list(store.entries()),
        lambda store: list(store.litter()),
        lambda store: store.delete_tree("tree"),
    ):
        clock = Clock()
        proxy.go_away()
        work(Retrying(bare(open_store(uri)), HURRIED, clock=clock))

        assert clock.pauses == 4


def test_a_server_that_goes_away_in_an_upload_is_found_again(uri: str, proxy: FaultyProxy) -> None:
    class Clock(SystemClock):
        def sleep(self, seconds: float) -> None:
            proxy.come_back()

    class GoesAway(Refilled):
        went = False

        def chunks(self) -> Iterator[Buffer]:
            for number, chunk in enumerate(super().chunks()):
                if number == 12 and not self.went:
                    self.went = True
                    proxy.go_away()
                yield chunk

    store = Retrying(bare(open_store(uri)), HURRIED, clock=Clock())

    store.write_tree("tree").write("file", GoesAway(LARGE_BYTES))

    assert streamed(store, "tree/file") == Refilled(LARGE_BYTES).whole()
    assert list(store.litter()) == []


# ---------------------------------------------------------------------- pieces


def streamed(store: Store, key: str) -> bytes:
    return b"".join(bytes(chunk) for chunk in store.stream(key))
