"""Trials to be shown."""

from __future__ import annotations

from typing import Any

from holdfast.core.study.trial import Status
from holdfast.tune.trial import Trial


def trial(number: int, status: Status = Status.RUNNING, **more: Any) -> Trial:
    last = {
        "training_iteration": number + 1,
        "time_total_s": 1.5,
        "loss": 1 / (number + 1),
        "node_ip": "10.0.0.7",
        "pid": 100 + number,
        "done": False,
    }
    defaults = {
        "evaluated_params": {"lr": number / 10, "net/depth": number},
        "config": {"lr": number / 10, "net": {"depth": number}, "fixed": "yes"},
        "last_result": last,
        **more,
    }
    return Trial(f"t{number:03d}", number=number, status=status, **defaults)


def several(**counts: int) -> list[Trial]:
    statuses = [Status(name) for name, count in counts.items() for _ in range(count)]
    return [trial(number, status) for number, status in enumerate(statuses)]
