from __future__ import annotations

import statistics
import subprocess
import sys
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.testing.fake_study import FakeStudy
from holdfast.tune.schedulers import PB2
from holdfast.tune.schedulers.gaussian_process import Observation, most_promising
from holdfast.tune.trial import Trial


def pb2(**kwargs: object) -> PB2:
    given: dict[str, object] = {
        "time_attr": "training_iteration",
        "metric": "score",
        "mode": "max",
        "perturbation_interval": 2,
        "hyperparam_bounds": {"lr": [0.0, 10.0]},
        "seed": 1,
    }
    return PB2(**{**given, **kwargs})  # type: ignore[arg-type]


def test_the_model_finds_where_most_was_gained() -> None:
    seen = [Observation(0, 0.0, [x / 20], -((x / 20 - 0.7) ** 2)) for x in range(21)]
    [best] = most_promising(seen, [], 1, 0.0, seed=0)

    assert abs(best - 0.7) < 0.1


def test_the_model_looks_where_it_knows_little() -> None:
    seen = [Observation(0, 0.0, [x / 40], 0.0) for x in range(21)]  # nothing beyond 0.5
    [best] = most_promising(seen, [], 0, 0.0, seed=0)

    assert best > 0.7


def test_what_others_are_trying_need_not_be_tried_again() -> None:
    seen = [Observation(0, 0.0, [x / 40], 0.0) for x in range(21)]
    [alone] = most_promising(seen, [], 0, 0.0, seed=0)
    [beside] = most_promising(seen, [[0.95], [1.0], [0.9]], 0, 0.0, seed=0)

    assert abs(alone - beside) > 0.1


def test_what_was_gained_long_ago_counts_less() -> None:
    """Early on 0.2 was best, lately it is 0.8."""
    early = [Observation(t, 0.0, [x / 10], -abs(x / 10 - 0.2)) for t in range(3) for x in range(11)]
    late = [Observation(t, 0.0, [x / 10], -abs(x / 10 - 0.8)) for t in (28, 29) for x in range(11)]
    [best] = most_promising([*early, *late], [], 30, 0.0, seed=0)

    assert best > 0.6


def test_the_model_gives_the_same_for_the_same_seed() -> None:
    seen = [Observation(0, 0.0, [x / 20, 0.5], float(x)) for x in range(5)]

    assert most_promising(seen, [], 1, 0.0, 3) == most_promising(seen, [], 1, 0.0, 3)
    assert most_promising(seen, [], 1, 0.0, 3) != most_promising(seen, [], 1, 0.0, 4)


def test_a_whole_number_stays_within_bounds_that_are_not() -> None:
    seen = set()
    for seed in range(60):
        study = FakeStudy(pb2(hyperparam_bounds={"n": [0.6, 3.4]}, synch=True, seed=seed), slots=2)
        study.add({"n": 2})
        study.add({"n": 2})
        study.fill()
        for trial in study.trials:
            study.report(trial, 2)
        seen.add(study.trials[0].config["n"])

    assert seen == {1, 2, 3}
    assert {type(value) for value in seen} == {int}


def test_what_a_copy_gains_is_counted_from_where_its_donor_was_saved() -> None:
    """The donor was judged at 4, with 3; what it had saved is of 2, with 2.5."""
    scheduler = pb2()
    study = FakeStudy(scheduler, slots=4)
    for number in range(4):
        study.add({"lr": float(number)})
    study.fill()
    for trial, score in zip(study.trials[2:], (1.0, 2.5), strict=True):
        study.report(trial, 2, score=score)
    study.report(study.trials[3], 4, score=3.0)
    checkpoints = study.trials[3].checkpoints.kept
    while len(checkpoints) > 1:
        checkpoints.popitem()
    assert study.report(study.trials[0], 2, score=0.0) == "NOOP"

    assert scheduler.get_state()["bases"]["t0"] == [2, 2.5]


