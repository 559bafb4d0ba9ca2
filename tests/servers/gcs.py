"""A stand-in for Google Cloud Storage on loopback: the part of its XML interface that is used here.

It proves our calls, not Google's behaviour: there is no emulator with the XML interface and its
conditions, which is what obstore speaks. Objects are kept in memory; nothing is authorised.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlencode, urlsplit
from xml.sax.saxutils import escape

PAGE = 1000


@dataclass(frozen=True, slots=True)
class _Object:
    data: bytes
    generation: int
    modified: float

    @property
    def headers(self) -> dict[str, str]:
        return {
            "ETag": f'"{hashlib.sha256(self.data).hexdigest()[:32]}"',
            "x-goog-generation": str(self.generation),
            "Last-Modified": formatdate(self.modified, usegmt=True),
        }


@dataclass
class _Upload:
    path: str
    begun: float = field(default_factory=time.time)
    parts: dict[int, bytes] = field(default_factory=dict)


class GcsStub:
    """The server; `url` is its endpoint, `uri` names a folder in one of its buckets."""

    def __init__(self, *buckets: str) -> None:
        self.objects: dict[str, dict[str, _Object]] = {bucket: {} for bucket in buckets}
        self.uploads: dict[str, _Upload] = {}
        self.lock = threading.Lock()
        self.numbers = itertools.count(1)
        stub = self

        class Handler(_Handler):
            """Requests to this very stub."""

            held = stub

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def uri(self, bucket: str, folder: str = "") -> str:
        """Return the URI of a folder in one of the stub's buckets, credentials included."""
        given = {"endpoint_override": self.url, "service_account_key": _service_account()}
        return f"gs://{bucket}/{folder}?{urlencode(given)}"

    def stop(self) -> None:
        """Stop listening and forget everything."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    held: GcsStub

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base's name
        """Say nothing: tests have their own words."""

    def do_GET(self) -> None:
        bucket, key, query = self._target()
        if bucket not in self.held.objects:
            self._refuse(404, "NoSuchBucket")
        elif key and "uploadId" in query:
            self._list_parts(query["uploadId"])
        elif key:
            self._read(bucket, key)
        elif "uploads" in query:
            self._list_uploads(query.get("prefix", ""))
        else:
            self._list(bucket, query)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        bucket, key, query = self._target()
        with self.held.lock:
            if bucket not in self.held.objects:
                self._refuse(404, "NoSuchBucket")
            elif "uploadId" in query and query["uploadId"] not in self.held.uploads:
                self._refuse(404, "NoSuchUpload")
            elif "uploadId" in query:
                self.held.uploads[query["uploadId"]].parts[int(query["partNumber"])] = body
                self._answer(200, b"", {"ETag": f'"{hashlib.sha256(body).hexdigest()[:32]}"'})
            else:
                self._store(bucket, key, body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        bucket, key, query = self._target()
        with self.held.lock:
            if "uploads" in query:
                number = f"upload-{next(self.held.numbers)}"
                self.held.uploads[number] = _Upload(key)
                self._xml("InitiateMultipartUploadResult", f"<UploadId>{number}</UploadId>")
                return
            upload = self.held.uploads.pop(query.get("uploadId", ""), None)
            if upload is None:
                self._refuse(404, "NoSuchUpload")
                return
            data = b"".join(upload.parts[number] for number in sorted(upload.parts))
            made = self._keep(bucket, key, data)
        tag = escape(made.headers["ETag"])
        self._xml("CompleteMultipartUploadResult", f"<ETag>{tag}</ETag>", made.headers)

    def do_DELETE(self) -> None:
        bucket, key, query = self._target()
        with self.held.lock:
            if "uploadId" in query:
                was_there = self.held.uploads.pop(query["uploadId"], None) is not None
            else:
                was_there = self.held.objects.get(bucket, {}).pop(key, None) is not None
        if was_there:
            self._answer(204, b"")
        else:
            self._refuse(404, "NoSuchKey")

    # ------------------------------------------------------------------ objects

    def _store(self, bucket: str, key: str, body: bytes) -> None:
        wanted = self.headers.get("x-goog-if-generation-match")
        now = self.held.objects[bucket].get(key)
        if wanted is not None and int(wanted) != (now.generation if now else 0):
            self._refuse(412, "PreconditionFailed")
        else:
            self._answer(200, b"", self._keep(bucket, key, body).headers)

    def _keep(self, bucket: str, key: str, data: bytes) -> _Object:
        made = _Object(data, next(self.held.numbers), time.time())
        self.held.objects[bucket][key] = made
        return made

    def _read(self, bucket: str, key: str) -> None:
        found = self.held.objects[bucket].get(key)
        tag = self.headers.get("If-Match")
        if found is None:
            self._refuse(404, "NoSuchKey")
        elif tag is not None and tag != found.headers["ETag"]:
            self._refuse(412, "PreconditionFailed")
        elif "Range" in self.headers:
            self._read_range(found, self.headers["Range"])
        else:
            self._answer(200, found.data, found.headers)

    def _read_range(self, found: _Object, wanted: str) -> None:
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start, size = int(first), len(found.data)
        end = min(int(last) if last else size - 1, size - 1)
        if start >= size:
            self._refuse(416, "InvalidRange")
        else:
            held = {"Content-Range": f"bytes {start}-{end}/{size}", **found.headers}
            self._answer(206, found.data[start : end + 1], held)

    # ------------------------------------------------------------------ lists

    def _list(self, bucket: str, query: dict[str, str]) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after") or ""
        with self.held.lock:
            found = sorted(self.held.objects[bucket].items())
        items = [item for item in _items(found, prefix, delimiter) if item[0] > after]
        page = items[: int(query.get("max-keys", PAGE))]
        shown = "".join(text for _, text in page)
        if len(page) < len(items):
            shown += f"<NextContinuationToken>{escape(page[-1][0])}</NextContinuationToken>"
        self._xml("ListBucketResult", shown)

    def _list_uploads(self, prefix: str) -> None:
        with self.held.lock:
            found = [item for item in self.held.uploads.items() if item[1].path.startswith(prefix)]
        self._xml(
            "ListMultipartUploadsResult",
            "".join(
                f"<Upload><Key>{escape(upload.path)}</Key><UploadId>{number}</UploadId>"
                f"<Initiated>{_moment(upload.begun)}</Initiated></Upload>"
                for number, upload in found
            )
            + "<IsTruncated>false</IsTruncated>",
        )

    def _list_parts(self, number: str) -> None:
        with self.held.lock:
            upload = self.held.uploads.get(number)
            sizes = [len(part) for part in upload.parts.values()] if upload else []
        if upload is None:
            self._refuse(404, "NoSuchUpload")
        else:
            self._xml("ListPartsResult", "".join(f"<Part><Size>{n}</Size></Part>" for n in sizes))

    # ------------------------------------------------------------------ answers

    def _target(self) -> tuple[str, str, dict[str, str]]:
        parts = urlsplit(self.path)
        bucket, _, key = parts.path.lstrip("/").partition("/")
        query = parse_qs(parts.query, keep_blank_values=True)
        return unquote(bucket), unquote(key), {name: values[0] for name, values in query.items()}

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code></Error>".encode())

    def _xml(self, name: str, inner: str, headers: dict[str, str] | None = None) -> None:
        self._answer(200, f"<{name}>{inner}</{name}>".encode(), headers)

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _items(
    found: list[tuple[str, _Object]], prefix: str, delimiter: str
) -> Iterator[tuple[str, str]]:
    """Yield what a listing shows, in order, each with the name it is sorted by."""
    last_folder = ""
    for key, held in found:
        if not key.startswith(prefix):
            continue
        inner, cut, _ = key[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
        if cut:
            folder = f"{prefix}{inner}{delimiter}"
            if folder != last_folder:
                shown = f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
                yield folder, shown
            last_folder = folder
            continue
        shown = (
            f"<Contents><Key>{escape(key)}</Key><Size>{len(held.data)}</Size>"
            f"<LastModified>{_moment(held.modified)}</LastModified>"
            f"<ETag>{escape(held.headers['ETag'])}</ETag></Contents>"
        )
        yield key, shown


@cache
def _service_account() -> str:
    """Return an account that Google has never heard of; its key is made here and dies with us."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    account = {"client_email": "tests@holdfast", "private_key_id": "1", "private_key": pem.decode()}
    return json.dumps({"type": "service_account", **account})


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(seconds))
