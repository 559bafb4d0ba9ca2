"""Machines that are about to go: trials there may save themselves first."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping

from holdfast.clock import Clock
from holdfast.control.host.preemption import MARGIN_S, Notice
from holdfast.control.study.resume import rooms_of
from holdfast.control.study.trial_checkpoints import Scribe
from holdfast.control.study.trial_process import TrialProcess
from holdfast.core.study.events import RoomsChanged
from holdfast.engine.base import Engine
from holdfast.wire import Noticed

log = logging.getLogger(__name__)


class Departures:
    """Stops the trials of such machines, each once it has saved itself, all at the deadline.

    Attributes:
        takes_driver: Whether this driver's machine goes, or the driver was told to.
    """

    def __init__(self, engine: Engine, clock: Clock, notice_s: float, scribe: Scribe) -> None:
        self._engine, self._clock, self._notice_s = engine, clock, notice_s
        self._scribe = scribe
        self._announced: deque[Notice] = deque()
        self._nodes: dict[str, float] = {}  # until when trials there are waited for
        self._driver_ends = float("inf")
        self.takes_driver = False

    def announce(self, notice: Notice) -> None:
        """Announce that machines will go; from any thread or signal handler."""
        self._announced.append(notice)
        self._engine.wake()

    def look(self, processes: Mapping[int, TrialProcess]) -> None:
        """Take in that the engine's nodes have changed."""
        going = {node.name: node.leaves for node in self._engine.nodes() if node.leaves is not None}
        for name, leaves in going.items():
            if name not in self._nodes:
                self._take(Notice(leaves, (name,), "the cluster"), processes)
        self._tell_rooms()

    def go_on(self, processes: Mapping[int, TrialProcess]) -> bool:
        """Stop the trials that are safe, or late; return whether this driver is to stop now."""
        while self._announced:
            self._take(self._announced.popleft(), processes)
        if not (self.takes_driver or self._nodes):
            return False
        now, late = self._clock.monotonic(), 0
        for launch, process in processes.items():
            is_late = process.is_leaving and now >= self._end_of(process)
            if process.is_stopped or not (process.is_safe or is_late):
                continue
            late += not process.is_safe
            process.is_stopped = True
            self._engine.stop_group(launch)
        if late:
            log.warning("%d trials did not save themselves in time", late)
        return self.takes_driver and (now >= self._driver_ends or not processes)

    def _end_of(self, process: TrialProcess) -> float:
        return min(self._driver_ends, self._nodes.get(process.node, float("inf")))

    def _take(self, notice: Notice, processes: Mapping[int, TrialProcess]) -> None:
        left_s = self._notice_s
        if notice.deadline is not None:
            left_s = notice.deadline - MARGIN_S - self._clock.now()
        ends = self._clock.monotonic() + max(0.0, left_s)
        if notice.nodes is None:
            self.takes_driver, self._driver_ends = True, min(self._driver_ends, ends)
            log.warning(
                "the study stops: this machine or process is being taken away (%s)", notice.source
            )
        else:
            self._nodes |= {name: min(ends, self._nodes.get(name, ends)) for name in notice.nodes}
            names = ", ".join(notice.nodes)
            log.warning("%s will be taken away (%s); its trials move", names, notice.source)
            self._tell_rooms()
        noticed = Noticed(notice.deadline or self._clock.now() + left_s, {})
        for launch, process in processes.items():
            if notice.nodes is None or process.node in notice.nodes:
                process.is_leaving = True
                self._engine.send(launch, 0, noticed)

    def _tell_rooms(self) -> None:
        """Tell the study which nodes stay, so that it places nothing on the others."""
        there = {node.name for node in self._engine.nodes()}
        self._nodes = {name: ends for name, ends in self._nodes.items() if name in there}
        rooms = rooms_of(self._engine)
        stay = {name: room for name, room in rooms.items() if name not in self._nodes}
        self._scribe.happen(RoomsChanged(stay))
