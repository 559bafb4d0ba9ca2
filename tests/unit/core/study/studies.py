"""Studies for tests of their machine, and what happens in them, a word each."""

from __future__ import annotations

from typing import Any

from holdfast.core.run.outcomes import Died, Finished
from holdfast.core.study.events import (
    StudyOpened,
    TrialAdded,
    TrialCheckpointChanged,
    TrialExited,
    TrialReported,
    TrialStarted,
)
from holdfast.core.study.judges import Judges
from holdfast.core.study.machine import Study
from holdfast.core.study.rules import Rules
from holdfast.core.study.trial import Trial


class Judge:
    """Scheduler, searcher and stopper in one: decides as it was told, and notes every call."""

    trials_ahead = 0

    def __init__(self, verdicts: dict[int, str] | None = None) -> None:
        self.verdicts = verdicts or {}
        self.heard: list[tuple[Any, ...]] = []
        self.on_judging: Any = None

    def on_trial_result(self, view: Any, trial: Trial, result: dict[str, Any]) -> str:
        step = result["training_iteration"]
        self.heard.append(("judged", trial.trial_id, step))
        if self.on_judging is not None:
            self.on_judging(view, trial)
        return self.verdicts.get(step, "CONTINUE")

    def choose_trial_to_run(self, view: Any) -> Trial | None:
        waiting = [one for one in view.get_trials() if one.status in ("PENDING", "PAUSED")]
        return next((one for one in waiting if view.has_resources_for_trial(one)), None)

    def on_trial_complete(self, view: Any, trial: Trial, result: dict[str, Any]) -> None:
        self.heard.append(("complete", trial.trial_id))

    def on_trial_error(self, view: Any, trial: Trial) -> None:
        self.heard.append(("error", trial.trial_id))

    def on_trial_remove(self, view: Any, trial: Trial) -> None:
        self.heard.append(("removed", trial.trial_id))

    def on_complete(
        self, trial_id: str, result: dict[str, Any] | None, *, error: bool = False
    ) -> None:
        self.heard.append(("search complete", trial_id, error))

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return False

    def get_state(self) -> dict[str, Any]:
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


def study_of(judge: Judge, *, trials: int = 1, room: float = 2.0, **rules: Any) -> Study:
    study = Study(Judges(judge, judge, judge), Rules(**rules))
    study.take(StudyOpened(rooms={"node": {"CPU": room}}))
    for number in range(trials):
        add(study, number)
    return study


def add(study: Study, number: int) -> None:
    study.take(added(f"t{number}", number))


def added(trial_id: str, number: int = 0, **more: Any) -> TrialAdded:
    usual: dict[str, Any] = {"config": {}, "params": {}, "tag": "", "folder": trial_id}
    usual |= {"trainable": "f", "resources": [{"CPU": 1.0}]}
    return TrialAdded(**{"trial_id": trial_id, "number": number, **usual, **more})


def start(study: Study, trial_id: str = "t0", after: int = 0) -> Trial:
    trial = study.trials[trial_id]
    attempt = trial.run.attempts + (0 if sum(trial.run.losses.values()) else 1)
    study.take(TrialStarted(trial_id, attempt, ["node"], after, time=1.0))
    return trial


def report(study: Study, step: int, trial_id: str = "t0", **metrics: Any) -> None:
    attempt = study.trials[trial_id].run.attempts
    result = {"training_iteration": step, **metrics}
    study.take(TrialReported(trial_id, attempt, step, result))


def leave(study: Study, ended: Any, trial_id: str = "t0", how: str = "") -> None:
    attempt = study.trials[trial_id].run.attempts
    study.take(TrialExited(trial_id, attempt, how, ended))


def save(
    study: Study,
    step: int,
    trial_id: str = "t0",
    attempt: int = 1,
    metrics: dict[str, Any] | None = None,
) -> None:
    number = study.trials[trial_id].checkpoints.next_number
    facts = {"number": number, "directory": f"checkpoint_{number:06d}", "epoch": 1}
    more = {
        "attempt": attempt,
        "step": step,
        "metrics": metrics or {},
        "created": 0.0,
        "problems": [],
        "pins": [],
    }
    study.take(TrialCheckpointChanged(trial_id, "checkpoint_committed", {**facts, **more}))


KILLED = Died(0, "node", 1, signal=9)
DONE = Finished(0, "node")
