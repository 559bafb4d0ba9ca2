"""An observer of the run that knows what it must be told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.checkpoint import Checkpoint
from holdfast.control.observers import Observer
from tests.simulation import invariants
from tests.simulation.world import World


class Onlooker(Observer):
    """Hears what a controller says of its run, and holds it against the truth."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._step = 0

    def group_started(self, attempt: int, world_size: int, step: int | None) -> None:
        self._step = step or 0

    def reported(
        self, step: int, metrics: Mapping[int, Mapping[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        truth = self._world.truth
        directory = None if checkpoint is None else self._world.directory_of(checkpoint)
        truth.holds(invariants.observers_hear_every_step_once, self._step, step, directory)
        self._step = step
