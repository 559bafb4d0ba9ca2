"""Keeps the logs of a run within a limit, so that what workers print cannot fill a disk.

The logs of the oldest attempts go first. Those of this attempt and of the one before it stay, which
is the one that people look into; if these alone are too much, they lose their middle.
"""

from __future__ import annotations

import logging
import os
import shutil

from holdfast import settings
from holdfast.clock import Clock
from holdfast.control.host.worker_output import find_logs
from holdfast.engine.log_files import cut_middle, used_bytes
from holdfast.errors import ConfigError

log = logging.getLogger(__name__)

LOOK_EVERY_S = 10.0
BYTES_MAX = 4 << 30
HEAD_BYTES_MAX = 1 << 20  # what a script prints at first: its settings, versions, sizes


def bytes_allowed() -> int | None:
    """Return how much the logs of a run may take, None for any amount."""
    said = settings.log_bytes()
    if said is None:
        return BYTES_MAX
    if not said.isdecimal():
        raise ConfigError(
            f"HOLDFAST_LOG_BYTES={said!r} in the environment: it is a whole number of bytes",
            hint=f"unset it for {BYTES_MAX}, or set it to 0 for no limit",
        )
    return int(said) or None


class LogRoom:
    """The room that the logs below a folder may take, which it never fails for."""

    def __init__(self, folder: str, bytes_max: int | None, clock: Clock) -> None:
        self._folder, self._bytes_max, self._clock = folder, bytes_max, clock
        self._looks_at = 0.0
        self._is_given_up = bytes_max is None

    def look(self, attempt: int) -> None:
        """Make room if it is time to look and there is too much; `attempt` is the one that runs."""
        if self._is_given_up or self._clock.monotonic() < self._looks_at:
            return
        self._looks_at = self._clock.monotonic() + LOOK_EVERY_S
        try:
            self._make_room(attempt)
        except OSError as error:
            self._give_up(str(error))

    def _make_room(self, attempt: int) -> None:
        assert self._bytes_max is not None
        found = find_logs(self._folder)
        sizes = {path: used_bytes(path) for logs in found.values() for path in logs.values()}
        surplus = sum(sizes.values()) - self._bytes_max
        for old in [one for one in found if one < attempt - 1]:
            if surplus <= 0:
                return
            surplus -= sum(sizes.pop(path) for path in found[old].values())
            shutil.rmtree(os.path.join(self._folder, f"attempt-{old}"), ignore_errors=True)
            log.warning("the logs of attempt %d were removed: logs take too much room", old)
        if surplus <= 0 or not sizes:
            return
        share = self._bytes_max // len(sizes)
        large = [path for path, size in sizes.items() if size > share]
        head_bytes = min(HEAD_BYTES_MAX, share // 8)
        cut = [path for path in large if cut_middle(path, head_bytes, share // 2)]
        if not cut:
            self._give_up("this disk cannot cut them")
        for path in cut:
            log.warning("%s has lost its middle: logs take too much room", path)

    def _give_up(self, why: str) -> None:
        self._is_given_up = True
        log.warning("the logs in %s may take more room than they should: %s", self._folder, why)
