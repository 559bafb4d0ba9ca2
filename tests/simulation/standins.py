"""What the code under test finds in the place of Python's own modules, while a run is played.

Code that says `threading.Thread(...)` gets an actor where it is itself played by one, and a real
thread anywhere else; so with everything here. `installed` puts the stand-ins where such code looks
for the real modules, and takes them away again.
"""

from __future__ import annotations

import contextlib
import queue
import random
import secrets
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType, TracebackType
from typing import Any, Self

from tests.simulation.stage import stage_here
from tests.simulation.threads import (
    SimCondition,
    SimEvent,
    SimLock,
    SimQueue,
    SimThread,
)

_PACKAGES = ("worker", "control", "journal", "storage", "checkpoint")


class _Threading(ModuleType):
    """`threading`, whose threads are actors."""

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)

    def Lock(self) -> Any:  # noqa: N802
        stage = stage_here()
        return threading.Lock() if stage is None else SimLock(stage)

    def RLock(self) -> Any:  # noqa: N802
        stage = stage_here()
        return threading.RLock() if stage is None else SimLock(stage, again=True)

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
    """`queue`, whose queues are waited for by actors."""

    def __getattr__(self, name: str) -> Any:
        return getattr(queue, name)

    def Queue(self, maxsize: int = 0) -> Any:  # noqa: N802
        stage = stage_here()
        return queue.Queue(maxsize) if stage is None else SimQueue(stage, maxsize)


class _Shutil(ModuleType):
    """`shutil`, which does nothing for a process that was killed, though its code unwinds."""

    def __getattr__(self, name: str) -> Any:
        stage = stage_here()
        if stage is not None:
            stage.check()
        return getattr(shutil, name)


class _Secrets(ModuleType):
    """`secrets` that are no secrets: names that sort alike whenever a run is played."""

    def __init__(self, seed: int) -> None:
        super().__init__("secrets")
        self._dice = random.Random(f"holdfast names {seed}")

    def __getattr__(self, name: str) -> Any:
        return getattr(secrets, name)

    def token_hex(self, size: int) -> str:
        return self._dice.randbytes(size).hex() if stage_here() else secrets.token_hex(size)


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
    seed: int, replaced: Mapping[Any, Any], settings: Iterable[tuple[ModuleType, str, object]]
) -> Iterator[None]:
    """Have the code under test use the stand-ins, and those for other things in `replaced`.

    `replaced` goes from an object that modules hold under its own name to what they shall have;
    `settings` are names in modules, and what they are to mean.
    """
    everything = {
        threading: _Threading("threading"),
        queue: _Queues("queue"),
        shutil: _Shutil("shutil"),
        secrets: _Secrets(seed),
        **replaced,
    }
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
