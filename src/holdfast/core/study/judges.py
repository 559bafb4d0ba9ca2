"""Scheduler, searcher and stopper of a study, called so that what they raise cannot end it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from holdfast.core.metric_history import flattened
from holdfast.core.study.trial import Status, Trial, Verdict
from holdfast.core.study.view import StudyView

log = logging.getLogger(__name__)

T = TypeVar("T")


class Scheduler(Protocol):
    """Judges trials by their results; see `holdfast.tune.schedulers.TrialScheduler`.

    Trials are of the type that the study was given, which may be a subclass of `Trial`.
    """

    def on_trial_add(self, view: Any, trial: Any) -> None: ...
    def on_trial_error(self, view: Any, trial: Any) -> None: ...
    def on_trial_result(self, view: Any, trial: Any, result: dict[str, Any]) -> str: ...
    def on_trial_complete(self, view: Any, trial: Any, result: dict[str, Any]) -> None: ...
    def on_trial_remove(self, view: Any, trial: Any) -> None: ...
    def on_trial_pause(self, view: Any, trial: Any) -> None: ...
    def choose_trial_to_run(self, view: Any) -> Trial | None: ...
    def get_state(self) -> dict[str, Any]: ...
    def set_state(self, state: dict[str, Any]) -> None: ...


class Search(Protocol):
    """Where trials come from; see `holdfast.tune.search`."""

    def recall(self, trial: Trial) -> None:
        """Take in that this trial was proposed before a crash."""
        ...

    def recall_end(self) -> None:
        """Take in that there was nothing more to propose, before a crash."""
        ...

    def on_revive(self, trial_id: str) -> None:
        """Take in that a trial that had failed is tried again."""
        ...

    def on_result(self, trial_id: str, result: dict[str, Any]) -> None: ...
    def on_complete(
        self, trial_id: str, result: dict[str, Any] | None, *, error: bool = False
    ) -> None: ...
    def on_pause(self, trial_id: str) -> None: ...
    def on_unpause(self, trial_id: str) -> None: ...
    def extend(self, num_samples: int) -> None: ...
    def get_state(self) -> dict[str, Any]: ...
    def set_state(self, state: dict[str, Any]) -> None: ...


class Stopper(Protocol):
    """Says when a trial, or the study, has run for long enough."""

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool: ...
    def stop_all(self) -> bool: ...
    def get_state(self) -> dict[str, Any]: ...
    def set_state(self, state: dict[str, Any]) -> None: ...


class Judges:
    """Scheduler, searcher and stopper of a study.

    What one of them raises is logged once, and the study goes on as if it had not been asked.
    """

    def __init__(self, search: Search, scheduler: Scheduler, stopper: Stopper) -> None:
        self.search, self.scheduler, self.stopper = search, scheduler, stopper
        self._logged: set[str] = set()

    def recall(self, trial: Trial) -> None:
        """Let the searcher know what it had proposed before a crash."""
        self._ask("the searcher", lambda: self.search.recall(trial), None)

    def recall_end(self) -> None:
        """Let the searcher know that it had nothing more to propose before a crash."""
        self._ask("the searcher", self.search.recall_end, None)

    def revived(self, view: StudyView[Trial], trial: Trial) -> None:
        """Let searcher and scheduler know that a trial that was over is tried again."""
        self._ask("the searcher", lambda: self.search.on_revive(trial.trial_id), None)
        self.added(view, trial)

    def added(self, view: StudyView[Trial], trial: Trial) -> None:
        """Let the scheduler know of a new trial."""
        self._ask("the scheduler", lambda: self.scheduler.on_trial_add(view, trial), None)

    def judge(self, view: StudyView[Trial], trial: Trial, result: dict[str, Any]) -> Verdict:
        """Return what is to become of a trial that has reported."""
        is_enough = result.get("done") or self._ask(
            "the stopper", lambda: self.stopper(trial.trial_id, result), default=False
        )
        if is_enough:
            self._complete(view, trial, result)
            self._pass_on(trial, result, is_last=True)
            return Verdict.STOP
        answer: object = self._ask(
            "the scheduler", lambda: self.scheduler.on_trial_result(view, trial, result), ""
        )
        # After Ray's NOOP, and whatever else a scheduler may return, the trial goes on.
        verdict = next((each for each in Verdict if each == answer), Verdict.CONTINUE)
        self._pass_on(trial, result, is_last=verdict is Verdict.STOP)
        return verdict

    def look_for(self, metric: str | None, trial: Trial, result: Mapping[str, Any]) -> None:
        """Warn once if a trial does not report the metric that it is judged by."""
        if metric is None or metric in result or "metric" in self._logged:
            return
        reported = flattened({name: value for name, value in result.items() if name != "config"})
        if metric not in reported:
            self._logged.add("metric")
            log.warning(
                "%s reported no %r, the metric it is judged by; it reported: %s",
                trial, metric, ", ".join(reported),
            )  # fmt: skip

    def _pass_on(self, trial: Trial, result: dict[str, Any], *, is_last: bool) -> None:
        if not is_last:
            self._ask("the searcher", lambda: self.search.on_result(trial.trial_id, result), None)
        elif not trial.concluded:
            trial.concluded = True
            self._search_completes(trial, result, error=False)

    def _complete(self, view: StudyView[Trial], trial: Trial, result: dict[str, Any]) -> None:
        self._ask(
            "the scheduler", lambda: self.scheduler.on_trial_complete(view, trial, result), None
        )

    def _search_completes(
        self, trial: Trial, result: dict[str, Any] | None, *, error: bool
    ) -> None:
        self._ask(
            "the searcher",
            lambda: self.search.on_complete(trial.trial_id, result, error=error),
            None,
        )

    def ended(
        self, view: StudyView[Trial], trial: Trial, *, had_process: bool, failed: bool
    ) -> None:
        """Let searcher and scheduler know that a trial is over, unless they know.

        Its last result is marked as done; a trial without results gets one that says only that.
        """
        has_reported = bool(trial.last_result)
        if had_process and not (failed or trial.cut_off):
            last_result = trial.last_result or {"trial_id": trial.trial_id}
            trial.last_result = {**last_result, "done": True}
        if trial.concluded:
            return
        trial.concluded = True
        if failed:
            self._ask("the scheduler", lambda: self.scheduler.on_trial_error(view, trial), None)
        elif had_process:
            self._complete(view, trial, trial.last_result)
        else:
            self._ask("the scheduler", lambda: self.scheduler.on_trial_remove(view, trial), None)
        self._search_completes(trial, trial.last_result if has_reported else None, error=failed)

    def dismissed(self, trial: Trial) -> None:
        """Let the searcher know that the scheduler has ended a trial that did not run."""
        if not trial.concluded:
            trial.concluded = True
            self._search_completes(trial, trial.last_result or None, error=False)

    def paused(self, view: StudyView[Trial], trial: Trial) -> None:
        """Let scheduler and searcher know that a trial waits without a process."""
        self._ask("the scheduler", lambda: self.scheduler.on_trial_pause(view, trial), None)
        self._ask("the searcher", lambda: self.search.on_pause(trial.trial_id), None)

    def unpaused(self, trial: Trial) -> None:
        self._ask("the searcher", lambda: self.search.on_unpause(trial.trial_id), None)

    def choose(self, view: StudyView[Trial]) -> Trial | None:
        """Return the trial that the scheduler wants to run next; if it fails, any that could."""
        asked: tuple[Trial | None] | None = self._ask(
            "the scheduler", lambda: (self.scheduler.choose_trial_to_run(view),), None
        )
        return _first_that_fits(view) if asked is None else asked[0]

    def choose_anyhow(self, view: StudyView[Trial]) -> Trial | None:
        """Return a trial that can run, if none does and the scheduler chooses none.

        Why nothing happens is logged once for each reason.
        """
        chosen, trials, free = _first_that_fits(view), view.get_trials(), view.free_resources()
        if chosen is not None:
            reason = "the scheduler chooses no trial, and none runs: the first that can goes on"
        elif trials:
            needs = _listed(trials[0].resources)
            reason = f"no trial runs: {trials[0]} needs {needs}, and there is {_listed([free])}"
        elif free:
            reason = "no trial runs, and the searcher proposes none: the study waits for it"
        else:
            reason = "no trial runs, and no node is available: the study waits for one"
        if reason not in self._logged:
            self._logged.add(reason)
            log.warning("%s", reason)
        return chosen

    def stop_all(self) -> bool:
        """Whether the study has run for long enough."""
        return self._ask("the stopper", self.stopper.stop_all, default=False)

    def get_state(self) -> dict[str, Any]:
        """Return the state of all three, as plain data."""
        return {
            "search": self.search.get_state(),
            "scheduler": self.scheduler.get_state(),
            "stopper": self.stopper.get_state(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Give each the state that `get_state` returned."""
        self.search.set_state(dict(state["search"]))
        self.scheduler.set_state(dict(state["scheduler"]))
        self.stopper.set_state(dict(state["stopper"]))

    def tell_failure(self, whom: str, error: Exception, then: str) -> None:
        """Log an error once, with what is done about it."""
        if f"{whom}: {error}" not in self._logged:
            self._logged.add(f"{whom}: {error}")
            log.error("%s failed, and %s", whom, then, exc_info=error)

    def _ask(self, whom: str, question: Callable[[], T], default: T) -> T:
        try:
            return question()
        except Exception as error:  # noqa: BLE001  # it may be the user's own code
            self.tell_failure(whom, error, "the study goes on without its answer")
            return default


def as_judged(trial: Trial, result: dict[str, Any]) -> dict[str, Any]:
    """Return the newest result of a trial as observers see it: done, if the trial ends with it."""
    is_last = trial.decision == (trial.step, Verdict.STOP)
    return {**result, "done": True} if is_last else result


def _first_that_fits(view: StudyView[Trial]) -> Trial | None:
    waiting = (
        trial for trial in view.get_trials() if trial.status in (Status.PENDING, Status.PAUSED)
    )
    return next((trial for trial in waiting if view.has_resources_for_trial(trial)), None)


def _listed(bundles: Iterable[Mapping[str, float]]) -> str:
    texts = (", ".join(f"{name}={amount:g}" for name, amount in room.items()) for room in bundles)
    return " and ".join(text or "nothing" for text in texts)
