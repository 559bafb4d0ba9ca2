"""How long does saving a large checkpoint keep the training loop from going on?

`disk`: SYNC against a plain write and fsync of the same bytes; ASYNC against torch's own
asynchronous checkpoints (`torch.distributed.checkpoint.async_save`, whose files are synced too).
What counts for us is the call of `report`; the user's own `torch.save` before it, into a folder
on the same disk, is shown with it in a claim of its own, because torch's asynchronous checkpoints
need no such thing. `s3`: the same to an S3 server on loopback.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from bench.bare_http import put_all, signed_puts
from bench.peers import why_no_torch
from bench.program import running
from bench.question import MIB, Claim, Question, Setting, Side, at_most, ratio, remove, seconds
from tests.servers.storage import seaweedfs

SAVES = 4  # in one launch: a disk that takes half as long again for one of them is no news
LARGE_SAVES = 2
SLOW_ROUNDS_MAX = 1
BUCKET = "blocked"
GIB = 1024 * MIB

Save = Callable[..., Mapping[str, float]]


@contextmanager
def on_disk(setting: Setting) -> Iterator[Question]:
    yield _on_disk(setting, setting.scale.saved_bytes)


@contextmanager
def on_disk_large(setting: Setting) -> Iterator[Question]:
    yield _on_disk(setting, GIB)


@contextmanager
def on_s3(setting: Setting) -> Iterator[Question]:
    with _on_s3(setting, setting.scale.saved_bytes) as question:
        yield question


@contextmanager
def on_s3_large(setting: Setting) -> Iterator[Question]:
    with _on_s3(setting, GIB) as question:
        yield question


@contextmanager
def _on_s3(setting: Setting, size: int) -> Iterator[Question]:
    save = _saver(setting, size)
    with ExitStack() as stack:
        server = seaweedfs()
        stack.callback(server.stop)
        server.make_bucket(BUCKET)
        folders = (f"save-{number}" for number in itertools.count())
        content = {"model.bin": bytes(size)}

        def to_s3(*, later: bool) -> Mapping[str, float]:
            return save("holdfast", later=later, storage=server.uri(BUCKET, next(folders)))

        def bare() -> float:
            requests = signed_puts(server.url, BUCKET, next(folders), content)
            return seconds(lambda: put_all(server.url, requests))

        yield Question(
            f"time the loop is blocked by a checkpoint of {size // MIB} MB, S3 on loopback",
            "s",
            [
                _side("holdfast", lambda: to_s3(later=False)),
                _side("holdfast-async", lambda: to_s3(later=True)),
                _side("dcp-async", lambda: save("plain", way="dcp")),
                Side("limit", bare),
            ],
            [
                Claim("SYNC, times what the server takes", ratio("holdfast", "limit")),
                Claim(
                    "ASYNC, of DCP async to disk", ratio("holdfast-async", "dcp-async"), at_most(1)
                ),
                Claim(
                    "ASYNC until durable, of SYNC",
                    ratio("holdfast-async durable", "holdfast durable"),
                ),
            ],
            rounds_max=setting.scale.launches,
        )


def _on_disk(setting: Setting, size: int) -> Question:
    save = _saver(setting, size)
    return Question(
        f"time the loop is blocked by a checkpoint of {size // MIB} MB, local disk",
        "s",
        [
            _side("holdfast", lambda: save("holdfast", later=False)),
            _side("holdfast-async", lambda: save("holdfast", later=True)),
            _side("write+fsync", lambda: save("plain", way="raw")),
            _side("torch.save", lambda: save("plain", way="torch.save"), rounds_max=1),
            _side("dcp-async", lambda: save("plain", way="dcp")),
            _side(
                "ray-tuned",
                lambda: save("ray-tuned", later=False),
                left_out=setting.why_no_slow("ray"),
                rounds_max=SLOW_ROUNDS_MAX,
            ),
        ],
        [
            Claim("SYNC, of write+fsync", ratio("holdfast", "write+fsync"), at_most(1.2)),
            Claim("SYNC, of Ray's, tuned and not durable", ratio("holdfast", "ray-tuned")),
            Claim("ASYNC, of DCP async", ratio("holdfast-async", "dcp-async"), at_most(1)),
            Claim(
                "torch.save and ASYNC, of DCP async", ratio("holdfast-async in all", "dcp-async")
            ),
            Claim(
                "ASYNC until durable, of DCP async",
                ratio("holdfast-async durable", "dcp-async durable"),
            ),
        ],
        rounds_max=setting.scale.launches,
    )


def _side(name: str, measure: Callable[[], Mapping[str, float]], **more: Any) -> Side:
    left_out = why_no_torch() or more.pop("left_out", "")
    return Side(name, measure, left_out=left_out, **more)


def _saver(setting: Setting, size: int) -> Save:
    numbers = itertools.count()

    def save(system: str, **options: Any) -> Mapping[str, float]:
        saves = SAVES if size < GIB else LARGE_SAVES
        if "storage" in options or not setting.scale.slow_peers:
            saves = 1
        folder = setting.folder / f"{system}-{next(numbers)}"
        given = {
            "task": "save",
            "size": size,
            "saves": saves,
            "workers": 1,
            **options,
        }
        with running(system, folder, given) as program:
            [done] = program.await_marks("done-0")
        # For all alike, and not sooner: a disk may write twice as fast where it has been written.
        remove(folder)
        return {
            "": done["report_s"],
            "in all": done["write_s"] + done["report_s"],
            "durable": done["durable_s"],
        }

    return save
