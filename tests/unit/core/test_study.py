"""The machine of a study: what follows from what happened, step by step."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.core.budget import Budget
from holdfast.core.judges import Judges
from holdfast.core.outcomes import Died, Evicted, Finished, to_data
from holdfast.core.study import Study
from holdfast.core.study_rules import Rules
from holdfast.core.trial import Status, Trial


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
    opened: dict[str, Any] = {"rooms": {"node": {"CPU": room}}, "resume_unfinished": True}
    study.take("study_opened", {**opened, "again": []})
    for number in range(trials):
        add(study, number)
    return study


def add(study: Study, number: int) -> None:
    made = {"trial_id": f"t{number}", "number": number, "config": {}, "folder": f"t{number}"}
    more = {"trainable": "f", "params": {}, "tag": "", "resources": [{"CPU": 1.0}]}
    study.take("trial_added", {**made, **more})


def start(study: Study, trial_id: str = "t0", after: int = 0) -> Trial:
    trial = study.trials[trial_id]
    attempt = trial.run.attempts + (0 if trial.num_failures else 1)
    started = {"id": trial_id, "attempt": attempt, "places": ["node"], "after_step": after}
    study.take("trial_started", {**started, "time": 1.0})
    return trial


def report(study: Study, step: int, trial_id: str = "t0", **metrics: Any) -> None:
    attempt = study.trials[trial_id].run.attempts
    result = {"training_iteration": step, **metrics}
    happened = {"id": trial_id, "attempt": attempt, "step": step, "result": result}
    study.take("trial_result", happened)


def leave(study: Study, ended: Any, trial_id: str = "t0", how: str = "") -> None:
    attempt = study.trials[trial_id].run.attempts
    happened = {"id": trial_id, "attempt": attempt, "how": how, "exit": to_data(ended)}
    study.take("trial_exited", happened)


def save(study: Study, step: int, trial_id: str = "t0", attempt: int = 1) -> None:
    number = study.trials[trial_id].checkpoints.next_number
    facts = {"number": number, "directory": f"checkpoint_{number:06d}", "epoch": 1}
    more = {
        "attempt": attempt,
        "step": step,
        "metrics": {},
        "created": 0.0,
        "problems": [],
        "pins": [],
    }
    saved = {"id": trial_id, "what": "checkpoint_committed", "facts": {**facts, **more}}
    study.take("trial_checkpoint", saved)


KILLED = Died(0, "node", 1, signal=9)
DONE = Finished(0, "node")


def test_a_step_that_is_done_again_is_not_judged_again() -> None:
    judge = Judge()
    study = study_of(judge, budget=Budget(failures=None))
    start(study)
    for step in (1, 2, 3):
        report(study, step)
    save(study, 1)
    leave(study, KILLED)
    start(study, after=1)
    for step in (2, 3, 4):
        report(study, step)

    judged = [what[2] for what in judge.heard if what[0] == "judged"]
    assert judged == [1, 2, 3, 4]


@pytest.mark.parametrize("verdict", ["STOP", "PAUSE"])
def test_what_was_decided_holds_when_the_step_is_done_again(verdict: str) -> None:
    study = study_of(Judge({2: verdict}), budget=Budget(failures=None), saves_at_end=True)
    trial = start(study)
    report(study, 1)
    report(study, 2)
    assert trial.reply().action == verdict
    leave(study, KILLED)  # before it could save itself
    assert trial.status is Status.PENDING
    start(study)
    report(study, 1)
    assert trial.reply().action == "CONTINUE"
    report(study, 2)

    assert trial.reply().action == verdict


def test_a_trial_that_was_stopped_and_misses_nothing_ends_with_its_process() -> None:
    study = study_of(Judge({2: "STOP"}))
    trial = start(study)
    report(study, 1)
    report(study, 2)
    leave(study, KILLED)

    assert trial.status is Status.TERMINATED


def test_a_trial_that_was_paused_and_is_saved_waits_when_its_process_dies() -> None:
    study = study_of(Judge({2: "PAUSE"}))
    trial = start(study)
    report(study, 1)
    report(study, 2)
    save(study, 2)
    leave(study, KILLED)

    assert trial.status is Status.PAUSED
    assert trial.num_failures == 0


def test_losses_are_charged_and_the_last_is_an_error() -> None:
    judge = Judge()
    study = study_of(judge, budget=Budget(failures=1))
    trial = start(study)
    leave(study, KILLED)
    statuses = [trial.status]
    start(study)
    leave(study, KILLED)

    assert [*statuses, trial.status] == [Status.PENDING, Status.ERROR]
    assert judge.heard == [("error", "t0"), ("search complete", "t0", True)]


def test_a_process_that_we_took_away_is_nobodys_fault() -> None:
    study = study_of(Judge(), budget=Budget(failures=0))
    trial = start(study)
    leave(study, Evicted(0, "node"))

    assert trial.status is Status.PENDING


def test_the_first_failure_ends_all_if_that_is_wanted() -> None:
    study = study_of(Judge(), trials=3, budget=Budget(failures=0), fail_fast=True)
    start(study, "t0")
    start(study, "t1")
    leave(study, KILLED, "t0")

    assert study.trials["t1"].doomed
    assert study.finished["t2"].status is Status.TERMINATED
    assert study.next_to_start() is None


def test_what_the_scheduler_asks_of_others_is_done() -> None:
    judge = Judge({1: "PAUSE"})
    study = study_of(judge, trials=3, room=3.0)
    for trial_id in ("t0", "t1", "t2"):
        start(study, trial_id)
    report(study, 1, "t0")
    save(study, 1, "t0")
    leave(study, DONE, "t0", "paused")
    report(study, 1, "t2")
    judge.on_judging = lambda view, trial: [
        view.stop_trial(view.get_trial("t0")),
        view.stop_trial(view.get_trial("t2")),
    ]
    report(study, 1, "t1")

    assert study.finished["t0"].status is Status.TERMINATED
    assert study.trials["t2"].doomed
    assert ("removed", "t0") not in judge.heard  # who asked for it knows
    assert ("search complete", "t0", False) in judge.heard


def test_config_and_weights_move_together_or_not_at_all() -> None:
    judge = Judge()
    study = study_of(judge, trials=2)
    receiver, donor = start(study, "t0"), start(study, "t1")
    assert not study.exploit(receiver, donor, {"lr": 2}, "new")
    assert receiver.config == {}
    save(study, 3, "t1")

    assert study.exploit(receiver, donor, {"lr": 2}, "new")
    assert receiver.donor is not None
    assert (receiver.config, receiver.donor[:2]) == ({"lr": 2}, ("t1", "checkpoint_000000"))
    assert receiver.reply().action == "PAUSE"
    assert not receiver.reply().save
    leave(study, Evicted(0, "node"), "t0")
    assert receiver.status is Status.PAUSED


def test_what_a_trial_was_about_to_save_does_not_undo_that_it_became_another() -> None:
    """It saves itself, is made to go on from another trial, and only then the save is durable."""
    study = study_of(Judge(), trials=2)
    receiver, donor = start(study, "t0"), start(study, "t1")
    report(study, 4, "t0", loss=1.0)
    save(study, 3, "t1")
    study.exploit(receiver, donor, {"lr": 2}, "new")
    save(study, 4, "t0")  # of the attempt that ended
    leave(study, Evicted(0, "node"), "t0")

    assert receiver.donor is not None
    assert receiver.donor.directory == "checkpoint_000000"
    start(study, "t0", after=receiver.donor.step)
    save(study, 6, "t0", attempt=2)
    assert receiver.donor is None


def test_a_trial_that_became_another_counts_on_from_where_it_was_then() -> None:
    """Whatever it does until it is saved is done again after a loss, and not only counted."""
    study = study_of(Judge(), trials=2, budget=Budget(failures=None))
    receiver, donor = start(study, "t0"), start(study, "t1")
    report(study, 4, "t0", loss=1.0)
    save(study, 3, "t1")
    study.exploit(receiver, donor, {"lr": 2}, "new")
    leave(study, Evicted(0, "node"), "t0")
    start(study, "t0", after=4)
    report(study, 5, "t0", loss=0.5)
    leave(study, KILLED, "t0")

    assert receiver.donor is not None
    assert receiver.donor.step == 4
    assert receiver.donor.result == {"training_iteration": 4, "loss": 1.0}


def test_a_trial_that_dies_before_it_has_saved_as_it_was_asked_to_is_asked_again() -> None:
    judge = Judge()
    study = study_of(judge, budget=Budget(failures=None))
    judge.on_judging = lambda view, trial: view.save_trial(trial)
    trial = start(study)
    report(study, 1)
    assert trial.reply().save
    leave(study, KILLED)
    start(study)
    assert not trial.reply().save  # not before it is as far again
    report(study, 1)

    assert trial.reply().save


def test_trials_take_room_and_give_it_back() -> None:
    study = study_of(Judge(), trials=3, room=2.0)
    start(study, "t0")
    start(study, "t1")
    assert study.next_to_start() is None
    assert study.free_resources() == {"CPU": 0.0}
    leave(study, DONE, "t0", "done")

    found = study.next_to_start()
    assert found is not None and found.trial_id == "t2"


def test_another_trial_is_made_only_when_there_is_room_for_it() -> None:
    study = study_of(Judge(), trials=1, room=1.0)
    assert not study.wants_more()  # one waits to start
    start(study)
    assert not study.wants_more()  # no room
    leave(study, DONE, how="done")

    assert study.wants_more()


def test_a_scheduler_can_have_trials_made_ahead() -> None:
    judge = Judge()
    judge.trials_ahead = 3
    study = study_of(judge, trials=1, room=1.0)
    assert study.lacks_trials() and study.wants_more()
    add(study, 1)
    add(study, 2)

    assert not study.lacks_trials()
    assert not study.wants_more()


def test_trials_that_ran_when_a_driver_died_go_first() -> None:
    study = study_of(Judge(), trials=3, room=1.0)
    start(study, "t2")
    opened = {"rooms": {"node": {"CPU": 1.0}}, "resume_unfinished": True, "again": []}
    study.take("study_opened", opened)

    found = study.next_to_start()
    assert found is not None and found.trial_id == "t2"


def test_a_judge_that_raises_ends_nothing() -> None:
    judge = Judge()

    def fail(*_: Any) -> None:
        raise RuntimeError("a bug of the user's")

    judge.on_judging = fail
    study = study_of(judge)
    trial = start(study)
    report(study, 1)

    assert trial.reply().action == "CONTINUE"


def test_news_of_an_attempt_that_is_over_changes_nothing() -> None:
    study = study_of(Judge(), budget=Budget(failures=None))
    trial = start(study)
    report(study, 1)
    leave(study, KILLED)
    start(study)
    late = {"id": "t0", "attempt": 1, "step": 9, "result": {"training_iteration": 9}}
    study.take("trial_result", late)
    study.take("trial_exited", {"id": "t0", "attempt": 1, "how": "done", "exit": to_data(DONE)})

    assert (trial.step, trial.status) == (0, Status.RUNNING)


def test_its_state_is_plain_and_comes_back() -> None:
    study = study_of(Judge({2: "PAUSE"}), trials=3)
    start(study)
    report(study, 1, loss=float("nan"))
    save(study, 1)
    leave(study, KILLED)
    state = json.loads(json.dumps(study.get_state()))
    judge = Judge()
    again = Study(Judges(judge, judge, judge), Rules())
    again.set_state(state)

    assert json.dumps(again.get_state()) == json.dumps(state)
