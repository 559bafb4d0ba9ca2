"""Fields that every result has besides the user's metrics: counts, times, where it came from."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.errors import ConfigError
from holdfast.worker.job import TrialJob

COUNTED = ("timesteps", "episodes")  # users report their increments, or their totals


class ResultFields:
    """Adds fields to the results of one process of a trial.

    Args:
        trial: The trial, None outside one.
        iteration: How many results count already, if the trial's last result does not say it.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        trial: TrialJob | None = None,
        iteration: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._trial_id = "default" if trial is None else trial.trial_id
        self._clock = clock
        self.config = dict(config or {})
        self.iteration = iteration
        self._last = clock()
        self._hostname = socket.gethostname()
        self.restore({} if trial is None else trial.last_result)

    def fill(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return a result with all fields; those that the user reported stay."""
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
            "trial_id": self._trial_id,
            "time_since_restore": self._restored_s,
            "iterations_since_restore": self._since_restore,
        }
        for name, total in self._totals.items():
            if total is not None:
                filled.setdefault(f"{name}_total", total)
        if self._totals["timesteps"] is not None:
            filled["timesteps_since_restore"] = self._steps_since_restore
        if self.config.get("log_sys_usage"):
            filled["perf"] = _usage()
        return filled

    def counters(self) -> dict[str, Any]:
        """Return the counts, for `restore`, by the names that they have in results."""
        totals = {f"{name}_total": total for name, total in self._totals.items()}
        return {"training_iteration": self.iteration, "time_total_s": self._total_s, **totals}

    def restore(self, counters: Mapping[str, Any]) -> None:
        """Count on from a result, or from what `counters` returned; missing counts stay."""
        iteration = counters.get("training_iteration")
        self.iteration = self.iteration if iteration is None else int(iteration)
        self._total_s = float(counters.get("time_total_s") or 0.0)
        self._totals = {name: counters.get(f"{name}_total") for name in COUNTED}
        self._since_restore, self._restored_s, self._steps_since_restore = 0, 0.0, 0

    def _count(self, result: Mapping[str, Any]) -> None:
        for name, total in self._totals.items():
            added = result.get(f"{name}_this_iter")
            if name == "timesteps" and added is not None:
                self._steps_since_restore += added
            if added is not None:
                self._totals[name] = (total or 0) + added
            elif result.get(f"{name}_total") is not None:
                self._totals[name] = result[f"{name}_total"]


def _usage() -> dict[str, float]:
    """Return how busy the machine is, in percent."""
    try:
        import psutil
    except ImportError:
        raise ConfigError(
            "log_sys_usage=True: it is measured by psutil, which is not installed",
            hint="pip install psutil",
        ) from None

    return {
        "cpu_util_percent": psutil.cpu_percent(),
        "ram_util_percent": psutil.virtual_memory().percent,
    }