@pytest.mark.parametrize("mode", ["max", "min"])
def test_a_population_moves_to_where_most_is_gained(mode: str) -> None:
    """Each step gains most at lr = 7, and what was gained stays with the weights."""
    sign = 1 if mode == "max" else -1
    weights: dict[str, float] = {}

    saved: dict[str, float] = {}

    class Trained(FakeStudy):
        def _save(self, trial: Trial) -> None:
            super()._save(trial)
            saved[trial.trial_id] = weights[trial.trial_id]

        def _exploit(self, trial: Trial, donor: Trial, config: Any, tag: str) -> None:
            super()._exploit(trial, donor, config, tag)
            weights[trial.trial_id] = saved[donor.trial_id]

    def score(trial: Trial, time: int) -> float:
        gained = weights.get(trial.trial_id, 0.0) + 10 - abs(trial.config["lr"] - 7)
        weights[trial.trial_id] = gained
        return sign * gained

    study = Trained(pb2(mode=mode, synch=True), slots=6, score=score)
    for number in range(6):
        study.add({"lr": number / 4})  # far away
    study.run(until=40)
    tried = [entry[3]["lr"] for entry in study.log if entry[0] == "_exploit"]

    assert all(0 <= value <= 10 for value in tried)
    assert statistics.median(abs(value - 7) for value in tried[-20:]) < 1
    assert max(weights.values()) > 350  # 400 had it known all along; 170 had nothing changed


def test_what_is_gained_is_counted_from_where_the_weights_came_from() -> None:
    """t0 is made from t3, which had 3; its own old score of 0 must not make that a gain of 3."""
    study = FakeStudy(pb2(synch=True), slots=4)
    for _ in range(4):
        study.add({"lr": 5.0})
    study.fill()
    for trial in study.trials[::-1]:
        study.report(trial, 2)
    study.fill()
    for trial in study.trials[::-1]:
        study.report(trial, 4, score=3 if trial.number == 0 else trial.number)
    gains = [row[2] for row in study.scheduler.get_state()["rows"]]

    assert gains == [0.0, 0.0, 0.0, 0.0]


def test_before_anything_is_known_a_change_is_a_draw_within_bounds() -> None:
    drawn = set()
    for seed in range(5):
        study = FakeStudy(pb2(synch=True, seed=seed), slots=4)
        for _ in range(4):
            study.add({"lr": 5.0})
        study.fill()
        for trial in study.trials[::-1]:
            study.report(trial, 2)
        drawn.add(study.trials[0].config["lr"])

    assert len(drawn) == 5
    assert all(0 <= value <= 10 for value in drawn)


def test_bounds_may_be_nested_and_whole_numbers_stay_whole() -> None:
    bounds = {"lr": [0.0, 1.0], "net": {"width": [10, 20]}}
    study = FakeStudy(pb2(hyperparam_bounds=bounds, synch=True), slots=4)
    for _ in range(4):
        study.add({"net": {"width": 15, "kind": "a"}})
    study.fill()
    for time in (2, 4, 6):
        for trial in study.trials[::-1]:
            study.report(trial, time)
        study.fill()
    changed = study.trials[0].config

    assert 0 <= changed["lr"] <= 1
    assert type(changed["net"]["width"]) is int
    assert 10 <= changed["net"]["width"] <= 20
    assert changed["net"]["kind"] == "a"


def test_only_the_last_thousand_observations_are_kept() -> None:
    study = FakeStudy(pb2(quantile_fraction=0.0), slots=4)
    trial = study.add({"lr": 5.0})
    study.fill()
    for time in range(2, 2 * 1100, 2):
        study.report(trial, time)

    assert len(study.scheduler.get_state()["rows"]) == 1000


def test_numpy_is_not_imported_before_it_is_needed() -> None:
    code = "import sys; from holdfast.tune.schedulers import PB2; assert 'numpy' not in sys.modules"

    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"hyperparam_bounds": None}, "hyperparam_bounds=None: nothing may change"),
        ({"hyperparam_bounds": {}}, "hyperparam_bounds={}: nothing may change"),
        ({"hyperparam_bounds": {"a": [1]}}, "'a': [1] is not [lowest, highest]"),
        ({"hyperparam_bounds": {"a": {"b": [2, 1]}}}, "'a/b': [2, 1] is not [lowest, highest]"),
        ({"quantile_fraction": 1}, "quantile_fraction=1: more than 0.5"),
    ],
)
def test_bad_arguments_are_named(bad: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        pb2(**bad)

    assert says in str(caught.value)
