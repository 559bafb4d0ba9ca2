"""Stand-ins for Python's `threading` and `queue`, for actors of a stage.

Code under test that says `threading.Thread(...)` gets an actor where it is itself played by one,
and a real thread anywhere else. `installed` puts the stand-ins where such code looks for the real
modules, and takes them away again.
"""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType, TracebackType
from typing import Any, Self

from holdfast.testing.simulation.stage import Actor, Stage, stage_here

_PACKAGES = ("worker", "control", "journal", "storage", "checkpoint")


class SimLock:
    """A lock that actors wait for in the order they came."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._is_held = False
        self._queue: deque[Actor] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002
        stage = self._stage
        stage.check()
        assert blocking and timeout == -1, "nobody has needed more yet"
        while self._is_held:
            assert stage.current is not None
            self._queue.append(stage.current)
            stage.wait("a lock")
        self._is_held = True
        return True

    def release(self) -> None:
        self._is_held = False
        if self._queue:
            self._stage.wake(self._queue.popleft())

    def locked(self) -> bool:
        return self._is_held

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


class _Threading(ModuleType):
    """`threading` as the code under test sees it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)

    def Lock(self) -> Any:  # noqa: N802
        stage = stage_here()
        return threading.Lock() if stage is None else SimLock(stage)

    def Condition(self) -> Any:  # noqa: N802
        stage = stage_here()
        return threading.Condition() if stage is None else SimCondition(stage)

    def Event(self) -> Any:  # noqa: N802
        stage = stage_here()
        return threading.Event() if stage is None else SimEvent(stage)

    def Thread(  # noqa: N802
        self,
        *,
        target: Callable[..., object],
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        daemon: bool | None = None,
    ) -> Any:
        stage = stage_here()
        if stage is not None:
            return SimThread(stage, target, name, args, kwargs or {})
        return threading.Thread(
            target=target, name=name, args=args, kwargs=kwargs or {}, daemon=daemon
        )


class _Queues(ModuleType):
    """`queue` as the code under test sees it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(queue, name)

    def Queue(self, maxsize: int = 0) -> Any:  # noqa: N802
        stage = stage_here()
        return queue.Queue(maxsize) if stage is None else SimQueue(stage, maxsize)


_THREADING, _QUEUES = _Threading("threading"), _Queues("queue")


class _Put:
    """What was put in the place of something else, to be taken away again."""

    def __init__(self) -> None:
        self._before: list[tuple[ModuleType, str, object]] = []

    def put(self, module: ModuleType, name: str, value: object) -> None:
        self._before.append((module, name, getattr(module, name)))
        setattr(module, name, value)

    def take_away(self) -> None:
        while self._before:
            module, name, value = self._before.pop()
            setattr(module, name, value)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.take_away()


@contextlib.contextmanager
def installed(
    replaced: Mapping[Any, Any], settings: Iterable[tuple[ModuleType, str, object]]
) -> Iterator[None]:
    """Have the code under test use the stand-ins, and those for other things in `replaced`.

    `replaced` goes from an object that modules hold under its own name to what they shall have;
    `settings` are names in modules, and what they are to mean.
    """
    everything = {threading: _THREADING, queue: _QUEUES, **replaced}
    with _Put() as place:
        for module in _modules():
            for real, stand_in in everything.items():
                name: str = real.__name__
                if vars(module).get(name) is real:
                    place.put(module, name, stand_in)
        for module, name, value in settings:
            place.put(module, name, value)
        yield


def _modules() -> list[ModuleType]:
    prefixes = tuple(f"holdfast.{package}." for package in _PACKAGES)
    return [module for name, module in list(sys.modules.items()) if name.startswith(prefixes)]
