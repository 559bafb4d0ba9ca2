"""ConcurrencyLimiter: limits how many trials of a searcher run at once."""

from __future__ import annotations

from typing import Any

from holdfast.api.checks import is_whole
from holdfast.errors import ConfigError
from holdfast.tune.search.searcher import Searcher
from holdfast.tune.search.searcher_state import from_data, to_data
from holdfast.tune.search.wrapping import Wrapper


class ConcurrencyLimiter(Wrapper):
    """Limits how many trials of a searcher run at once.

    Args:
        searcher: The searcher to limit.
        max_concurrent: How many of its trials may run at once.
        batch: Report ended trials to the searcher only when the whole batch has ended.
    """

    def __init__(
        self,
        searcher: Searcher,
        max_concurrent: int,
        batch: bool = False,  # noqa: FBT001, FBT002  as in Ray
    ) -> None:
        super().__init__(searcher)
        if not is_whole(max_concurrent) or max_concurrent < 1:
            raise ConfigError(
                f"max_concurrent={max_concurrent!r}: not a whole number above 0",
                hint="leave out ConcurrencyLimiter for no limit",
            )
        self.max_concurrent = int(max_concurrent)
        self.batch = bool(batch)
        self.live_trials: list[str] = []
        self._ended: dict[str, tuple[dict[str, Any] | None, bool]] = {}
        self._searcher_limits_itself = searcher.set_max_concurrency(self.max_concurrent)

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Keep the limit that it was made with."""
        return False

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        is_full = len(self.live_trials) + len(self._ended) >= self.max_concurrent
        if is_full and not self._searcher_limits_itself:
            return None
        suggestion = self.searcher.suggest(trial_id)
        if isinstance(suggestion, dict):
            self.live_trials.append(trial_id)
        return suggestion

    def recall(self, trial_id: str, config: dict[str, Any]) -> None:
        self.searcher.recall(trial_id, config)
        self._add(trial_id)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.searcher.on_trial_result(trial_id, result)

    def on_trial_complete(
        self,
        trial_id: str,
        result: dict[str, Any] | None = None,
        error: bool = False,  # noqa: FBT001, FBT002  as in Ray
    ) -> None:
        was_live = trial_id in self.live_trials
        if was_live:
            self.live_trials.remove(trial_id)
        if not was_live or not self.batch:
            self.searcher.on_trial_complete(trial_id, result=result, error=error)
            return
        self._ended[trial_id] = (result, error)
        if not self.live_trials:
            self._release()

    def on_pause(self, trial_id: str) -> None:
        self.searcher.on_pause(trial_id)

    def on_unpause(self, trial_id: str) -> None:
        self.searcher.on_unpause(trial_id)

    def on_revive(self, trial_id: str) -> None:
        self._ended.pop(trial_id, None)
        self._add(trial_id)
        self.searcher.on_revive(trial_id)

    def own_state(self) -> dict[str, Any]:
        ended = [[trial_id, *ending] for trial_id, ending in self._ended.items()]
        return {"live": list(self.live_trials), "ended": to_data(ended, "results")}

    def set_own_state(self, state: dict[str, Any]) -> None:
        self.live_trials = list(state["live"])
        ended = from_data(state["ended"])
        self._ended = {trial_id: (result, error) for trial_id, result, error in ended}

    def _add(self, trial_id: str) -> None:
        if trial_id not in self.live_trials:
            self.live_trials.append(trial_id)

    def _release(self) -> None:
        ended, self._ended = self._ended, {}
        for trial_id, (result, error) in ended.items():
            self.searcher.on_trial_complete(trial_id, result=result, error=error)
