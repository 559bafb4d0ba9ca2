"""Ends the processes of a study: those that wait for a job are let go, any others are stopped."""

from __future__ import annotations

from collections.abc import Collection

from holdfast.clock import Clock
from holdfast.engine.base import Ended, Engine
from holdfast.wire import Dismissed

PATIENCE_S = 40.0  # a little more than a worker takes for what was left to its end


def end_processes(
    engine: Engine, clock: Clock, busy: Collection[int], idle: Collection[int], *, is_over: bool
) -> None:
    """End the processes of a study, by their launches, and return once there are none.

    Those of a study that is over have time for what was left to the end of their process, such as
    a tracker's last upload; the others, and who takes too long, are stopped.
    """
    for launch in (*busy, *(() if is_over else idle)):
        engine.stop_group(launch)
    left = set(idle) if is_over else set()
    for launch in left:
        engine.send(launch, 0, Dismissed())
    deadline = clock.monotonic() + PATIENCE_S
    while left and (patience_s := deadline - clock.monotonic()) > 0:
        event = engine.next_event(patience_s)
        if isinstance(event, Ended):
            left.discard(event.group)
    for launch in left:
        engine.stop_group(launch)
