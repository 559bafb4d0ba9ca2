"""Limits the disk space that the logs of a run take.

The logs of the oldest attempts are removed first. Those of this attempt and the one before stay,
because people look into these; if they alone are too large, they lose their middle.
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
HEAD_BYTES_MAX = 1 << 20  # the start of a log has the script's settings, versions, sizes


def bytes_allowed() -> int | None:
    """Return how much space the logs of a run may take, None for no limit."""
    limit = settings.log_bytes()
    if limit is None:
        return BYTES_MAX
    if not limit.isdecimal():
        raise ConfigError(
            f"HOLDFAST_LOG_BYTES={limit!r} in the environment: must be a whole number of bytes",
            hint=f"unset it for {BYTES_MAX}, or set it to 0 for no limit",
        )
    return int(limit) or None


class LogRoom:
    """Keeps the logs below a folder within a limit; an error is logged, never raised."""

    def __init__(self, folder: str, bytes_max: int | None, clock: Clock) -> None:
        self._folder, self._bytes_max, self._clock = folder, bytes_max, clock
        self._looks_at = 0.0
        self._is_given_up = bytes_max is None

    def look(self, attempt: int) -> None:
        """Make room, every `LOOK_EVERY_S` and if needed; `attempt` is the one that runs."""
        if self._is_given_up or self._clock.monotonic() < self._looks_at:
            return
        self._looks_at = self._clock.monotonic() + LOOK_EVERY_S
        try:
            self._make_room(attempt)
        except OSError as error:
            self._give_up(str(error))

    def _make_room(self, attempt: int) -> None:
        assert self._bytes_max is not None
        by_attempt = find_logs(self._folder)
        sizes = {path: used_bytes(path) for logs in by_attempt.values() for path in logs.values()}
        surplus = sum(sizes.values()) - self._bytes_max
        for old in [number for number in by_attempt if number < attempt - 1]:
            if surplus <= 0:
                return
            surplus -= sum(sizes.pop(path) for path in by_attempt[old].values())
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
