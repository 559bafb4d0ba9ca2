"""Who runs next in a study, with how much room, and as whom."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.run.budget import Budget
from holdfast.core.run.outcomes import Evicted
from holdfast.core.study.events import DonorReplaced, RoomsChanged, StudyOpened, from_data
from holdfast.core.study.trial import Intent, Status, Trial
from tests.unit.core.study.studies import (
    DONE,
    KILLED,
    Judge,
    add,
    leave,
    report,
    save,
    start,
    study_of,
)


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
    assert study.trials["t2"].intent is Intent.END
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
    assert receiver.reply().verdict == "PAUSE"
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


def test_a_trial_that_became_another_counts_steps_on_and_iterations_from_the_weights() -> None:
    """Whatever it does until it is saved is done again after a loss, and not only counted."""
    study = study_of(Judge(), trials=2, budget=Budget(failures=None))
    receiver, donor = start(study, "t0"), start(study, "t1")
    report(study, 4, "t0", loss=1.0)
    save(study, 3, "t1", metrics={"training_iteration": 3, "loss": 0.2})
    study.exploit(receiver, donor, {"lr": 2}, "new")
    leave(study, Evicted(0, "node"), "t0")
    start(study, "t0", after=4)
    report(study, 5, "t0", loss=0.5)
    leave(study, KILLED, "t0")

    assert receiver.donor is not None
    assert receiver.donor.step == 4
    assert receiver.donor.result == {"training_iteration": 3, "loss": 0.2}


def test_who_is_copied_before_it_has_saved_anew_gives_the_count_of_what_it_was_given() -> None:
    study = study_of(Judge(), trials=3, room=3.0)
    first, second, third = (start(study, trial_id) for trial_id in ("t0", "t1", "t2"))
    save(study, 7, "t2", metrics={"training_iteration": 7})
    study.exploit(second, third, {"lr": 2}, "new")
    study.exploit(first, second, {"lr": 3}, "newer")

    assert first.donor is not None
    assert first.donor[:2] == ("t2", "checkpoint_000000")
    assert first.donor.result == {"training_iteration": 7}


def test_what_a_process_still_reports_of_weights_that_were_given_up_is_not_judged() -> None:
    """Another trial's result had it go on from elsewhere, and it had not heard of it."""
    judge = Judge({5: "STOP"})
    study = study_of(judge, trials=2)
    receiver, donor = start(study, "t0"), start(study, "t1")
    report(study, 4, "t0", loss=1.0)
    save(study, 3, "t1", metrics={"training_iteration": 3})
    study.exploit(receiver, donor, {"lr": 2}, "new")
    report(study, 5, "t0", loss=0.9)

    assert ("judged", "t0", 5) not in judge.heard
    assert receiver.reply().verdict == "PAUSE"
    assert receiver.donor is not None
    assert receiver.donor.step == 5  # or its next result would take the place of this one
    leave(study, Evicted(0, "node"), "t0")
    start(study, "t0", after=5)
    report(study, 6, "t0", loss=0.5)
    assert ("judged", "t0", 6) in judge.heard


def test_a_damaged_donation_comes_with_the_count_of_what_is_taken_instead() -> None:
    study = study_of(Judge(), trials=2)
    receiver, donor = start(study, "t0"), start(study, "t1")
    save(study, 3, "t1", metrics={"training_iteration": 3})
    study.exploit(receiver, donor, {"lr": 2}, "new")
    study.take(DonorReplaced("t0", "checkpoint_000007", {"training_iteration": 1}))

    assert receiver.donor is not None
    assert (receiver.donor.directory, receiver.donor.result) == (
        "checkpoint_000007", {"training_iteration": 1},
    )  # fmt: skip
    study.take(DonorReplaced("t0", "checkpoint_000005"))  # as it was written once
    assert receiver.donor.result == {"training_iteration": 1}
    study.take(DonorReplaced("t0", None, {}))
    assert receiver.donor is None


@pytest.mark.parametrize("stays", [True, None], ids=["now", "as it was written before"])
def test_a_trial_that_nothing_is_left_for_of_its_donor_is_what_it_was(stays: bool | None) -> None:
    """Weights and config move together, or both stay; older records had the new config go on."""
    study = study_of(Judge(), trials=2)
    receiver, donor = start(study, "t0"), start(study, "t1")
    before = dict(receiver.config), receiver.experiment_tag
    report(study, 1, "t0", loss=1.0)
    save(study, 3, "t1", metrics={"training_iteration": 3})
    study.exploit(receiver, donor, {"lr": 2}, "new")
    told = {} if stays is None else {"stays": stays}
    study.take(from_data("trial_donor", {"id": "t0", "directory": None, "result": {}, **told}))

    assert receiver.donor is None
    assert (receiver.config, receiver.experiment_tag) == (before if stays else ({"lr": 2}, "new"))
    assert receiver.reported_as.tag == before[1]


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


