"""The inbox of a driver: requests to stop and notices of preemption, from signals and clouds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from holdfast.control.host.preemption import Notice
from holdfast.core.run.machine import Ending


class Inbox:
    """Messages that wait for the driver; any thread or signal handler may add one."""

    def __init__(self) -> None:
        self._waiting: deque[Notice | Ending] = deque()
        self._sources: list[Callable[[], Iterable[Notice | Ending]]] = []

    def listen_to(self, source: Callable[[], Iterable[Notice | Ending]]) -> None:
        """Ask `source` for messages as well, with every `take`."""
        self._sources.append(source)

    def add(self, message: Notice | Ending) -> None:
        """Add a message."""
        self._waiting.append(message)

    def take(self) -> Iterator[Notice | Ending]:
        """Yield and remove the messages, in order."""
        for source in self._sources:
            self._waiting.extend(source())
        while self._waiting:
            yield self._waiting.popleft()

    def ending(self) -> Ending | None:
        """Take messages until one ends a driver without workers; None if none does."""
        for message in self.take():
            if not isinstance(message, Notice):
                return message
            if message.nodes is None:
                return Ending.PREEMPTED
        return None
