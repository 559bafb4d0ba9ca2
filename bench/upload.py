"""How much faster is a commit to S3 than Ray's way, and how close to what the server can take?

The server is SeaweedFS on loopback, so client and server share this machine. Ours is everything up
to the acknowledgement: digests, upload, manifest, journal. Ray's way is the call that Ray Train and
Tune make to persist a checkpoint: `pyarrow.fs.copy_files` with one thread and chunks of 64 MiB. The
limit is the server fed by bare sockets with bytes from memory, signed beforehand.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow.fs

from bench.bare_http import put_all, signed_puts
from bench.files import make_files, mixture, one_file
from bench.question import MIB, Claim, Question, Setting, Side, at_least, ratio, seconds
from bench.runs import save
from holdfast.control.record.open_run import open_run
from holdfast.storage.locate import open_store
from tests.servers.storage import ACCESS_KEY, SECRET_KEY, S3Server, seaweedfs

BUCKET = "bench"
RAY_CHUNK_BYTES = 64 * MIB
PEER_TIMEOUT_S = 60  # pyarrow gives up after 3 s, which a busy machine can need
ROUNDS_MAX = 5
SHARE = 2  # of a checkpoint: the server is slow, and what is found is the same


@contextmanager
def one_large_file(setting: Setting) -> Iterator[Question]:
    total = setting.scale.saved_bytes // SHARE
    with _question(setting, one_file(total), f"{total // MIB} MB in one file") as question:
        yield question


@contextmanager
def large_and_small_files(setting: Setting) -> Iterator[Question]:
    total, count = setting.scale.saved_bytes // SHARE, setting.scale.files // SHARE
    what = f"{total // MIB} MB, half in one file, half in {count:,}"
    with _question(setting, mixture(total, count), what) as question:
        yield question


@contextmanager
def _question(setting: Setting, sizes: Mapping[str, int], what: str) -> Iterator[Question]:
    source = setting.folder / "source"
    contents = make_files(source, sizes)
    megabytes = sum(sizes.values()) / 1e6
    server = seaweedfs()
    try:
        server.make_bucket(BUCKET)
        upload = _Uploads(server, source, contents)
        yield Question(
            f"commit of {what} to S3 on loopback",
            "MB/s",
            [
                Side("holdfast", lambda: megabytes / upload.holdfast()),
                Side("ray", lambda: megabytes / upload.as_ray_does()),
                Side("limit", lambda: megabytes / upload.bare()),
            ],
            [
                Claim("times Ray's way", ratio("holdfast", "ray"), at_least(2)),
                Claim("of what the server takes", ratio("holdfast", "limit")),
            ],
            rounds_max=ROUNDS_MAX,
        )
    finally:
        server.stop()


class _Uploads:
    """Three ways to bring the same files to the same server; each time to a folder of its own."""

    def __init__(self, server: S3Server, source: Path, contents: Mapping[str, bytes]) -> None:
        self._server, self._source, self._contents = server, source, contents
        self._numbers = itertools.count()
        self._peer = pyarrow.fs.S3FileSystem(
            access_key=ACCESS_KEY,
            secret_key=SECRET_KEY,
            endpoint_override=server.url,
            region="us-east-1",
            request_timeout=PEER_TIMEOUT_S,
        )

    def holdfast(self) -> float:
        with self._folder() as folder:
            store = open_store(self._server.uri(BUCKET, folder))
            with open_run(store) as run:
                return seconds(lambda: save(run, self._source))

    def as_ray_does(self) -> float:
        with self._folder() as folder:
            return seconds(
                lambda: pyarrow.fs.copy_files(
                    str(self._source),
                    f"{BUCKET}/{folder}",
                    source_filesystem=pyarrow.fs.LocalFileSystem(),
                    destination_filesystem=self._peer,
                    use_threads=False,
                    chunk_size=RAY_CHUNK_BYTES,
                )
            )

    def bare(self) -> float:
        with self._folder() as folder:
            requests = signed_puts(self._server.url, BUCKET, folder, self._contents)
            return seconds(lambda: put_all(self._server.url, requests))

    @contextmanager
    def _folder(self) -> Iterator[str]:
        folder = f"upload-{next(self._numbers)}"
        yield folder
        open_store(self._server.uri(BUCKET, folder)).delete_tree("")
