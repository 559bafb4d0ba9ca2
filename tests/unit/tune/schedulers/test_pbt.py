"""Population based training: which trials are copied, by which trials, and when."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from holdfast.core.study.trial import Donor, Status
from holdfast.errors import ConfigError
from holdfast.testing.fake_study import MISSING, FakeStudy
from holdfast.tune.errors import TuneError
from holdfast.tune.schedulers import PopulationBasedTraining, ResourceChangingScheduler
from holdfast.tune.schedulers.pbt import NothingToExplore
from holdfast.tune.search.sample import sample_from, uniform
from holdfast.tune.trial import Trial


def pbt(**kwargs: object) -> PopulationBasedTraining:
    given: dict[str, object] = {
        "time_attr": "training_iteration",
        "metric": "score",
        "mode": "max",
        "perturbation_interval": 2,
        "hyperparam_mutations": {"lr": uniform(0, 1)},
        "seed": 1,
    }
    return PopulationBasedTraining(**{**given, **kwargs})  # type: ignore[arg-type]


def population(scheduler: PopulationBasedTraining, size: int = 8, **kwargs: Any) -> FakeStudy:
    study = FakeStudy(scheduler, slots=kwargs.pop("slots", size), **kwargs)
    for number in range(size):
        study.add({"lr": 0.1 * (number + 1), "depth": number})
    study.fill()
    return study


class SlowStudy(FakeStudy):
    """A study in which trials that are to pause do so later, in any order."""

    def _pause(self, trial: Trial, *, should_checkpoint: bool = True) -> None:
        assert should_checkpoint

    def finish(self, trial: Trial) -> None:
        super()._pause(trial)
        self._perform()

    def save(self, trial: Trial, time: int) -> None:
        """Have a trial come to a time, and save itself there."""
        self.times[trial.trial_id] = trial.step = time
        trial.last_result = {"training_iteration": time, "score": 0}
        self._save(trial)


def slow_population() -> SlowStudy:
    study = SlowStudy(pbt(synch=True), slots=4)
    for number in range(4):
        study.add({"lr": 0.1 * (number + 1), "depth": number})
    study.fill()
    return study


def judge_all(study: FakeStudy, time: int) -> list[str]:
    return [study.report(trial, time) for trial in list(study.trials)]


def meet(study: FakeStudy, time: int) -> None:
    """Run all trials to a time, and then those that go ahead."""
    judge_all(study, time)
    if all(trial.status == Status.PAUSED for trial in study.trials) and (ahead := study.choose()):
        study.start(ahead)
        study.report(ahead)


def test_the_worst_trial_continues_from_the_best_with_a_changed_config() -> None:
    """Of 8 trials, with the default quarter, the 2 worst go on from one of the 2 best."""
    study = population(pbt(), score=lambda trial, _: [7, 0, 5, 4, 3, 2, 1, 6][trial.number])
    meet(study, 2)  # the first trial had no others to be compared with
    meet(study, 4)
    moved = [(entry[1], entry[2]) for entry in study.log if entry[0] == "_exploit"]

    assert {trial for trial, _ in moved} == {"t1", "t6"}
    assert {donor for _, donor in moved} <= {"t0", "t7"}
    for trial_id in ("t1", "t6"):
        donor = next(donor for name, donor in reversed(moved) if name == trial_id)
        trial = study.trials[int(trial_id[1])]
        source = study.trials[int(donor[1])]
        assert trial.config["depth"] == source.config["depth"]
        assert trial.config["lr"] != source.config["lr"]
        assert trial.experiment_tag == f"{trial_id[1]}@perturbed[lr={trial.config['lr']:.4f}]"


@pytest.mark.parametrize(
    ("size", "fraction", "expected"),
    [(2, 0.25, 1), (3, 0.25, 1), (4, 0.25, 1), (5, 0.25, 2), (8, 0.25, 2), (9, 0.25, 3),
     (8, 0.5, 4), (5, 0.5, 2), (8, 0.0, 0), (1, 0.5, 0), (40, 0.25, 10)],
)  # fmt: skip
def test_how_many_are_worst_and_best(size: int, fraction: float, expected: int) -> None:
    """ceil(n * fraction), and never more than half. With all scores known, one more round."""
    study = population(pbt(synch=True, quantile_fraction=fraction), size)
    meet(study, 2)
    moved = [(entry[1], entry[2]) for entry in study.log if entry[0] == "_exploit"]
    worst = {f"t{number}" for number in range(expected)}
    best = {f"t{number}" for number in range(size - expected, size)}

    assert {trial for trial, _ in moved} == worst
    assert {donor for _, donor in moved} <= best


def test_min_takes_the_lowest_for_the_best() -> None:
    study = population(pbt(synch=True, mode="min"), 4)
    meet(study, 2)

    assert [entry[1:3] for entry in study.log if entry[0] == "_exploit"] == [("t3", "t0")]


def test_of_equals_the_one_that_was_made_first_is_better() -> None:
    study = population(pbt(synch=True), 4, score=lambda *_: 1)
    meet(study, 2)

    assert [entry[1:3] for entry in study.log if entry[0] == "_exploit"] == [("t3", "t0")]


def test_trials_with_nan_and_finished_trials_belong_to_no_quantile() -> None:
    scores = [math.nan, 1, 2, 3, 4, 99]
    study = population(pbt(synch=True), 6, score=lambda trial, _: scores[trial.number])
    study.complete(study.trials[5])
    for trial in study.trials[4::-1]:
        study.report(trial, 2)

    assert [entry[1:3] for entry in study.log if entry[0] == "_exploit"] == [("t1", "t4")]


def test_nothing_is_judged_before_the_interval_or_the_burn_in_is_over() -> None:
    study = population(pbt(perturbation_interval=3, burn_in_period=7), 4)
    quiet = [decision for time in range(1, 7) for decision in judge_all(study, time)]
    assert set(quiet) == {"CONTINUE"}
    assert "_exploit" not in {entry[0] for entry in study.log}
    study.report(study.trials[2], 7)
    study.report(study.trials[3], 7)

    assert study.report(study.trials[0], 7) == "NOOP"


def test_the_best_save_themselves_when_they_are_judged() -> None:
    study = population(pbt(), 4)
    meet(study, 2)

    assert [entry[1] for entry in study.log if entry[0] == "_save"] == ["t1", "t2", "t3"]


def test_without_a_checkpoint_of_any_of_the_best_a_trial_stays_as_it_is() -> None:
    study = population(pbt(), 2)
    study.report(study.trials[1], 2)  # alone, so neither best nor worst, and not asked to save

    assert study.report(study.trials[0], 2) == "CONTINUE"
    assert study.trials[0].config["depth"] == 0


def test_a_donor_without_a_checkpoint_is_passed_over_for_another() -> None:
    study = population(pbt(quantile_fraction=0.5), 4)
    for trial in study.trials[1:]:
        study.report(trial, 2)
    study.trials[3].checkpoints.kept.clear()

    assert study.report(study.trials[0], 2) == "NOOP"
    assert study.trials[0].config["depth"] == 2


def test_a_copy_is_judged_again_an_interval_after_its_donor() -> None:
    """It is now where its donor was, so waiting for its own old time would skip intervals."""
    study = population(pbt(perturbation_interval=4), 4)
    study.report(study.trials[2], 4)
    study.report(study.trials[3], 4)
    assert study.report(study.trials[0], 100) == "NOOP"
    study.fill()
    assert study.times["t0"] == 4

    assert study.report(study.trials[0], 7) == "CONTINUE"
    assert study.report(study.trials[0], 8) == "NOOP"


def test_while_others_wait_trials_take_turns() -> None:
    study = FakeStudy(pbt(quantile_fraction=0.0), slots=1)
    for _ in range(3):
        study.add({"lr": 0.5})
    study.run(until=4)
    turns = [entry[1] for entry in study.log if entry[0] == "decided"]

    assert turns[:6] == ["t0", "t0", "t1", "t1", "t2", "t2"]
    assert set(study.reached()) == {4}


def test_a_trial_that_always_loses_does_not_keep_its_donor_from_running() -> None:
    study = FakeStudy(pbt(), slots=1)
    for _ in range(2):
        study.add({"lr": 0.5})
    study.run(until=20)

    assert study.reached() == [20, 20]


def test_what_a_config_lacks_is_drawn_when_the_trial_is_added() -> None:
    mutations = {"lr": uniform(3, 4), "net": {"width": [7], "drop": lambda: 0.5}}
    study = FakeStudy(pbt(hyperparam_mutations=mutations))
    empty, full = study.add({}), study.add({"lr": 9, "net": {"width": 1, "drop": 2}})

    assert 3 <= empty.config["lr"] <= 4
    assert empty.config["net"] == {"width": 7, "drop": 0.5}
    assert full.config == {"lr": 9, "net": {"width": 1, "drop": 2}}


# --------------------------------------------------------------------------- together


@pytest.mark.req("U-083")
def test_synchronous_trials_wait_for_each_other_and_are_judged_together() -> None:
    study = population(pbt(synch=True), 4, slots=4)

    assert judge_all(study, 2) == ["PAUSE"] * 4  # the best came last, and is to save as well
    assert [entry[1:3] for entry in study.log if entry[0] == "_exploit"] == [("t0", "t3")]
    assert study.times == {"t0": 2, "t1": 2, "t2": 2, "t3": 2}
    study.fill()
    assert judge_all(study, 3) == ["CONTINUE"] * 4
    assert judge_all(study, 4)[0] == "PAUSE"


def test_synchronous_trials_are_judged_inside_a_resource_changing_scheduler() -> None:
    study = FakeStudy(ResourceChangingScheduler(pbt(synch=True), lambda *_: None), slots=4)
    for number in range(4):
        study.add({"lr": 0.1, "depth": number})
    study.fill()
    judge_all(study, 2)  # the best is the last, and no trial has to go ahead

    assert [entry[1:3] for entry in study.log if entry[0] == "_exploit"] == [("t0", "t3")]


def test_synchronous_trials_are_judged_at_once_if_the_best_have_saved() -> None:
    study = population(pbt(synch=True), 4, score=lambda trial, _: -trial.number)

    assert judge_all(study, 2) == ["PAUSE", "PAUSE", "PAUSE", "NOOP"]
    assert [entry[1:3] for entry in study.log if entry[0] == "_exploit"] == [("t3", "t0")]


def test_synchronous_trials_are_judged_only_after_the_best_has_saved() -> None:
    """Results come at once, saves take their time: the worst arrives while the best still saves."""
    study = slow_population()
    best = study.trials[3]
    study.save(best, 1)
    assert [study.report(trial, 2) for trial in reversed(study.trials)] == ["PAUSE"] * 4
    assert [entry for entry in study.log if entry[0] == "_exploit"] == []
    assert study.choose() is None  # a trial is still to arrive
    for trial in (study.trials[0], study.trials[2], best, study.trials[1]):
        study.finish(trial)

    assert [entry[1:3] for entry in study.log if entry[0] == "_exploit"] == [("t0", "t3")]
    assert study.times == {"t0": 2, "t1": 2, "t2": 2, "t3": 2}


def test_a_synchronous_trial_lost_before_it_saved_arrives_again_before_others_continue() -> None:
    study = slow_population()
    judge_all(study, 2)
    for trial in study.trials[:3]:
        study.finish(trial)
    lost = study.trials[3]
    lost.status = Status.PENDING

    assert study.choose() is lost
    study.start(lost)
    study.finish(lost)
    assert [entry[1:3] for entry in study.log if entry[0] == "_exploit"] == [("t0", "t3")]


def test_a_copy_has_the_progress_of_the_checkpoint_it_continues_from() -> None:
    """Its donor has gone on since, without saving; the copy is not as far."""
    scheduler = pbt(perturbation_interval=4)
    study = population(scheduler, 4)
    study.report(study.trials[2], 4)
    study.report(study.trials[3], 4)  # is asked to save
    study.report(study.trials[3], 11)
    study.trials[3].checkpoints.kept = dict(list(study.trials[3].checkpoints.kept.items())[:1])
    assert study.report(study.trials[0], 5) == "NOOP"
    standing = scheduler.get_state()["standings"]["t0"]

    assert (standing["time"], standing["iteration"], standing["judged_at"]) == (4, 4, 4)


def test_a_copy_that_has_not_saved_since_is_not_a_donor() -> None:
    """Its own checkpoints are of the weights it has given up."""
    study = population(pbt(), 4)
    study.report(study.trials[2], 2)
    study.report(study.trials[3], 2)
    study.trials[3].donor = Donor("t2", "checkpoint_000000")

    assert study.report(study.trials[0], 2) == "CONTINUE"


def test_synchronous_trials_need_not_all_fit_at_once() -> None:
    study = FakeStudy(pbt(synch=True), slots=2)
    for _ in range(5):
        study.add({"lr": 0.5})
    study.run(until=8)

    assert study.reached() == [8] * 5


@pytest.mark.parametrize("how", ["complete", "error", "remove", "silence"])
def test_finished_trials_are_not_waited_for(how: str) -> None:
    study = population(pbt(synch=True), 4)
    for trial in study.trials[1:]:
        study.report(trial, 2)
    gone = study.trials[0]
    match how:
        case "complete":
            study.complete(gone)
        case "error":
            study.lose(gone, for_good=True)
        case "remove":
            gone.status = Status.PAUSED
            study.complete(gone)
        case _:
            gone.status = Status.TERMINATED
    if how != "silence":  # all are judged at once, and no trial has to go ahead
        assert [entry[1:3] for entry in study.log if entry[0] == "_exploit"] == [("t1", "t3")]
    study.run(until=6)

    assert study.reached()[1:] == [6, 6, 6]


def test_a_synchronous_trial_without_a_score_does_not_block_others_forever() -> None:
    study = population(pbt(synch=True), 3, slots=3, score=lambda trial, _: trial.number or MISSING)
    study.run(until=8)

    assert study.reached() == [8, 8, 8]


# --------------------------------------------------------------------------- what is written


def test_each_step_is_written_with_all_that_led_to_it() -> None:
    study = population(pbt(synch=True), 4)
    before = [dict(trial.config) for trial in study.trials]
    meet(study, 2)
    [line] = study.files["pbt_global.txt"].splitlines()

    assert json.loads(line) == ["0", "3", 2, 2, before[3], study.trials[0].config, 0]
    assert study.files["pbt_policy_t0.txt"] == f"{line}\n"
    assert set(study.files) == {"pbt_global.txt", "pbt_policy_t0.txt"}


def test_a_copy_takes_over_the_history_of_its_donor() -> None:
    """t0 is made from t2, then t1 from t0, then t0 from t1: the files tell the ways of weights."""
    rounds = [{0: 1, 1: 2, 2: 3}, {0: 3, 1: 1, 2: 2}, {0: 1, 1: 3, 2: 2}]
    study = population(
        pbt(synch=True, quantile_fraction=0.3), 3,
        score=lambda trial, time: rounds[min(time // 2, 3) - 1][trial.number],
    )  # fmt: skip
    for time in (2, 4, 6):
        meet(study, time)
        study.fill()
    steps = study.files["pbt_global.txt"].splitlines()

    assert [json.loads(step)[:4] for step in steps] == [
        ["0", "2", 2, 2], ["1", "0", 4, 4], ["0", "1", 6, 6],
    ]  # fmt: skip
    assert study.files["pbt_policy_t1.txt"].splitlines() == [steps[0], steps[1]]
    assert study.files["pbt_policy_t0.txt"].splitlines() == [steps[0], *steps]


def test_nothing_is_written_if_that_is_not_wanted() -> None:
    study = population(pbt(synch=True, log_config=False), 4)
    meet(study, 2)

    assert study.files == {}


def test_what_was_not_taken_yet_survives_a_crash() -> None:
    scheduler = pbt(synch=True)
    study = population(scheduler, 4)
    study.takes_files = False
    meet(study, 2)
    other = pbt(seed=None)
    other.set_state(json.loads(json.dumps(scheduler.get_state())))

    assert set(other.take_files()) == {"pbt_global.txt", "pbt_policy_t0.txt"}
    assert other.take_files() == {}


def test_what_led_to_trials_that_are_over_is_forgotten() -> None:
    study = population(pbt(synch=True), 4)
    meet(study, 2)
    assert len(study.scheduler.get_state()["lineage"]["steps"]) == 1
    for trial in study.trials:
        study.complete(trial)

    assert study.scheduler.get_state()["lineage"]["steps"] == []
    assert study.scheduler.get_state()["standings"] == {}


def test_configs_hold_what_is_no_data() -> None:
    study = FakeStudy(pbt(synch=True), slots=2)
    thing = object()
    for _ in range(2):
        study.add({"lr": 0.5, "thing": thing})
    study.fill()
    meet(study, 2)

    assert study.trials[0].config["thing"] is thing
    assert "object object" in study.files["pbt_global.txt"]


# --------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"perturbation_interval": 0}, "perturbation_interval=0: not above 0"),
        ({"quantile_fraction": 0.6}, "quantile_fraction=0.6: more than 0.5"),
        ({"resample_probability": 2}, "resample_probability=2: more than 1"),
        ({"perturbation_factors": ()}, "perturbation_factors=()"),
        ({"perturbation_factors": ("a",)}, "perturbation_factors=('a',)"),
        ({"custom_explore_fn": 3}, "custom_explore_fn=3: cannot be called"),
        ({"hyperparam_mutations": [1]}, "hyperparam_mutations=[1]"),
        ({"hyperparam_mutations": {"a": {"b": 3}}}, "'a/b': 3 is not a list"),
        ({"hyperparam_mutations": {"a": []}}, "'a': an empty list"),
        ({"hyperparam_mutations": {"a": sample_from(lambda: 1)}}, "'a': `sample_from`"),
    ],
)
def test_bad_arguments_are_named(bad: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        pbt(**bad)

    assert says in str(caught.value)


@pytest.mark.parametrize("error", [NothingToExplore, ConfigError, TuneError, ValueError])
def test_there_must_be_something_to_change(error: type[Exception]) -> None:
    with pytest.raises(error, match="nothing to change in a config"):
        PopulationBasedTraining(metric="score", mode="max")


def test_missing_metrics_cause_a_warning_unless_that_is_switched_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for require, records in [(False, 0), (True, 1)]:
        study = population(pbt(require_attrs=require), 1, score=lambda *_: MISSING)
        study.report(study.trials[0])
        study.report(study.trials[0])
        warned = [record for record in caplog.records if record.levelname == "WARNING"]

        assert len(warned) == records
