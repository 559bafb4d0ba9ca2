"""Tracks whether storage answers, and logs when it stops and starts again.

Before a run has begun, a call may not take long: there is a warning soon and an error after a
limit, whatever the backend does meanwhile. During a run, a call is repeated until it is answered:
one warning at the beginning says what is at stake, another one says that it is over.
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

WARN_AFTER_S = 2.0  # shorter outages are not worth a warning
WARNINGS_APART_S = 60.0
FRESH_S = 60.0  # how long an answer counts as a sign that storage is reachable

_process_is_in_run = False


def never_give_up() -> None:
    """Treat this process as part of a run, as workers are: all its calls are repeated for ever."""
    global _process_is_in_run  # noqa: PLW0603  # a property of the process
    _process_is_in_run = True


def timeout_hint(limit_s: float) -> str:
    """Return what to try when there was no answer for `limit_s`."""
    longer_s = max(60.0, 4 * limit_s)
    return (
        "check the endpoint and the network;"
        f" set HOLDFAST_STORAGE_TIMEOUT_S={longer_s:.0f} to wait longer"
    )


class Contact:
    """The state of one storage location, shared by all stores derived from one another."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: set[object] = set()  # calls that have failed and are repeated
        self._since = 0.0  # when the first of them failed
        self._has_warned = False
        self._warned_at = self._answered_at = float("-inf")
        self._at_stake: Callable[[], str] | None = None
        self._is_in_run = False
        self._leaving_s = float("inf")

    @property
    def is_in_run(self) -> bool:
        """Whether a run has begun, so that calls are repeated for ever."""
        return self._is_in_run or _process_is_in_run

    def begin_run(self, at_stake: Callable[[], str] | None = None) -> None:
        """Repeat calls for ever; `at_stake` returns, for the log, what waits and may be lost."""
        self._is_in_run, self._at_stake, self._leaving_s = True, at_stake, float("inf")

    def end_run(self, limit_s: float = float("inf")) -> None:
        """Use the limit from before the run, or `limit_s`; safe in any thread or signal handler."""
        self._leaving_s = min(self._leaving_s, limit_s)
        self._is_in_run = False

    def limit_s(self, start_s: float | None) -> float | None:
        """Return how long an answer may take; None during a run, or if `start_s` is None."""
        if start_s is None or self.is_in_run:
            return None
        return min(start_s, self._leaving_s)

    def has_just_answered(self) -> bool:
        """Whether there was any answer within the last `FRESH_S`."""
        return self._clock.monotonic() - self._answered_at < FRESH_S

    # ------------------------------------------------------------------ warnings

    def failed(
        self, call: object, error: StoreBusy, waited_s: float, limit_s: float | None
    ) -> None:
        """Note that a call has failed and will be repeated `waited_s` after its start.

        The warning names the limit if there is one, otherwise what is at stake.
        """
        now = self._clock.monotonic()
        with self._lock:
            if not self._waiting:
                self._since = now
            self._waiting.add(call)
            is_time = waited_s >= WARN_AFTER_S and now - self._warned_at >= WARNINGS_APART_S
            if self._has_warned or not is_time:
                return
            self._has_warned, self._warned_at = True, now
        self._warn(error.message, limit_s)

    def settled(self, call: object) -> None:
        """Note that a call was answered."""
        now = self._clock.monotonic()
        self._answered_at = now
        with self._lock:
            self._waiting.discard(call)
            is_over = self._has_warned and not self._waiting
            if is_over:
                self._has_warned = False
            lasted_s = now - self._since
        if is_over:
            log.warning("storage answers again, after %.0f s", lasted_s)

    def gave_up(self, call: object) -> None:
        """Note that a call is not repeated any more; its caller gets an error."""
        with self._lock:
            self._waiting.discard(call)
            if not self._waiting:
                self._has_warned = False

    def _warn(self, reason: str, limit_s: float | None) -> None:
        if limit_s is not None:
            log.warning("storage does not answer: %s; retrying for %.3g s", reason, limit_s)
            return
        stake = "" if self._at_stake is None else f"{self._at_stake()}; "
        log.warning("storage does not answer: %s; %sretrying until it does", reason, stake)

    # ------------------------------------------------------------------ limits

    def answer_within(self, limit_s: float, where: str, work: Callable[[], T]) -> T:
        """Return the result of `work`, or raise `StoreBusy` after `limit_s`.

        `work` runs in a thread, because a backend may wait much longer and cannot be cancelled. An
        abandoned thread ends with the process at the latest.
        """
        done = threading.Event()
        results: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(work())
            except BaseException as error:  # noqa: BLE001  # raised below
                errors.append(error)
            finally:
                done.set()

        thread = threading.Thread(target=run, name="holdfast-first-answer", daemon=True)
        thread.start()
        warn_after_s = min(WARN_AFTER_S, limit_s / 2)
        if not done.wait(warn_after_s):
            silent = StoreBusy(f"no answer from {where} yet")
            self.failed(done, silent, WARN_AFTER_S, limit_s)
            if not done.wait(limit_s - warn_after_s):
                self.gave_up(done)
                raise StoreBusy(
                    f"{where} does not answer (waited for {limit_s:.3g} s)",
                    hint=timeout_hint(limit_s),
                )
            self.gave_up(done) if errors else self.settled(done)
        if errors:
            raise errors[0]
        return results[0]
