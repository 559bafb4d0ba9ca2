"""A worker's line to its driver: one thread listens, any thread asks and waits for the answer."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable

from holdfast.channel import Channel
from holdfast.errors import HoldfastError
from holdfast.wire import (
    Committed,
    Judged,
    Listed,
    Message,
    Met,
    Refused,
    Reported,
    Resend,
    Slotted,
)

log = logging.getLogger(__name__)

_TOPICS: dict[type, str] = {
    Slotted: "report",
    Resend: "report",
    Committed: "report",
    Refused: "report",
    Judged: "verdict",
    Met: "meeting",
    Listed: "list",
}


class DriverGone(HoldfastError):
    """Nobody will answer: the driver has ended the run, or has died."""

    code = "HF221"


class Conversation:
    """What is said between this worker and its driver.

    Args:
        on_news: Called with whatever is not an answer; in the listening thread.
        on_gone: Called when the driver is gone. In a process of its own it ends the process; where
            it returns, everyone who waits gets `DriverGone`.
    """

    def __init__(
        self,
        channel: Channel,
        on_news: Callable[[Message], None],
        on_gone: Callable[[], None],
    ) -> None:
        self._channel, self._on_news, self._on_gone = channel, on_news, on_gone
        self._changed = threading.Condition()
        self._answers: dict[tuple[str, int], deque[Message]] = {}
        self._is_over = False
        self._listener: threading.Thread | None = None
        self._process = os.getpid()

    def listen(self, already: list[Message]) -> None:
        """Take in what the driver says from now on, beginning with what has come already."""
        self._listener = threading.Thread(
            target=self._listen, args=(already,), name="holdfast-listener", daemon=True
        )
        self._listener.start()

    def end(self) -> None:
        """Hang up and return once nobody listens any more; for a process that goes on."""
        self._channel.hang_up()
        if self._listener is not None:
            self._listener.join()
        self._channel.close()

    def begin_anew(self) -> None:
        """Forget all that was answered: another job begins, which counts from the beginning."""
        with self._changed:
            self._answers.clear()

    def say(self, message: Message) -> None:
        """Pass on a message without waiting for anything.

        A process that was forked from this one has the same line; two voices on it would be taken
        for one.
        """
        if os.getpid() != self._process:
            raise RuntimeError(
                "only the worker itself can report, or talk to its driver, and not a process that"
                " it has started, such as one of a data loader"
            )
        self._channel.send(message)
        if not isinstance(message, Reported):  # which come in floods, and may wait for each other
            self._channel.flush()

    def answer(self, topic: str, index: int, timeout_s: float | None = None) -> Message | None:
        """Return the next answer to question `index` on `topic`, None if none came in time."""
        key = topic, index
        self._channel.flush(None)  # else the question may still be here, behind many reports
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or key in self._answers, timeout_s)
            if key in self._answers:
                waiting = self._answers[key]
                found = waiting.popleft()
                if not waiting:
                    del self._answers[key]
                return found
            if self._is_over:
                raise DriverGone("the driver has ended this run")
        return None

    def _listen(self, messages: list[Message]) -> None:
        try:
            while True:
                for message in messages:
                    self._take_in(message)
                messages = self._channel.wait()
                if self._channel.is_closed and not messages:
                    break
            self._on_gone()
        finally:  # also if there is no memory left for a message: nobody may wait for ever
            with self._changed:
                self._is_over = True
                self._changed.notify_all()

    def _take_in(self, message: Message) -> None:
        topic = _TOPICS.get(type(message))
        if topic is None:
            self._on_news(message)
            return
        assert isinstance(message, Slotted | Resend | Committed | Refused | Judged | Met | Listed)
        with self._changed:
            self._answers.setdefault((topic, message.index), deque()).append(message)
            self._changed.notify_all()
