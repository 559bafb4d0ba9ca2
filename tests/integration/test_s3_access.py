"""Who may enter an S3 bucket, and what is said when somebody may not, or when it is not there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from holdfast.errors import ObjectMissing, StoreBusy, StoreDenied, StoreError
from holdfast.storage.bucket import store as objects
from holdfast.storage.bucket.address import Patience
from holdfast.storage.locate import open_store
from holdfast.storage.retry import RetryPolicy
from holdfast.testing.sources import Refilled
from tests.servers.proxy import Answer, FaultyProxy, Hold
from tests.servers.storage import (
    ACCESS_KEY,
    NEXT_ACCESS_KEY,
    NEXT_SECRET_KEY,
    SECRET_KEY,
    S3Server,
)

pytestmark = pytest.mark.s3

AT_ONCE = RetryPolicy(deadline_s=0.0, tries_min=1)
LARGE_BYTES = (24 << 20) + 1


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(s3_server.url)
    yield proxy
    proxy.stop()


@pytest.mark.parametrize("wrong", ["access_key", "secret_key"])
def test_wrong_credentials_are_refused_at_once(
    s3_server: S3Server, proxy: FaultyProxy, wrong: str
) -> None:
    store = open_store(s3_server.uri("lab", endpoint_override=proxy.url, **{wrong: "wrong"}))

    for work in (
        lambda: store.probe(writable=True),
        lambda: store.get("a"),
        lambda: store.put("a", b""),
        lambda: list(store.entries()),
        lambda: list(store.litter()),
    ):
        asked = len(proxy.seen)
        with pytest.raises(StoreDenied) as caught:
            work()
        assert "access_key and secret_key" in (caught.value.hint or "")
        # Two to see whether somebody is there, two for the call: each with credentials read anew.
        assert len(proxy.seen) - asked <= 4


def test_missing_credentials_are_named(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")

    with pytest.raises(StoreDenied, match="no credentials were found") as caught:
        open_store(f"s3://lab/x?endpoint_override={s3_server.url}").probe(writable=False)

    assert "AWS_ACCESS_KEY_ID" in (caught.value.hint or "")


def test_a_missing_bucket_is_refused_at_once(s3_server: S3Server) -> None:
    store = open_store(s3_server.uri("nosuch", "folder"))

    for work in (
        lambda: store.probe(writable=False),
        lambda: store.probe(writable=True),
        lambda: store.get("a"),
        lambda: store.put("a", b""),
        lambda: list(store.entries()),
    ):
        with pytest.raises(StoreError, match="there is no bucket 'nosuch'") as caught:
            work()
        assert not isinstance(caught.value, ObjectMissing)
        assert caught.value.hint == "create it, or check its name and the endpoint"


def test_a_missing_bucket_is_made_where_that_is_allowed(s3_server: S3Server) -> None:
    uri = s3_server.uri("made-on-the-way", "folder", allow_bucket_creation="true")
    store = open_store(uri)

    store.probe(writable=True)
    store.put("a", b"1")

    assert open_store(uri).get("a").data == b"1"


def test_a_server_that_is_not_there_is_reported_soon() -> None:
    """However patient the store is: a day is longer than any test may take."""
    store = open_store(
        "s3://lab?endpoint_override=http://127.0.0.1:1&access_key=a&secret_key=b",
        retry=RetryPolicy(deadline_s=86_400.0),
    )

    with pytest.raises(StoreBusy) as caught:
        store.probe(writable=True)

    assert "http://127.0.0.1:1: connection refused" in caught.value.message
    assert caught.value.hint == "check the endpoint and the network"


def test_a_server_that_never_answers_is_reported_soon(
    s3_server: S3Server, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "AT_ONCE", Patience(request_s=0.2))
    held = threading.Event()
    proxy.plan(Hold(held), times=None)

    store = open_store(s3_server.uri("lab", endpoint_override=proxy.url), retry=AT_ONCE)

    with pytest.raises(StoreBusy, match="no answer in time"):
        store.probe(writable=True)

    held.set()


def credentials(path: Path, access_key: str, secret_key: str) -> None:
    path.write_text(
        "[default]\naws_access_key_id = x\naws_secret_access_key = y\n"
        f"[lab]\naws_access_key_id = {access_key}\naws_secret_access_key = {secret_key}\n"
    )


def test_rotated_credentials_are_read_again(
    proxy: FaultyProxy,
    tmp_path: Path,
    new_folder: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The keys in the user's file work, are revoked, are replaced in the file; nobody restarts."""
    keys = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(keys))
    monkeypatch.setenv("AWS_PROFILE", "lab")
    credentials(keys, ACCESS_KEY, SECRET_KEY)
    store = open_store(
        f"s3://lab/faults/{new_folder()}?endpoint_override={proxy.url}&region=us-east-1"
    )
    store.put("a", b"1")
    proxy.plan(
        Answer(400, "ExpiredToken"),
        when=lambda request: f"={ACCESS_KEY}/" in request.headers.get("authorization", ""),
        times=None,
    )

    with pytest.raises(StoreDenied, match="ExpiredToken"):
        store.put("a", b"2")
    credentials(keys, NEXT_ACCESS_KEY, NEXT_SECRET_KEY)
    store.put("a", b"3")
    store.write_tree("tree").write("file", Refilled(LARGE_BYTES))

    assert store.get("a").data == b"3"
    assert [entry.key for entry in store.entries()] == ["a", "tree/file"]


def test_credentials_in_the_environment_are_read_again(
    s3_server: S3Server, new_folder: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.url)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not yet right")
    store = open_store(f"s3://lab/faults/{new_folder()}")
    with pytest.raises(StoreDenied):
        store.put("a", b"1")

    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    store.put("a", b"1")

    assert store.get("a").data == b"1"
    assert list(store.litter()) == []


# ---------------------------------------------------------------------- servers not to trust


class Careless(BaseHTTPRequestHandler):
    """A server that says yes to everything, conditions or not."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None: ...

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = {
            "GET": b"<ListBucketResult></ListBucketResult>",
            "POST": b"<DeleteResult><Deleted><Key>x</Key></Deleted></DeleteResult>",
        }.get(self.command, b"")
        self.send_response(200)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = answer  # noqa: N815  # the names the server looks for


def test_a_server_that_ignores_conditions_is_not_trusted_with_a_run() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Careless)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        store = open_store(f"s3://lab?endpoint_override={endpoint}&access_key=a&secret_key=b")

        store.probe(writable=False)
        with pytest.raises(StoreError, match="ignores conditional writes"):
            store.probe(writable=True)
    finally:
        server.shutdown()
        server.server_close()
