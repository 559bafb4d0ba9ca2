"""Somebody who takes part in a study without a say in it, for those who only read its journal."""

from __future__ import annotations

from typing import Any


class Onlooker:
    """Stands in for scheduler, searcher and stopper: knows nothing and wants nothing."""

    trials_ahead = 0

    def on_trial_result(self, *_: Any) -> str:
        return "CONTINUE"

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        del trial_id, result
        return False

    def stop_all(self) -> bool:
        return False

    def choose_trial_to_run(self, *_: Any) -> None:
        return None

    def get_state(self) -> dict[str, Any]:
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *_, **__: None