def test_another_trial_is_made_also_if_the_last_was_larger_than_all_there_is_now() -> None:
    study = study_of(Judge(), room=1.0)
    start(study)
    study.take(RoomsChanged({"node": {"CPU": 0.5}}))
    assert not study.wants_more()
    leave(study, DONE, how="done")

    assert study.wants_more()  # it may need less


def test_a_trial_goes_on_with_what_it_needs_now() -> None:
    study = study_of(Judge(), trials=2)
    start(study, "t0")
    needs = {"t0": [{"CPU": 0.5}], "t1": [{"CPU": 0.25}]}
    study.take(StudyOpened(rooms={"node": {"CPU": 1.0}}, needs=needs))

    assert [one.resources for one in study.get_trials()] == [({"CPU": 0.5},), ({"CPU": 0.25},)]


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
    study.take(StudyOpened(rooms={"node": {"CPU": 1.0}}))

    found = study.next_to_start()
    assert found is not None and found.trial_id == "t2"


def test_a_scheduler_that_fails_to_choose_has_trials_run_in_their_order() -> None:
    class Broken(Judge):
        def choose_trial_to_run(self, view: Any) -> Trial | None:
            raise RuntimeError("a bug of the user's")

    study = study_of(Broken(), trials=3, room=2.0)
    for wanted in ("t0", "t1"):
        found = study.next_to_start()
        assert found is not None and found.trial_id == wanted
        start(study, wanted)

    assert study.next_to_start() is None  # there is no more room


def test_a_scheduler_that_chooses_nobody_does_not_hang_the_study(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Undecided(Judge):
        def choose_trial_to_run(self, view: Any) -> Trial | None:
            return None

    study = study_of(Undecided(), trials=2)
    assert study.next_to_start() is None
    found = study.next_anyhow()
    assert found is not None and found.trial_id == "t0"
    start(study, "t0")
    assert study.next_anyhow() is None  # something will happen

    leave(study, DONE, how="done")
    study.delays = {"t1": 1.0}
    assert study.next_anyhow() is None  # it waits after a loss
    study.delays.clear()
    assert study.next_anyhow() is study.trials["t1"]
    assert caplog.text.count("the scheduler chooses no trial") == 1


@pytest.mark.parametrize(
    ("trials", "room", "told"),
    [(1, 0.5, "f_t0 needs CPU=1, and there is CPU=0.5"), (0, 2.0, "the searcher proposes none")],
)
def test_why_nothing_runs_is_told(
    trials: int, room: float, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    study = study_of(Judge(), trials=trials, room=room)

    assert study.next_anyhow() is None
    assert told in caplog.text


def test_a_trial_is_not_made_larger_than_all_there_is(caplog: pytest.LogCaptureFixture) -> None:
    study = study_of(Judge())
    trial = start(study)
    study.resize(trial, [{"CPU": 64.0}])
    assert (trial.resources, trial.intent) == (({"CPU": 1.0},), Intent.GO_ON)
    assert "there is no room for [{'CPU': 64.0}]" in caplog.text
    study.resize(trial, [{"CPU": 2.0}])

    assert (trial.resize_to, trial.intent) == (({"CPU": 2.0},), Intent.PAUSE)


def test_a_trial_has_its_new_size_when_its_process_has_gone() -> None:
    """Until then it takes the room that it was started in, also if it will have more processes."""
    study = study_of(Judge(), trials=2, room=4.0)
    trial = start(study)
    study.resize(trial, [{"CPU": 1.0}, {"CPU": 2.0}])
    assert study.free_resources() == {"CPU": 3.0}
    assert study.next_to_start() is study.trials["t1"]

    leave(study, DONE, how="paused")

    assert (trial.resources, trial.resize_to) == (({"CPU": 1.0}, {"CPU": 2.0}), None)
    assert study.free_resources() == {"CPU": 4.0}


def test_a_result_is_told_with_the_config_that_it_was_made_with() -> None:
    """The trial became another over it, and again before it reported."""
    study = study_of(Judge(), trials=2)
    receiver, donor = start(study, "t0"), start(study, "t1")
    save(study, 3, "t1", metrics={"training_iteration": 3})
    receiver.config, receiver.experiment_tag = {"lr": 1}, "first"
    assert receiver.reported_as.config == {"lr": 1}
    report(study, 4, "t0", loss=1.0)
    study.exploit(receiver, donor, {"lr": 2}, "second")
    study.exploit(receiver, donor, {"lr": 3}, "third")
    again = Trial.from_data(receiver.to_data())

    for one in (receiver, again):
        assert (one.config, one.reported_as.config) == ({"lr": 3}, {"lr": 1})
        assert one.reported_as.tag == "first"
    leave(study, Evicted(0, "node"), "t0")
    start(study, "t0", after=4)
    report(study, 5, "t0", loss=0.5)
    assert receiver.reported_as.config == {"lr": 3}


def test_a_trial_as_it_was_written_before_opens() -> None:
    data = Trial("t0").to_data()
    del data["former"]

    assert Trial.from_data(data).former is None
