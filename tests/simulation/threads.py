"""Threads, locks and queues for actors of a stage, with the methods that Python's own have."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tests.simulation.stage import Actor, Stage


class SimLock:
    """A lock that actors wait for in the order they came; with `again` its holder may have it."""

    def __init__(self, stage: Stage, *, again: bool = False) -> None:
        self._stage, self._again = stage, again
        self._holder: Actor | None = None
        self._times = 0
        self._queue: deque[Actor] = deque()

    def acquire(self) -> bool:
        stage = self._stage
        stage.check()
        while self._times and not (self._again and self._holder is stage.current):
            assert stage.current is not None
            self._queue.append(stage.current)
            stage.wait("a lock")
        self._holder = stage.current
        self._times += 1
        return True

    def release(self) -> None:
        self._times -= 1
        if not self._times and self._queue:
            self._stage.wake(self._queue.popleft())

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class SimCondition:
    """A condition variable of actors."""

    def __init__(self, stage: Stage) -> None:
        self._stage, self._lock = stage, SimLock(stage)
        self._waiting: list[Actor] = []

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        me = self._stage.current
        assert me is not None
        self._waiting.append(me)
        self._lock.release()
        try:
            return self._stage.wait("news", timeout)
        finally:
            if me in self._waiting:
                self._waiting.remove(me)
            if not me.process.is_dead:
                self._lock.acquire()

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        ends = None if timeout is None else self._stage.now + timeout
        while not (found := predicate()):
            left = None if ends is None else ends - self._stage.now
            if left is not None and left <= 0:
                break
            self.wait(left)
        return found

    def notify_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for actor in waiting:
            self._stage.wake(actor)

    notify = notify_all


class SimEvent:
    """An event of actors."""

    def __init__(self, stage: Stage) -> None:
        self._changed = SimCondition(stage)
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        self._changed.notify_all()

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        with self._changed:
            return bool(self._changed.wait_for(self.is_set, timeout))


class SimThread:
    """A thread that is an actor of the process that starts it."""

    def __init__(
        self,
        stage: Stage,
        target: Callable[..., object],
        name: str | None,
        args: Iterable[Any],
        kwargs: Mapping[str, Any],
    ) -> None:
        self._stage, self._target = stage, target
        self._args, self._kwargs = tuple(args), dict(kwargs)
        self.name = name or "a thread"
        self._actor: Actor | None = None

    def start(self) -> None:
        self._stage.check()
        assert self._stage.current is not None
        self._actor = self._stage.start(self._stage.current.process, self.name, self._run)

    def _run(self) -> None:
        self._target(*self._args, **self._kwargs)

    def join(self, timeout: float | None = None) -> None:
        self._stage.check()
        if self._actor is not None:
            self._stage.join(self._actor, timeout)

    def is_alive(self) -> bool:
        return self._actor is not None and not self._actor.is_over


class SimQueue:
    """A queue of actors; `maxsize` 0 for one that is never full."""

    def __init__(self, stage: Stage, maxsize: int = 0) -> None:
        self._changed, self._maxsize = SimCondition(stage), maxsize
        self._items: deque[Any] = deque()

    def put(self, item: object) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not 0 < self._maxsize <= len(self._items))
            self._items.append(item)
            self._changed.notify_all()

    def get(self) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: self._items)
            item = self._items.popleft()
            self._changed.notify_all()
            return item
