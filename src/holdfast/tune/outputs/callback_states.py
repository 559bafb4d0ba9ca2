"""Stores the states of a study's callbacks, so that a driver that goes on gives them back.

    .holdfast/callbacks.json     one sealed line: each state, with the class and place of its owner

They are written every second or so while the study runs, whenever the journal drops events, and at
the end. A driver that is killed loses what its callbacks did since the last time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypedDict

from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.control.record.open_run import QUARANTINE
from holdfast.control.study.plan import StudyObserver
from holdfast.errors import Damaged, FormatTooNew, ObjectMissing
from holdfast.storage.base import Store
from holdfast.storage.locate import closed_to_others
from holdfast.storage.records import fit, known_format, seal, unseal
from holdfast.tune.callback import CallbackList

log = logging.getLogger(__name__)

FORMAT = 1
KEY = ".holdfast/callbacks.json"
WRITE_EVERY_S = 1.0
SHARE = 0.05  # of the time goes to writing, at most; large states are written less often


class _State(TypedDict):
    place: int
    name: str
    state: dict[str, Any]


class _Record(TypedDict):
    callbacks: list[_State]


class CallbackStates(StudyObserver):
    """Writes the states of callbacks as the study goes on; nothing, if no callback has one.

    Args:
        fence: Raises if another driver has taken over.
    """

    def __init__(
        self,
        callbacks: CallbackList,
        store: Store,
        fence: Callable[[], None] = lambda: None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._callbacks, self._store, self._fence, self._clock = callbacks, store, fence, clock
        self._written: bytes | None = None
        self._writes_at = clock.monotonic() + WRITE_EVERY_S

    def restore(self) -> None:
        """Give callbacks the states that an earlier driver stored, if it stored any.

        Damaged states are kept for inspection. Raises `FormatTooNew` if a newer version wrote them.
        """
        try:
            line = self._store.get(KEY).data
        except ObjectMissing:
            return
        try:
            record = unseal(line.removesuffix(b"\n"))
            if known_format(record) > FORMAT:
                raise FormatTooNew(
                    f"{self._store.url}/{KEY} has format {record['format']}, this version reads up"
                    f" to {FORMAT}",
                    hint="use the version of Holdfast that wrote it, or a newer one",
                )
            states = fit(record, _Record)
        except Damaged as error:
            kept_as = f"{QUARANTINE}/callbacks.json"
            closed_to_others(self._store).put(kept_as, line)
            log.warning("%s/%s: callbacks begin without their states, which are kept in %s: %s",
                        self._store.url, KEY, kept_as, error.message)  # fmt: skip
            return
        self._callbacks.set_state(states)
        self._written = line

    def turned(self, *, is_over: bool) -> None:
        began = self._clock.monotonic()
        if is_over or began >= self._writes_at:
            try:
                self.flush()
            finally:
                now = self._clock.monotonic()
                self._writes_at = now + max(WRITE_EVERY_S, (now - began) / SHARE)

    def settle(self) -> Callable[[], bool]:
        is_done = self.flush()
        return lambda: is_done

    def flush(self) -> bool:
        state = self._callbacks.get_state()
        if state is None:
            return True
        line = seal({"format": FORMAT, **state}) + b"\n"
        if line != self._written:
            self._fence()
            closed_to_others(self._store).put(KEY, line)
            self._written = line
        return True
