"""The training code: what a user would write, the same for every system it runs under.

A task is a function of its `Place`, which a script makes of the system it is for.
`torch.distributed` is ready when it begins.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import steady
import torch
import torch.distributed as dist
from marks import await_mark, first_free, mark
from memory_at_hand import settle

STEP_S = 0.005
METRICS = {"loss": 0.25, "accuracy": 0.875, "epoch": 3}
MODEL = "model.pt"


class Place(Protocol):
    """What a system gives to the code it runs."""

    rank: int

    def report(self, metrics: Mapping[str, Any], folder: str | None = None) -> None:
        """Report metrics, and save the files in `folder` if there is one."""

    def report_later(self, metrics: Mapping[str, Any], folder: str) -> Callable[[], object]:
        """Begin to save; return what waits until it is durable. `folder` may be taken away."""

    def keep(self, metrics: Mapping[str, Any], folder: str | None) -> None:
        """Save the files in `folder`, which is the system's then, as it advises to save often."""

    def newest(self) -> str | None:
        """Return the folder of the newest checkpoint, None if there is none."""


def run(place: Place, options: Mapping[str, Any]) -> None:
    """Do the task that the bench asked this script for."""
    _TASKS[options["task"]](place, options)


def launch(place: Place, options: Mapping[str, Any]) -> None:
    """Say when all ranks have heard of each other, or have made a step together."""
    if options.get("steps"):
        _make_a_step()
    _meet()
    mark(options["folder"], f"ready-{place.rank}")


def idle(place: Place, options: Mapping[str, Any]) -> None:
    """The same, and then stay until told to end."""
    launch(place, options)
    await_mark(options["folder"], "end")


def recover(place: Place, options: Mapping[str, Any]) -> None:
    """Train from the newest checkpoint if there is one; make one if there is none."""
    folder = options["folder"]
    found = place.newest()
    if found is None:
        _save_first(place, options)
    else:
        state = torch.load(f"{found}/{MODEL}")
        assert state["weights"].nbytes >= options["size"]
    _meet()
    mark(folder, f"ready-{place.rank}-{first_free(folder, f'ready-{place.rank}')}")
    while not _agree(os.path.exists(f"{folder}/end")):
        time.sleep(STEP_S)


def report(place: Place, options: Mapping[str, Any]) -> None:
    """Report metrics, or a small checkpoint with them, so many times; say what a call took."""
    calls = options["calls"]
    _reports(place, max(1, calls // 10), options)  # warms up
    _meet()
    before = _synced(options["folder"])
    seconds = _reports(place, calls, options)
    _meet()
    syncs = {
        kind: (count - before.get(kind, 0)) / calls
        for kind, count in _synced(options["folder"]).items()
    }
    mark(options["folder"], f"done-{place.rank}", each_s=seconds / calls, syncs=syncs)


def save(place: Place, options: Mapping[str, Any]) -> None:
    """Save a large checkpoint a few times; say how long that kept the loop from going on.

    What was saved stays where it is: see `bench.blocked`.
    """
    state = _state(options["size"])
    found: dict[str, list[float]] = {"write_s": [], "report_s": [], "durable_s": []}
    for _ in range(options["saves"] + 1):
        folder = tempfile.mkdtemp(dir=options["folder"])
        settle(options["size"])
        begun = time.perf_counter()
        torch.save(state, f"{folder}/{MODEL}")
        written = time.perf_counter()
        wait: Callable[[], object] | None = None
        if options["later"]:
            wait = place.report_later(METRICS, folder)
        else:
            place.report(METRICS, folder)
        reported = time.perf_counter()
        if wait is not None:
            wait()
        found["write_s"].append(written - begun)
        found["report_s"].append(reported - written)
        found["durable_s"].append(time.perf_counter() - begun)
    medians = {name: statistics.median(times[1:]) for name, times in found.items()}
    mark(options["folder"], f"done-{place.rank}", **medians)


# ---------------------------------------------------------------------- what the tasks are made of


def _meet() -> None:
    met = torch.ones(1)
    dist.all_reduce(met)
    assert met.item() == dist.get_world_size()


def _make_a_step() -> None:
    """Train a model of one weight, as a script does that has come to its loop."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(1, 1)).sum().backward()
    optimizer.step()


def _agree(wanted: bool) -> bool:  # noqa: FBT001
    votes = torch.tensor([float(wanted)])
    dist.all_reduce(votes)
    return bool(votes.item())


def _state(size: int) -> dict[str, torch.Tensor]:
    return {"weights": torch.rand(size // 4)}


def _save_first(place: Place, options: Mapping[str, Any]) -> None:
    if place.rank != 0:
        place.report(METRICS)
        return
    folder = tempfile.mkdtemp(dir=options["folder"])
    torch.save(_state(options["size"]), f"{folder}/{MODEL}")
    place.report(METRICS, folder)
    shutil.rmtree(folder)


def _reports(place: Place, calls: int, options: Mapping[str, Any]) -> float:
    """Return what `calls` reports took, without what the files took to be written."""
    size = options.get("size", 0)
    if not size or place.rank != 0:
        begun = time.perf_counter()
        for number in range(calls):
            place.report({**METRICS, "step": number})
        return time.perf_counter() - begun
    content, taken = os.urandom(size), 0.0
    for number in range(calls):
        folder = tempfile.mkdtemp(dir=options["folder"])
        with open(f"{folder}/{MODEL}", "wb") as file:
            file.write(content)
        begun = time.perf_counter()
        place.report({**METRICS, "step": number}, folder)
        taken += time.perf_counter() - begun
        shutil.rmtree(folder)
    return taken


def _synced(folder: str) -> dict[str, int]:
    """Return how often anybody in this run has synced so far, if somebody counts it."""
    if not os.path.exists(f"{folder}/syncs"):
        return {}
    from syncs import counts

    return counts(folder)


_TASKS: Mapping[str, Callable[[Place, Mapping[str, Any]], None]] = {
    "launch": launch,
    "idle": idle,
    "recover": recover,
    "report": report,
    "save": save,
    "steady": steady.train,
}
