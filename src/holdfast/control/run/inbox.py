"""What a driver is told from outside while it drives: by signals, by clouds, by who called it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from holdfast.control.host.preemption import Notice
from holdfast.core.run.machine import Ending


class News:
    """What was said and not taken in yet; any thread or signal handler may add to it."""

    def __init__(self) -> None:
        self._waiting: deque[Notice | Ending] = deque()
        self._sources: list[Callable[[], Iterable[Notice | Ending]]] = []

    def listen_to(self, source: Callable[[], Iterable[Notice | Ending]]) -> None:
        """Ask `source` as well whenever news are taken."""
        self._sources.append(source)

    def add(self, news: Notice | Ending) -> None:
        """Have something be taken in."""
        self._waiting.append(news)

    def take(self) -> Iterator[Notice | Ending]:
        """Yield what there is, in order, each thing once."""
        for source in self._sources:
            self._waiting.extend(source())
        while self._waiting:
            yield self._waiting.popleft()

    def ending(self) -> Ending | None:
        """Return how a driver is to end that has nothing left to save, None if it may go on."""
        for news in self.take():
            if not isinstance(news, Notice):
                return news
            if news.nodes is None:
                return Ending.PREEMPTED
        return None
