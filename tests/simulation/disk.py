"""A run on a disk of this machine whose every change asks the story first.

The files are real, in the folder that the simulation is given; what goes wrong with them is not.
"""

from __future__ import annotations

import errno
import os

from holdfast.storage.local.disk import PosixDisk
from holdfast.storage.local.store import LocalStore
from holdfast.testing.faults import ALLOW, Refuse, Step, TappedDisk, Verdict
from tests.simulation.workers import SimWorker
from tests.simulation.world import World

_FREES = ("remove", "rmdir")
_CODES = {
    "busy": errno.ESTALE,
    "answer lost": errno.ETIMEDOUT,
    "error": errno.ENOSPC,
    "error after": errno.EIO,
}


class StoryTap:
    """Lets the story go wrong with a disk; outside the simulation, where nobody acts, nothing."""

    def __init__(self, world: World) -> None:
        self._world = world

    def judge(self, step: Step) -> Verdict:
        world, stage = self._world, self._world.stage
        if stage.current is None:
            return ALLOW
        stage.check()
        if world.is_quiet:
            return ALLOW
        owner = stage.current.process.owner
        if isinstance(owner, SimWorker) and step.verb == "write":
            owner.hold_up(str(step))
        if stage.now < world.store_is_down_until:
            return self._refused("busy", step)
        fault = world.next_operation()
        if fault is None:
            return ALLOW
        world.tell(f"{stage.current}: {fault.kind}: {step}")
        if fault.kind in ("killed before", "killed after"):
            world.kill(stage.current.process)
            stage.check()
        return self._refused(fault.kind, step) if fault.kind in _CODES else ALLOW

    def _refused(self, kind: str, step: Step) -> Verdict:
        code = _CODES[kind]
        if code == errno.ENOSPC and step.verb in _FREES:
            return ALLOW
        self._world.truth.store_troubles += 1
        return Refuse(OSError(code, os.strerror(code), step.path))


def disk_store(world: World) -> tuple[LocalStore, LocalStore]:
    """Return the store of a run on a disk: as drivers and workers have it, and without faults."""
    root = os.path.join(world.scratch, "run")
    return LocalStore(root, TappedDisk(PosixDisk(), StoryTap(world))), LocalStore(root)
