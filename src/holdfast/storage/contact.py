"""Whether a place of storage answers, and what people are told while it does not.

Before a run has begun there, nobody waits long: one line soon, an error after a limit, whatever the
backend does meanwhile. In the middle of a run a call is repeated until there is an answer: one line
when that begins, which says what is at stake, and one when it is over.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from holdfast.clock import Clock
from holdfast.errors import StoreBusy

log = logging.getLogger(__name__)

T = TypeVar("T")

SAID_AFTER_S = 2.0  # what passes sooner is not worth a line
LINES_APART_S = 60.0  # from one beginning to the next that is told
FRESH_S = 60.0  # for so long an answer shows that somebody is there

_process_is_in_run = False


def never_give_up() -> None:
    """Take this process for a part of a run, as a worker is: whatever it asks for can wait."""
    global _process_is_in_run  # noqa: PLW0603  # of a process that is nothing else
    _process_is_in_run = True


def longer(limit_s: float) -> str:
    """Return what to try where nobody has answered for `limit_s`."""
    more_s = max(60.0, 4 * limit_s)
    return (
        "check the endpoint and the network;"
        f" HOLDFAST_STORAGE_TIMEOUT_S={more_s:.0f} has it tried for longer"
    )


class Contact:
    """The state of one place, shared by all stores of it that have come from one another."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: set[object] = set()  # calls that have failed, and are repeated
        self._since = 0.0  # when the first of them failed
        self._is_said = False
        self._said_at = self._answered_at = float("-inf")
        self._at_stake: Callable[[], str] | None = None
        self._is_in_run = False
        self._leaving_s = float("inf")

    @property
    def is_in_run(self) -> bool:
        """Whether a run has begun here, so that nobody gives up."""
        return self._is_in_run or _process_is_in_run

    def begin_run(self, at_stake: Callable[[], str] | None = None) -> None:
        """Give up no more; `at_stake` returns in words what waits, and what may be lost."""
        self._is_in_run, self._at_stake, self._leaving_s = True, at_stake, float("inf")

    def end_run(self, limit_s: float = float("inf")) -> None:
        """Give up as soon as before the run, or sooner; from any thread or signal handler."""
        self._leaving_s = min(self._leaving_s, limit_s)
        self._is_in_run = False

    def limit_s(self, start_s: float | None) -> float | None:
        """Return how long an answer may take outside a run, None in one or if that is all alike."""
        if start_s is None or self.is_in_run:
            return None
        return min(start_s, self._leaving_s)

    def has_just_answered(self) -> bool:
        """Whether there was an answer a short while ago, whatever it was."""
        return self._clock.monotonic() - self._answered_at < FRESH_S

    # ------------------------------------------------------------------ what is told

    def failed(
        self, call: object, error: StoreBusy, waited_s: float, limit_s: float | None
    ) -> None:
        """Take in that a call has failed and will be repeated; `waited_s` is when, from its start.

        With a limit, what is told is that, else what is at stake.
        """
        now = self._clock.monotonic()
        with self._lock:
            if not self._waiting:
                self._since = now
            self._waiting.add(call)
            is_time = waited_s >= SAID_AFTER_S and now - self._said_at >= LINES_APART_S
            if self._is_said or not is_time:
                return
            self._is_said, self._said_at = True, now
        self._say(error.message, limit_s)

    def settled(self, call: object) -> None:
        """Take in that there was an answer, also to a call that had failed before."""
        now = self._clock.monotonic()
        self._answered_at = now
        with self._lock:
            self._waiting.discard(call)
            is_over = self._is_said and not self._waiting
            if is_over:
                self._is_said = False
            lasted_s = now - self._since
        if is_over:
            log.warning("storage answers again, after %.0f s", lasted_s)

    def gave_up(self, call: object) -> None:
        """Take in that a call is not repeated any more; whoever made it is told by an error."""
        with self._lock:
            self._waiting.discard(call)
            if not self._waiting:
                self._is_said = False

    def _say(self, why: str, limit_s: float | None) -> None:
        if limit_s is not None:
            log.warning("storage does not answer: %s; it is tried for %.3g s", why, limit_s)
            return
        stake = "" if self._at_stake is None else f"{self._at_stake()}; "
        log.warning("storage does not answer: %s; %sit is tried until it does", why, stake)

    # ------------------------------------------------------------------ without patience

    def answer_within(self, limit_s: float, where: str, work: Callable[[], T]) -> T:
        """Return what `work` does, or raise `StoreBusy` after `limit_s`, whatever it waits for.

        It is done in a thread, because a backend that hears nothing may wait much longer, and
        cannot be called off. A thread that is given up ends with the process at the latest.
        """
        done = threading.Event()
        results: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(work())
            except BaseException as error:  # noqa: BLE001  # it is raised below
                errors.append(error)
            finally:
                done.set()

        thread = threading.Thread(target=run, name="holdfast-first-answer", daemon=True)
        thread.start()
        said_after_s = min(SAID_AFTER_S, limit_s / 2)
        if not done.wait(said_after_s):
            silent = StoreBusy(f"nothing was heard from {where} yet")
            self.failed(done, silent, SAID_AFTER_S, limit_s)
            if not done.wait(limit_s - said_after_s):
                self.gave_up(done)
                raise StoreBusy(
                    f"{where} does not answer (waited for {limit_s:.3g} s)", hint=longer(limit_s)
                )
            self.gave_up(done) if errors else self.settled(done)
        if errors:
            raise errors[0]
        return results[0]
