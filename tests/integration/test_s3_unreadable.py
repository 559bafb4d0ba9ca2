"""A bucket that refuses, fails or does not answer at any single read of a restore.

A real server, and a proxy in front of it. What could not be read is not damaged: whatever happened,
no checkpoint is set aside, none is deleted, and the next driver begins with the newest.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.clock import SYSTEM_CLOCK
from holdfast.control.record.open_run import open_run
from holdfast.errors import StoreBusy, StoreError
from holdfast.storage.base import Store
from holdfast.storage.bucket import store as objects
from holdfast.storage.bucket.address import Patience
from holdfast.storage.locate import open_store
from holdfast.storage.retry import RetryPolicy
from tests.faults.restores import Left, LeftRun, LeftStudy, must_be_as_left, saved_in
from tests.servers.proxy import Answer, DropRequest, Fault, FaultyProxy, Hold, Request
from tests.servers.storage import S3Server

pytestmark = pytest.mark.s3

AT_ONCE = RetryPolicy(deadline_s=0.0, tries_min=1)
FAULTS: list[Fault] = [
    Answer(403, "AccessDenied"),
    Answer(500),
    Answer(400, "KMS.DisabledException"),
    Answer(400, "InvalidRequest"),
    DropRequest(),
]


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(s3_server.url)
    yield proxy
    proxy.stop()


@pytest.fixture
def place(new_folder: Callable[[], str]) -> str:
    return f"unreadable/{new_folder()}"


@pytest.fixture
def store(s3_server: S3Server, place: str) -> Store:
    return open_store(s3_server.uri("lab", place))


@pytest.fixture
def behind(s3_server: S3Server, proxy: FaultyProxy, place: str) -> Store:
    """The same place as seen through the proxy."""
    uri = s3_server.uri("lab", place, endpoint_override=proxy.url)
    return open_store(uri, retry=AT_ONCE)


def is_read(request: Request) -> bool:
    return request.method in ("GET", "HEAD")


def asks(read: tuple[str, str]) -> Callable[[Request], bool]:
    return lambda request: (request.method, request.path) == read


@pytest.mark.parametrize("left", [LeftRun(), LeftStudy()], ids=["run", "study"])
def test_a_read_that_fails_costs_no_checkpoint(
    left: Left, store: Store, behind: Store, proxy: FaultyProxy, tmp_path: Path
) -> None:
    """Every read of a restore fails, for as long as it lasts; one fault comes after the other."""
    left.leave(store, tmp_path, SYSTEM_CLOCK)
    before = saved_in(store)
    left.restore(behind, SYSTEM_CLOCK)
    reads = list(dict.fromkeys((one.method, one.path) for one in proxy.seen if is_read(one)))
    if isinstance(left, LeftStudy):  # the rest is read as of a run
        reads = [(method, path) for method, path in reads if "checkpoint_" in path]
    assert any("checkpoint_" in path for _, path in reads)
    for number, read in enumerate(reads):
        proxy.plan(FAULTS[number % len(FAULTS)], when=asks(read), times=None)
        with contextlib.suppress(StoreError):
            left.restore(behind, SYSTEM_CLOCK)
        proxy.heal()
    for fault in FAULTS:  # each of them at the reads that decide what is damaged
        proxy.plan(fault, when=lambda one: is_read(one) and "checkpoint_" in one.path, times=None)
        with pytest.raises(StoreError):
            left.restore(behind, SYSTEM_CLOCK)
        proxy.heal()

    must_be_as_left(left, store, before, SYSTEM_CLOCK, "at last")


def test_a_read_that_is_not_answered_in_time_costs_no_checkpoint(
    store: Store,
    behind: Store,
    proxy: FaultyProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left, held = LeftRun(), threading.Event()
    left.leave(store, tmp_path, SYSTEM_CLOCK)
    before = saved_in(store)
    with open_run(behind, beats=False) as run:
        monkeypatch.setattr(objects, "DOWNLOAD", Patience(request_s=1.0, read_s=1.0))
        proxy.plan(Hold(held), when=lambda one: is_read(one) and "checkpoint_" in one.path)
        with pytest.raises(StoreBusy):
            run.newest_good()
        monkeypatch.undo()
        held.set()

        assert run.record.quarantined() == []
    must_be_as_left(left, store, before, SYSTEM_CLOCK, "at last")
