"""A worker's connection to its driver: one thread listens, any thread asks and awaits an answer."""

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
    """No answer will come: the driver has ended the run, or has died."""

    code = "HF221"


class Conversation:
    """Messages between this worker and its driver.

    Args:
        on_news: Called with each message that is not an answer; in the listening thread.
        on_gone: Called when the driver is gone. In a process of its own it ends the process; if it
            returns, every thread that waits gets `DriverGone`.
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
        """Start the listening thread; it first handles messages that have arrived `already`."""
        self._listener = threading.Thread(
            target=self._listen, args=(already,), name="holdfast-listener", daemon=True
        )
        self._listener.start()

    def end(self) -> None:
        """Hang up and return once the listening thread has ended; for a process that lives on."""
        self._channel.hang_up()
        if self._listener is not None:
            self._listener.join()
        self._channel.close()

    def begin_anew(self) -> None:
        """Drop all answers: another job begins, which numbers its questions from the start."""
        with self._changed:
            self._answers.clear()

    def say(self, message: Message) -> None:
        """Send a message without waiting.

        Only in this process: a fork of it shares the connection, and the driver could not tell the
        two apart.
        """
        if os.getpid() != self._process:
            raise RuntimeError(
                "only the worker itself can report, or talk to its driver, and not a process that"
                " it has started, such as one of a data loader"
            )
        self._channel.send(message)
        if not isinstance(message, Reported):  # these are many, and are sent in batches
            self._channel.flush()

    def answer(self, topic: str, index: int, timeout_s: float | None = None) -> Message | None:
        """Return the next answer to question `index` on `topic`, None if none came in time."""
        key = topic, index
        self._channel.flush(None)  # or the question may still wait behind many reports
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or key in self._answers, timeout_s)
            if key in self._answers:
                answers = self._answers[key]
                answer = answers.popleft()
                if not answers:
                    del self._answers[key]
                return answer
            if self._is_over:
                raise DriverGone("the driver has ended this run")
        return None

    def _listen(self, messages: list[Message]) -> None:
        try:
            while True:
                for message in messages:
                    self._handle(message)
                messages = self._channel.wait()
                if self._channel.is_closed and not messages:
                    break
            self._on_gone()
        finally:  # even if memory runs out: no thread may wait for ever
            with self._changed:
                self._is_over = True
                self._changed.notify_all()

    def _handle(self, message: Message) -> None:
        topic = _TOPICS.get(type(message))
        if topic is None:
            self._on_news(message)
            return
        assert isinstance(message, Slotted | Resend | Committed | Refused | Judged | Met | Listed)
        with self._changed:
            self._answers.setdefault((topic, message.index), deque()).append(message)
            self._changed.notify_all()
