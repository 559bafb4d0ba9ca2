"""The simulated engine, called by a test that is not itself simulated.

An actor on the stage makes the test's calls. While the test does something else, it holds the
baton, and simulated time stands still; while it waits for an event, that time passes in small
steps, each of which takes a moment of real time, so that a `wake` from outside finds it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from holdfast.core.placement import Demand
from holdfast.engine.base import EngineEvent, Node, WorkerSpec
from holdfast.engine.log_files import LogFile
from holdfast.testing import workers
from holdfast.wire import Message
from tests.patience import PATIENCE_S
from tests.simulation.engine import SimEngine
from tests.simulation.story import draw
from tests.simulation.truth import Launch
from tests.simulation.workers import SimWorker
from tests.simulation.world import World

CALL_S = 0.01  # how long a call takes, by the simulated clock
STEP_S = 0.05  # how much simulated time passes at once
MOMENT_S = 0.001  # how long that takes

T = TypeVar("T")


class EngineOnStage:
    """An `Engine` whose every method is that of a `SimEngine`."""

    def __init__(self, scratch: str) -> None:
        story = draw(1)
        self._world = World(story.without(range(1, len(story.faults) + 1)), scratch)
        self._stage = self._world.stage
        launch = Launch(1, self._stage)
        self._engine = SimEngine(self._world, launch, trains=False, work=_obey)
        self._calls: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._answer: Future[Any] = Future()
        self._is_rung = threading.Event()
        self._is_waiting = False
        self._play = threading.Thread(target=self._keep_playing)
        self._play.start()

    def leave(self) -> None:
        """End the simulation; raise whatever went wrong in it."""
        self._calls.put(None)
        self._play.join(PATIENCE_S)
        if self._answer.done():
            self._answer.result()

    def _keep_playing(self) -> None:
        try:
            self._stage.play("the test", self._make_calls)
        except BaseException as error:  # noqa: BLE001  # the test will raise it
            if self._answer.done():
                self._answer = Future()
            self._answer.set_exception(error)

    def _make_calls(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    def _call(self, method: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        answer: Future[T] = Future()
        self._answer = answer

        def call() -> None:
            try:
                value = method(*args, **kwargs)
                self._stage.sleep(CALL_S)
            except Exception as error:  # noqa: BLE001  # the test will raise it
                answer.set_exception(error)
            else:
                answer.set_result(value)

        self._calls.put(call)
        return answer.result(PATIENCE_S)

    # ------------------------------------------------------------------ the methods of an engine

    def nodes(self) -> Sequence[Node]:
        return self._call(self._engine.nodes)

    def can_grow(self) -> bool:
        return self._call(self._engine.can_grow)

    def reserve(self, demand: Demand, workers_min: int, workers_max: int) -> bool:
        return self._call(self._engine.reserve, demand, workers_min, workers_max)

    def warm_up(self) -> None:
        self._call(self._engine.warm_up)

    def start_group(self, group: int, workers: Sequence[WorkerSpec]) -> None:
        self._call(self._engine.start_group, group, workers)

    def send(self, group: int, rank: int, message: Message) -> None:
        self._call(self._engine.send, group, rank, message)

    def stop_group(self, group: int, *, grace_s: float = 0.0) -> None:
        self._call(self._engine.stop_group, group, grace_s=grace_s)

    def stacks(self, group: int, timeout_s: float = 5.0) -> Mapping[int, str]:
        return self._call(self._engine.stacks, group, timeout_s)

    def log(self, group: int, rank: int) -> LogFile:
        return self._call(self._engine.log, group, rank)

    def next_event(self, timeout_s: float | None) -> EngineEvent | None:
        return self._call(self._wait, timeout_s)

    def _wait(self, timeout_s: float | None) -> EngineEvent | None:
        self._is_waiting = True
        self._step()
        try:
            return self._engine.next_event(timeout_s)
        finally:
            self._is_waiting = False

    def _step(self) -> None:
        """Pass on a `wake`, and let the next step follow while somebody waits."""
        if self._is_rung.wait(MOMENT_S):
            self._is_rung.clear()
            self._engine.wake()
        if self._is_waiting:
            self._stage.after(STEP_S, self._step)

    def wake(self) -> None:
        self._is_rung.set()

    def close(self) -> None:
        self._call(self._engine.close)


def _obey(worker: SimWorker) -> None:
    workers.follow(worker.channel, worker.channel.wait(), worker.exit)
