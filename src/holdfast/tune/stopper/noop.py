"""NoopStopper: never stops anything."""

from __future__ import annotations

from typing import Any

from holdfast.tune.stopper.stopper import Stopper


class NoopStopper(Stopper):
    """Never stops anything."""

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return False
