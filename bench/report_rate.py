"""What does `report` cost the loop that calls it, in each of two workers?

`metrics`: metrics alone. Ray's call waits until its controller has polled the workers, every 2 s
unless told otherwise: so it is measured as it comes, with few calls, and with that interval
turned down to 1 ms. `checkpoint`: rank 0 saves a file of 1 KB with them, durable when the call
returns. What of that is the disk's own is measured beside it: as many syncs of files, folders and
appended lines as Holdfast was seen to make.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.peers import why_no_torch
from bench.program import running
from bench.question import (
    Claim,
    Question,
    Setting,
    Side,
    at_least,
    at_most,
    difference,
    ratio,
    value,
)

CALLS = 20_000
CALLS_OF = {"ray": 2, "ray-tuned": 100}
SAVES = 200
SAVED_BYTES = 1024
TUNED_ROUNDS_MAX = 5
TUNED_SAVING_ROUNDS_MAX = 1  # nothing but an order is claimed
DEFAULT_ROUNDS_MAX = 1  # its time is that of its timer
LINE = b"x" * 300


@contextmanager
def of_metrics(setting: Setting) -> Iterator[Question]:
    ask = _asker(setting)

    def holdfast() -> Mapping[str, float]:
        *workers, over = ask("holdfast", {"calls": CALLS}, "done-0", "done-1", "over")
        begun = min(one["time"] - CALLS * one["each_s"] for one in workers)
        each = (over["time"] - begun) / CALLS
        return {"": _slowest_us(workers), "in all": 1e6 * each}

    def peer(system: str) -> Side:
        return Side(
            system,
            lambda: _slowest_us(ask(system, {"calls": CALLS_OF[system]})),
            left_out=_why_not(setting, system),
            rounds_max=_rounds_max(system),
        )

    yield Question(
        "report of metrics, each of 2 workers",
        "µs",
        [
            Side("holdfast", holdfast, left_out=why_no_torch()),
            peer("ray-tuned"),
            peer("ray"),
        ],
        [
            Claim("µs a call", value("holdfast"), at_most(20)),
            Claim(
                "times faster than Ray Train, tuned", ratio("ray-tuned", "holdfast"), at_least(200)
            ),
            Claim("times faster than Ray Train", ratio("ray", "holdfast")),
            Claim("times that, until the run is over", ratio("holdfast in all", "holdfast")),
        ],
        rounds_max=setting.scale.launches,
    )


@contextmanager
def of_a_checkpoint(setting: Setting) -> Iterator[Question]:
    ask = _asker(setting)
    syncs: dict[str, float] = {}

    def holdfast() -> Mapping[str, float]:
        saver, _ = ask("holdfast", {"calls": SAVES, "size": SAVED_BYTES, "counts_syncs": True})
        syncs.update(saver["syncs"])
        return {"": 1e3 * saver["each_s"], "syncs": sum(syncs.values())}

    def tuned() -> float:
        calls = CALLS_OF["ray-tuned"]
        saver, _ = ask("ray-tuned", {"calls": calls, "size": SAVED_BYTES})
        return 1e3 * float(saver["each_s"])

    yield Question(
        "report of a durable checkpoint of 1 KB, one of 2 workers",
        "ms",
        [
            Side("holdfast", holdfast, left_out=why_no_torch()),
            Side("syncs", lambda: 1e3 * _syncs_s(setting.folder, syncs), left_out=why_no_torch()),
            Side(
                "ray-tuned",
                tuned,
                left_out=_why_not(setting, "ray-tuned"),
                rounds_max=TUNED_SAVING_ROUNDS_MAX,
            ),
        ],
        [
            Claim("ms more than the disk's own syncs", difference("holdfast", "syncs"), at_most(2)),
            Claim("syncs a checkpoint", value("holdfast syncs")),
            Claim("times faster than Ray Train, tuned", ratio("ray-tuned", "holdfast")),
        ],
        rounds_max=setting.scale.launches,
    )


def _asker(setting: Setting) -> Callable[..., list[dict[str, Any]]]:
    numbers = itertools.count()

    def ask(system: str, options: Mapping[str, Any], *marks: str) -> list[dict[str, Any]]:
        folder = setting.folder / f"{system}-{next(numbers)}"
        with running(system, folder, {"task": "report", **options}) as program:
            return program.await_marks(*(marks or ("done-0", "done-1")))

    return ask


def _slowest_us(workers: Sequence[Mapping[str, Any]]) -> float:
    return 1e6 * max(float(one["each_s"]) for one in workers)


def _why_not(setting: Setting, system: str) -> str:
    slow = setting.why_no_slow("ray") if system.startswith("ray") else ""
    return why_no_torch() or slow


def _rounds_max(system: str) -> int | None:
    return {"ray": DEFAULT_ROUNDS_MAX, "ray-tuned": TUNED_ROUNDS_MAX}.get(system)


def _syncs_s(folder: Path, syncs: Mapping[str, float]) -> float:
    """Return what the syncs of one checkpoint take, with next to nothing to write."""
    place = folder / f"syncs-{time.monotonic_ns()}"
    place.mkdir()
    handle = os.open(place, os.O_RDONLY)
    line = os.open(place / "lines", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    owed = dict.fromkeys(syncs, 0.0)
    begun = time.perf_counter()
    for number in range(SAVES):
        for kind, each in syncs.items():
            owed[kind] += each
            while owed[kind] >= 1:
                owed[kind] -= 1
                _sync_once(kind, place / f"{number}-{owed[kind]:.3f}", handle, line)
    taken = (time.perf_counter() - begun) / SAVES
    os.close(line)
    os.close(handle)
    return taken


def _sync_once(kind: str, path: Path, folder: int, line: int) -> None:
    if kind == "file":
        file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
        os.write(file, LINE)
        os.fsync(file)
        os.close(file)
    elif kind == "folder":
        path.with_suffix(".new").touch()  # else there would be nothing to sync
        os.fsync(folder)
    else:
        os.write(line, LINE)
        os.fdatasync(line)
