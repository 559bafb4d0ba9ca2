"""What every result says besides what the user reported: counts, times, where it came from."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any


class Filling:
    """Adds to the results of one process of a trial.

    Args:
        told: What the process was told of its trial; `before` is the last result that counts.
        iteration: How many results count already.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        told: Mapping[str, Any] | None = None,
        iteration: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._told, self._clock = told or {}, clock
        before = self._told.get("before", {})
        self.config = dict(config or {})
        self.iteration = iteration
        self._since_restore = 0
        self._last = clock()
        self._total_s = float(before.get("time_total_s") or 0.0)
        self._restored_s = 0.0
        self._totals = {name: before.get(f"{name}_total") for name in ("timesteps", "episodes")}
        self._steps_since_restore = 0
        self._hostname = socket.gethostname()

    def fill(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return a result with all that is known of it; what the user said of it stays."""
        now = self._clock()
        self._since_restore += 1
        self.iteration = int(result.get("training_iteration", self.iteration + 1))
        this_s = float(result.get("time_this_iter_s", now - self._last))
        self._last = now
        self._total_s += this_s
        self._restored_s += this_s
        self._count(result)
        stamp = int(result.get("timestamp", time.time()))
        filled = {
            **result,
            "training_iteration": self.iteration,
            "done": bool(result.get("done", False)),
            "time_this_iter_s": this_s,
            "time_total_s": self._total_s,
            "timestamp": stamp,
            "date": time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(stamp)),
            "pid": os.getpid(),
            "hostname": self._hostname,
            "node_ip": "127.0.0.1",
            "trial_id": self._told.get("trial_id", "default"),
            "time_since_restore": self._restored_s,
            "iterations_since_restore": self._since_restore,
        }
        for name, total in self._totals.items():
            if total is not None:
                filled.setdefault(f"{name}_total", total)
        return filled

    def counters(self) -> dict[str, Any]:
        """Return how far it has come, for `restore`."""
        totals = {f"{name}_total": total for name, total in self._totals.items()}
        return {"iteration": self.iteration, "time_total_s": self._total_s, **totals}

    def restore(self, counters: Mapping[str, Any]) -> None:
        """Count on from where `counters` were told."""
        self.iteration, self._total_s = counters["iteration"], counters["time_total_s"]
        self._totals = {name: counters[f"{name}_total"] for name in self._totals}
        self._since_restore, self._restored_s = 0, 0.0

    def _count(self, result: Mapping[str, Any]) -> None:
        for name, total in self._totals.items():
            added = result.get(f"{name}_this_iter")
            if added is not None:
                self._totals[name] = (total or 0) + added
            elif result.get(f"{name}_total") is not None:
                self._totals[name] = result[f"{name}_total"]
