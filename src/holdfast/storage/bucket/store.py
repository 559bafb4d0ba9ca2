"""A store in a bucket of S3, Google Cloud Storage or Azure, through obstore.

A put is one request, or a multipart upload that its last request makes visible, so every object is
whole or absent. Conditions are checked by the store, so that one of two writers wins. A killed
uploader leaves unfinished uploads, which `litter` finds.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TypeAlias, TypeVar

import obstore

from holdfast.errors import Conflict, ObjectMissing, StoreDenied, StoreError
from holdfast.storage.base import (
    ALWAYS,
    IF_ABSENT,
    Always,
    Blob,
    Buffer,
    Condition,
    Entry,
    IfAbsent,
    IfVersion,
    ObjectTree,
    Source,
    SourceChunks,
    TreeWriter,
)
from holdfast.storage.bucket import unfinished_uploads
from holdfast.storage.bucket.address import (
    AT_ONCE,
    DOWNLOAD,
    QUICK,
    UPLOAD,
    Bucket,
    Client,
    Clients,
    Cloud,
    Patience,
    clients_of,
)
from holdfast.storage.bucket.errors import BeyondEnd, BucketMissing, explained
from holdfast.storage.local.store import TEMPORARY

T = TypeVar("T")
Opener: TypeAlias = Callable[[int, str | None], "obstore.GetResult"]

SINGLE_PUT_BYTES = 16 << 20  # above this, a file goes up in parts
SLOW_PUT_BYTES = 1 << 20  # above this, a put may take minutes on a slow connection
PART_BYTES = 8 << 20
PARTS_MAX = 9_000  # S3 allows 10,000
PARTS_AT_ONCE = 4
DELETE_AT_ONCE = 1_000
_UPLOAD_MARK = "?uploadId="  # between key and id in the name of an unfinished upload


class ObjectStore:
    """The objects of a bucket below a prefix; it connects with the first request."""

    fences = True
    local = None

    def __init__(self, bucket: Bucket, prefix: str = "") -> None:
        self.bucket, self.prefix = bucket, prefix.strip("/")
        self._broken_uploads: set[str] = set()

    def __reduce__(self) -> tuple[object, ...]:
        return ObjectStore, (self.bucket, self.prefix)

    @property
    def url(self) -> str:
        return f"{self.bucket.shown}/{self.prefix}".rstrip("/")

    @property
    def endpoint(self) -> str | None:
        """The endpoint, None for the vendor's own."""
        return self.bucket.options.get("endpoint") or self.bucket.options.get("base_url")

    def describe(self) -> dict[str, object]:
        """Return plain data from which the store can be opened again, secrets included."""
        return {"path": self.url, "options": dict(self.bucket.given)}

    def child(self, key: str) -> ObjectStore:
        """Return the store rooted at the folder `key`."""
        return ObjectStore(self.bucket, self._path(key))

    # ------------------------------------------------------------------ reading

    def get(self, key: str) -> Blob:
        def request(client: Client) -> Blob:
            result = obstore.get(client, self._path(key))
            return Blob(result.bytes().to_bytes(), self._version(result.meta))

        return self._ask("read", key, request, DOWNLOAD)

    def read(self, key: str, start: int, length: int) -> bytes:
        if length <= 0:
            if self.stat(key) is None:
                raise ObjectMissing(f"there is no {self._url_of(key)}", key=key)
            return b""

        def request(client: Client) -> bytes:
            return obstore.get_range(client, self._path(key), start=start, length=length).to_bytes()

        try:
            return self._ask("read", key, request, DOWNLOAD)
        except BeyondEnd:
            return b""

    def stream(self, key: str, chunk_bytes: int = 1 << 20) -> Iterator[Buffer]:
        def open_at(start: int, tag: str | None) -> obstore.GetResult:
            options: obstore.GetOptions = {}
            if start:
                options["range"] = {"offset": start}
            if tag is not None:
                options["if_match"] = tag
            path = self._path(key)
            return self._ask(
                "read", key, lambda client: obstore.get(client, path, options=options), DOWNLOAD
            )

        return ObjectStream(self.bucket, self._url_of(key), key, chunk_bytes, open_at)

    def stat(self, key: str) -> Entry | None:
        try:
            meta = self._ask("look at", key, lambda client: obstore.head(client, self._path(key)))
        except ObjectMissing:
            return None
        return Entry(key, meta["size"], meta["last_modified"].timestamp())

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        return (entry for entry in self._listed(prefix) if not entry.key.endswith(TEMPORARY))

    def folders(self, prefix: str = "") -> list[str]:
        below = self._path(prefix)
        listing = self._ask(
            "list", prefix, lambda client: obstore.list_with_delimiter(client, below or None)
        )
        return sorted(path.rstrip("/").rpartition("/")[2] for path in listing["common_prefixes"])

    # ------------------------------------------------------------------ writing

    def put(self, key: str, data: bytes, condition: Condition = ALWAYS) -> str:
        mode: obstore.PutMode
        match condition:
            case Always():
                mode = "overwrite"
            case IfAbsent():
                mode = "create"
            case IfVersion(version) if self.bucket.cloud is Cloud.GCS:
                mode = {"version": version}
            case IfVersion(version):
                mode = {"e_tag": version}

        def request(client: Client) -> str:
            result = obstore.put(client, self._path(key), data, mode=mode, use_multipart=False)
            return self._version(result)

        # obstore may repeat only an unconditional put: after a lost answer it cannot tell its own
        # success from another writer's, but `Retrying` can.
        is_slow = len(data) > SLOW_PUT_BYTES and isinstance(condition, Always)
        return self._ask("write", key, request, UPLOAD if is_slow else QUICK)

    def delete(self, key: str) -> None:
        try:
            self._ask("delete", key, lambda client: obstore.delete(client, self._path(key)))
        except ObjectMissing:
            return

    def delete_tree(self, prefix: str) -> None:
        paths = [self._path(entry.key) for entry in self._listed(prefix)]
        for start in range(0, len(paths), DELETE_AT_ONCE):
            self._delete_all(prefix, paths[start : start + DELETE_AT_ONCE])

    def _delete_all(self, prefix: str, paths: list[str]) -> None:
        try:
            self._ask("delete", prefix, lambda client: obstore.delete(client, paths))
        except ObjectMissing:
            # Another process deletes too, and some stores stop at the first missing object.
            for path in paths:
                self.delete(self._key(path))

    def write_tree(self, prefix: str) -> TreeWriter:
        return ObjectTree(self._write_file, prefix)

    def _write_file(self, key: str, source: Source) -> None:
        if source.size <= SINGLE_PUT_BYTES:
            self.put(key, b"".join(map(bytes, source.chunks())))
        else:
            with self._clients.large_uploads:
                self._write_parts(key, source)

    def _write_parts(self, key: str, source: Source) -> None:
        path, chunks = self._path(key), SourceChunks(source)
        if path in self._broken_uploads:
            self._abort_uploads_of(path)

        def request(client: Client) -> None:
            obstore.put(
                client,
                path,
                iter(chunks),
                use_multipart=True,
                chunk_size=max(PART_BYTES, -(-source.size // PARTS_MAX)),
                max_concurrency=PARTS_AT_ONCE,
            )

        try:
            self._ask("write", key, request, UPLOAD)
        except BaseException:
            self._broken_uploads.add(path)
            if chunks.error is not None:
                raise chunks.error from None
            raise

    def _abort_uploads_of(self, path: str) -> None:
        """Remove what our own failed uploads to this path left."""
        for upload in unfinished_uploads.unfinished_uploads(self._clients, path):
            if upload.path == path:
                unfinished_uploads.abort(self._clients, upload)
        self._broken_uploads.discard(path)

    # ------------------------------------------------------------------ litter, probing

    def litter(self, prefix: str = "") -> Iterator[Entry]:
        """Yield temporary objects and unfinished uploads; the latter have no real key."""
        for entry in self._listed(prefix):
            if entry.key.endswith(TEMPORARY):
                yield entry
        below = self._path(prefix)
        for upload in unfinished_uploads.unfinished_uploads(
            self._clients, f"{below}/" if below else ""
        ):
            name = f"{self._key(upload.path)}{_UPLOAD_MARK}{upload.upload_id}"
            yield Entry(name, unfinished_uploads.size_of(self._clients, upload), upload.begun)

    def delete_litter(self, entry: Entry) -> None:
        key, mark, upload_id = entry.key.rpartition(_UPLOAD_MARK)
        if mark:
            unfinished_uploads.abort(
                self._clients, unfinished_uploads.Upload(self._path(key), upload_id, entry.modified)
            )
        else:
            self.delete(entry.key)

    def probe(self, *, writable: bool) -> None:
        try:
            self._look()
        except BucketMissing:
            if not (writable and self.bucket.may_create):
                raise
            unfinished_uploads.create_bucket(self._clients)
            self._look()
        if writable:
            self._try_conditions()

    def _look(self) -> None:
        below = self._path("") or None
        self._ask("list", "", lambda client: next(iter(obstore.list(client, below)), None), AT_ONCE)

    def _try_conditions(self) -> None:
        """Check that we may write, and that conditional puts work."""
        key = f".{secrets.token_hex(8)}{TEMPORARY}"
        try:
            self.put(key, b"", IF_ABSENT)
            try:
                self.put(key, b"", IF_ABSENT)
            except Conflict:
                return
        finally:
            self.delete(key)
        raise StoreError(
            f"{self.url} ignores conditional writes: two drivers could both take the same run",
            hint="use a server that honours If-None-Match, or pass a storage_filesystem",
        )

    # ------------------------------------------------------------------ pieces

    @cached_property
    def _clients(self) -> Clients:
        return clients_of(self.bucket)

    def _ask(
        self, verb: str, key: str, request: Callable[[Client], T], patience: Patience = QUICK
    ) -> T:
        """Make one request; if it is denied, try once more with fresh credentials."""
        client = self._clients.get(patience)
        try:
            with explained(self.bucket, verb, self._url_of(key), key):
                return request(client)
        except StoreDenied:
            renewed = self._clients.renewed(client, patience)
            with explained(self.bucket, verb, self._url_of(key), key):
                return request(renewed)

    def _listed(self, prefix: str) -> list[Entry]:
        below = self._path(prefix)

        def request(client: Client) -> list[Entry]:
            return [
                Entry(self._key(meta["path"]), meta["size"], meta["last_modified"].timestamp())
                for page in obstore.list(client, below or None)
                for meta in page
            ]

        # Most stores list in order, but S3 Express and servers based on folders do not.
        return sorted(self._ask("list", prefix, request), key=lambda entry: entry.key)

    def _version(self, meta: obstore.PutResult | obstore.ObjectMeta) -> str:
        version = meta["version" if self.bucket.cloud is Cloud.GCS else "e_tag"]
        if not version:
            raise StoreError(f"{self.url} gives its objects no version, so it cannot store a run")
        return version

    def _path(self, key: str) -> str:
        return f"{self.prefix}/{key}".strip("/")

    def _key(self, path: str) -> str:
        return path[len(self.prefix) + 1 :] if self.prefix else path

    def _url_of(self, key: str) -> str:
        return f"{self.url}/{key}".rstrip("/")


class ObjectStream:
    """An object read in order; `resumed` continues after a broken connection.

    `open_at` opens the object at an offset; it raises `Conflict` if the given tag has changed.
    """

    def __init__(
        self, bucket: Bucket, url: str, key: str, chunk_bytes: int, open_at: Opener
    ) -> None:
        self._bucket, self._url, self._key = bucket, url, key
        self._chunk_bytes, self._open_at = chunk_bytes, open_at
        self._offset = 0
        self._tag: str | None = None
        self._chunks: obstore.BytesStream | None = None

    def __iter__(self) -> ObjectStream:
        return self

    def __next__(self) -> memoryview:
        chunks = self._chunks or self._open()
        with explained(self._bucket, "read", self._url, self._key):
            chunk = memoryview(next(chunks))
        self._offset += len(chunk)
        return chunk

    def resumed(self) -> ObjectStream:
        """Return the rest of the same object; reading it fails if the object was replaced."""
        rest = ObjectStream(self._bucket, self._url, self._key, self._chunk_bytes, self._open_at)
        rest._offset, rest._tag = self._offset, self._tag
        return rest

    def _open(self) -> obstore.BytesStream:
        try:
            result = self._open_at(self._offset, self._tag)
        except Conflict:
            raise StoreError(
                f"{self._url} was replaced while it was read", key=self._key, hint="read it again"
            ) from None
        self._tag = result.meta["e_tag"]
        self._chunks = result.stream(min_chunk_size=self._chunk_bytes)
        return self._chunks
