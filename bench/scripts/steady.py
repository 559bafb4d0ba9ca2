"""Real training for runs that are disturbed: a model, DDP, momentum, and saves by the clock.

How often to save is worked out alike for every system, by Young's formula: with a death every M
seconds and a save that keeps the loop waiting for C, the least is lost with a save every √(2·C·M).
C is what the saves have taken so far, in the middle.
"""

from __future__ import annotations

import math
import os
import statistics
import tempfile
import time
from array import array
from collections.abc import Mapping
from typing import Any, Protocol

import torch
import torch.distributed as dist
from marks import first_free, mark, read

WIDTH, DEPTH, BATCH = 1024, 3, 48
MODEL = "model.pt"
STEPS = "steps"  # a file with the seconds of every step that was made, of whichever attempt
SAVE_FIRST_S = 0.5
GO_ON, SAVE, END = 0.0, 1.0, 2.0


class Place(Protocol):
    """What a system gives to this script."""

    rank: int

    def keep(self, metrics: Mapping[str, Any], folder: str | None) -> None:
        """Save the files in `folder`, which is the system's then, as it advises to save often."""

    def newest(self) -> str | None:
        """Return the folder of the newest checkpoint, None if there is none."""


def train(place: Place, options: Mapping[str, Any]) -> None:
    """Train until the window is over that began with the first step; say which step that was."""
    folder, rank = options["folder"], place.rank
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    layers = [
        part for _ in range(DEPTH) for part in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())
    ]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    batch = torch.rand(BATCH, WIDTH)
    step = _load(place, model, optimizer)
    mark(folder, f"alive-{rank}")
    if rank == 0:
        mark(folder, f"resumed-{first_free(folder, 'resumed')}", step=step)
    chosen = _Choice(options, first=step == 0 and rank == 0)
    made = os.open(f"{folder}/{STEPS}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    while (order := _told(chosen.next() if rank == 0 else GO_ON)) != END:
        if order == SAVE:
            begun = time.perf_counter()
            place.keep({"step": step}, _written(folder, model, optimizer, step, rank))
            chosen.saved(time.perf_counter() - begun)
        begun = time.perf_counter()
        loss = (model(batch) - batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if rank == 0:
            os.write(made, array("d", [time.perf_counter() - begun]).tobytes())
    if rank == 0:
        mark(folder, "counted", step=step, interval_s=chosen.interval_s)
    dist.barrier()


class _Choice:
    """When to save and when to end, as rank 0 sees it."""

    def __init__(self, options: Mapping[str, Any], *, first: bool) -> None:
        folder = options["folder"]
        if first and read(folder, "first") is None:
            mark(folder, "first")
        began = read(folder, "first")
        self._ends = math.inf if began is None else began["time"] + options["window_s"]
        self._mean_s = options["mean_s"]
        self._costs: list[float] = []
        self._saves_at = time.monotonic() + SAVE_FIRST_S

    @property
    def interval_s(self) -> float:
        if not self._costs:
            return SAVE_FIRST_S
        return math.sqrt(2 * statistics.median(self._costs) * self._mean_s)

    def next(self) -> float:
        if time.time() >= self._ends:
            return END
        return SAVE if time.monotonic() >= self._saves_at else GO_ON

    def saved(self, seconds: float) -> None:
        self._costs.append(seconds)
        self._saves_at = time.monotonic() + self.interval_s


def _told(order: float) -> float:
    """Return what rank 0 has decided for all."""
    told = torch.tensor([order])
    dist.broadcast(told, 0)
    return float(told.item())


def _load(place: Place, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    found = place.newest()
    if found is None or not os.path.exists(f"{found}/{MODEL}"):
        return 0
    state = torch.load(f"{found}/{MODEL}")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    step: int = state["step"]
    return step


def _written(
    folder: str, model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int, rank: int
) -> str | None:
    """Return a new folder with all that is needed to go on, None on ranks that save nothing."""
    if rank != 0:
        return None
    written = tempfile.mkdtemp(dir=folder)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    torch.save(state, f"{written}/{MODEL}")
    return written
