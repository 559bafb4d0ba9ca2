"""What uploads that never finished leave in a bucket: found, named, removed."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import obstore
import pytest
from obstore.exceptions import GenericError

from holdfast.storage.base import Entry, Store
from holdfast.storage.bucket import unfinished_uploads
from holdfast.storage.bucket.store import ObjectStore
from holdfast.storage.locate import describe, open_store
from holdfast.storage.retry import Retrying
from tests.patience import wait_until
from tests.servers.gcs import GcsStub
from tests.servers.proxy import FaultyProxy, Hold, Request
from tests.servers.storage import S3Server

pytestmark = pytest.mark.s3


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(s3_server.url)
    yield proxy
    proxy.stop()


@pytest.fixture
def store(s3_server: S3Server, proxy: FaultyProxy, new_folder: Callable[[], str]) -> Store:
    return open_store(s3_server.uri("lab", f"litter/{new_folder()}", endpoint_override=proxy.url))


def is_part(request: Request) -> bool:
    return request.method == "PUT" and "partNumber=" in request.path


KILLED = """
import sys, json
from holdfast.storage.locate import reopen
from holdfast.testing.sources import Refilled
reopen(json.loads(sys.stdin.readline())).write_tree("tree").write("file", Refilled(100 << 20))
"""


def test_what_a_killed_uploader_leaves_is_found_and_aborted(
    store: Store, proxy: FaultyProxy
) -> None:
    """SIGKILL in the middle of a multipart upload, once two parts have arrived."""
    began = time.time()
    store.put("tree/other", b"stays")
    held, parts = threading.Event(), itertools.count(1)
    proxy.plan(Hold(held), when=lambda request: is_part(request) and next(parts) > 2, times=None)
    uploader = subprocess.Popen([sys.executable, "-c", KILLED], stdin=subprocess.PIPE, text=True)
    with uploader:
        assert uploader.stdin is not None
        uploader.stdin.write(json.dumps(describe(store)) + "\n")
        uploader.stdin.flush()
        found = until(lambda: [entry for entry in store.litter() if entry.size >= 16 << 20])
        uploader.kill()
    held.set()

    assert [entry.key.partition("?")[0] for entry in found] == ["tree/file"]
    assert began - 1 < found[0].modified < time.time() + 1
    assert [entry.key for entry in store.litter("tree")] == [found[0].key]
    assert list(store.litter("tre")) == []
    assert [entry.key for entry in store.entries()] == ["tree/other"]
    store.delete_litter(found[0])
    store.delete_litter(found[0])
    assert list(store.litter()) == []
    assert [entry.key for entry in store.entries()] == ["tree/other"]


def test_litter_longer_than_a_page_is_found(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unfinished_uploads, "PAGE", 2)
    names = [f"odd é&=%+/{number}" for number in range(5)]
    leave_uploads(store, names)

    found = list(store.litter())

    assert sorted(entry.key.partition("?")[0] for entry in found) == names
    for entry in found:
        store.delete_litter(entry)
    assert list(store.litter()) == []


def test_litter_on_google_is_found_too(gcs_server: GcsStub) -> None:
    store = open_store(gcs_server.uri("lab", "leftovers"))
    leave_uploads(store, ["a b/c"])
    leave_uploads(open_store(gcs_server.uri("lab", "other")), ["x"])

    [entry] = store.litter()

    assert entry.key.startswith("a b/c?uploadId=")
    store.delete_litter(entry)
    assert list(store.litter()) == []


def test_an_account_that_cannot_sign_is_told_that_litter_stays(
    gcs_server: GcsStub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(gcs_server.uri("lab", "unsigned"))

    def refuse(*args: object) -> str:
        raise GenericError("Generic GCS error: Error signing blob: 403 Forbidden")

    monkeypatch.setattr(obstore, "sign", refuse)

    assert list(store.litter()) == []
    assert "unfinished uploads to gs://lab cannot be listed" in caplog.text


def leave_uploads(store: Store, names: list[str]) -> None:
    """Begin multipart uploads and never finish them."""
    assert isinstance(store, Retrying)
    assert isinstance(store.store, ObjectStore)
    inner = store.store
    clients = inner._clients  # noqa: SLF001  # nobody else has a use for this
    for name in names:
        unfinished_uploads.ask(clients, "POST", f"{inner.prefix}/{name}", {"uploads": ""})


def until(look: Callable[[], list[Entry]]) -> list[Entry]:
    """Return what `look` finds as soon as it finds something."""
    wait_until(look, "it never came")
    return look()
