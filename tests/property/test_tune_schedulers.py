"""A study that is killed anywhere decides as one that was not: for every scheduler we ship.

A script is a list of numbers that say what happens next. It is played twice: once with one
scheduler, and once with one that is made anew from its own state, as JSON, after every single call,
with the same arguments but for the seed. All decisions, choices, requests and files must be equal.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.study.trial import Status
from holdfast.testing.fake_study import MISSING, FakeStudy
from holdfast.tune.schedulers import (
    PB2,
    AsyncHyperBandScheduler,
    FIFOScheduler,
    HyperBandForBOHB,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    PopulationBasedTrainingReplay,
    ResourceChangingScheduler,
    TrialScheduler,
)
from holdfast.tune.schedulers.async_hyperband import Rung
from holdfast.tune.schedulers.resource_changing_scheduler import DistributeResourcesToTopJob
from holdfast.tune.search.sample import uniform
from holdfast.tune.trial import Trial

patient = settings(max_examples=60)

Maker = Callable[[int | None], TrialScheduler]
BY_STEP: dict[str, Any] = {"time_attr": "training_iteration", "metric": "score", "mode": "min"}
MUTATIONS = {"lr": uniform(0, 1), "net": {"width": [1, 2, 3]}}
TOP = DistributeResourcesToTopJob(metric="score", mode="min")

MAKERS: dict[str, Maker] = {
    "fifo": lambda _: FIFOScheduler(),
    "asha": lambda seed: AsyncHyperBandScheduler(
        **BY_STEP, max_t=9, reduction_factor=2, brackets=2, seed=seed
    ),
    "hyperband": lambda _: HyperBandScheduler(**BY_STEP, max_t=4, reduction_factor=2),
    "hyperband going on": lambda _: HyperBandScheduler(
        **BY_STEP, max_t=3, reduction_factor=3, stop_last_trials=False
    ),
    "bohb": lambda _: HyperBandForBOHB(**BY_STEP, max_t=4, reduction_factor=2),
    "median": lambda _: MedianStoppingRule(**BY_STEP, grace_period=2, min_samples_required=2),
    "soft median": lambda _: MedianStoppingRule(
        **BY_STEP, grace_period=1, min_samples_required=1, hard_stop=False
    ),
    "pbt": lambda seed: PopulationBasedTraining(
        **BY_STEP, perturbation_interval=2, hyperparam_mutations=MUTATIONS, quantile_fraction=0.4,
        seed=seed,
    ),
    "synchronous pbt": lambda seed: PopulationBasedTraining(
        **BY_STEP, perturbation_interval=1, hyperparam_mutations=MUTATIONS, quantile_fraction=0.5,
        synch=True, seed=seed,
    ),
    "pb2": lambda seed: PB2(
        **BY_STEP, perturbation_interval=1, hyperparam_bounds={"lr": [0, 1]}, quantile_fraction=0.5,
        seed=seed,
    ),
    "resources around pbt": lambda seed: ResourceChangingScheduler(
        PopulationBasedTraining(
            **BY_STEP, perturbation_interval=2, hyperparam_mutations=MUTATIONS, seed=seed
        ),
        TOP,
    ),
}  # fmt: skip

SCORES = (0.0, 1.0, 1.0, -2.5, 3.0, math.nan, math.inf, MISSING)
scripts = st.lists(st.integers(0, 2**16), min_size=1, max_size=60)


def play(study: FakeStudy, script: list[int], trials_max: int = 30) -> FakeStudy:
    """Have happen what a script says; every number is one event, whatever it is."""
    for number in script:
        what, rest = number % 16, number // 16
        running = [one for one in study.trials if one.status == Status.RUNNING]
        waiting = [one for one in study.trials if one.status in (Status.PENDING, Status.PAUSED)]
        if (what < 3 or not study.get_trials()) and len(study.trials) < trials_max:
            study.add()
        elif what == 3 and running:
            study.lose(running[rest % len(running)])
        elif what == 4 and running:
            study.lose(running[rest % len(running)], for_good=True)
        elif what == 5 and running:
            study.complete(running[rest % len(running)])
        elif what == 6 and waiting:
            study.complete(waiting[rest % len(waiting)])  # somebody stops it
        elif running:
            study.report(running[rest % len(running)])
        study.fill()
    return study


def scores_of(script: list[int]) -> Callable[[Trial, int], Any]:
    return lambda trial, time: SCORES[hash((trial.number, time, len(script))) % len(SCORES)]


@pytest.mark.req("U-078")
@pytest.mark.parametrize("name", MAKERS)
@patient
@given(scripts, st.integers(1, 4), st.booleans())
def test_a_scheduler_that_is_made_anew_after_every_call_decides_the_same(
    name: str, script: list[int], slots: int, is_chatty: bool
) -> None:
    make = MAKERS[name]
    given: dict[str, Any] = {"slots": slots, "score": scores_of(script), "is_chatty": is_chatty}
    whole = FakeStudy(make(7), **given)
    killed = FakeStudy(make(7), **given, remade=lambda: make(None))
    play(whole, script)
    play(killed, script)

    assert killed.log == whole.log
    assert killed.files == whole.files
    assert [one.config for one in killed.trials] == [one.config for one in whole.trials]
    assert str(killed.scheduler.get_state()) == str(whole.scheduler.get_state())


@pytest.mark.req("U-078")
@patient
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=1, max_size=5),
    scripts,
)
def test_a_replay_that_is_made_anew_after_every_call_decides_the_same(
    steps: list[tuple[int, int]], script: list[int]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.txt"
        lines = [["0", "1", 0, at, {"lr": 0}, {"lr": lr}] for at, lr in sorted(steps)]
        path.write_text("\n".join(map(json.dumps, lines)))
        whole = FakeStudy(PopulationBasedTrainingReplay(path))
        killed = FakeStudy(
            PopulationBasedTrainingReplay(path), remade=lambda: PopulationBasedTrainingReplay(path)
        )
        play(whole, script, trials_max=1)
        play(killed, script, trials_max=1)

    assert killed.log == whole.log


@pytest.mark.parametrize("name", [name for name in MAKERS if name != "fifo"])
@patient
@given(scripts, st.integers(1, 4), st.booleans())
def test_whatever_happened_the_rest_of_the_study_comes_to_an_end(
    name: str, script: list[int], slots: int, is_chatty: bool
) -> None:
    """No scheduler leaves trials paused for ever, whoever was lost, ended or stopped on the way."""
    study = FakeStudy(MAKERS[name](7), slots=slots, score=scores_of(script), is_chatty=is_chatty)
    play(study, script)
    study.run(until=12)

    assert {trial.status for trial in study.trials} <= {Status.TERMINATED, Status.ERROR}


@patient
@given(
    st.integers(1, 40),
    st.integers(1, 6),
    st.sampled_from([(4, 2), (9, 3), (8, 2), (27, 3)]),
    st.randoms(use_true_random=False),
)
def test_a_bracket_of_n_trials_sends_on_the_best_in_eta_at_each_milestone(
    trials: int, slots: int, shape: tuple[int, int], random: Any
) -> None:
    """Worked out from the paper's formulas alone; the last bracket may have fewer trials."""
    max_t, eta = shape
    scheduler = HyperBandScheduler(metric="score", mode="max", max_t=max_t, reduction_factor=eta)
    worth = random.sample(range(trials), trials)
    study = FakeStudy(scheduler, slots=slots, score=lambda trial, _: worth[trial.number])
    for _ in range(trials):
        study.add()
    study.run()
    rounds = {4: 3, 9: 3, 8: 4, 27: 4}[max_t]
    first, s = 0, 0
    while first < trials:
        size = min(-(-rounds * eta**s // (s + 1)), trials - first)
        order = sorted(range(first, first + size), key=lambda number: -worth[number])
        for halvings in range(s + 1):
            milestone = max_t // eta ** (s - halvings)
            assert all(study.reached()[number] >= milestone for number in order)
            stays = -(-len(order) // eta) if halvings < s else 0
            assert [study.reached()[number] for number in order[stays:]] == [milestone] * (
                len(order) - stays
            )
            order = order[:stays]
        first, s = first + size, (s + 1) % rounds


@patient
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.sampled_from([1.5, 2, 3, 4, 10]))
def test_the_cutoff_of_a_rung_is_numpys_percentile(scores: list[float], factor: float) -> None:
    rung = Rung(1, factor)
    for number, score in enumerate(scores):
        rung.enter(f"t{number}", score)
    found = rung.cutoff()

    assert found is not None
    assert math.isclose(
        found, np.nanpercentile(scores, 100 * (1 - 1 / factor)), rel_tol=1e-9, abs_tol=1e-6
    )


@patient
@given(st.lists(st.integers(-5, 5), min_size=2, max_size=20), st.floats(0, 0.5))
def test_the_quantiles_of_a_population_are_what_they_should_be(
    scores: list[int], fraction: float
) -> None:
    """Everybody who is copied is better than, or as good as, all who are replaced."""
    scheduler = PopulationBasedTraining(
        "training_iteration", "score", "max", 1, 0, {"lr": [1, 2]}, fraction, synch=True, seed=1
    )
    study = FakeStudy(scheduler, slots=99, score=lambda trial, _: scores[trial.number])
    for _ in scores:
        study.add()
    study.fill()
    for trial in list(study.trials):
        study.report(trial)
    if (ahead := study.choose()) and all(one.status == Status.PAUSED for one in study.trials):
        study.start(ahead)
        study.report(ahead)
    moved = [
        (int(entry[1][1:]), int(entry[2][1:])) for entry in study.log if entry[0] == "_exploit"
    ]
    replaced = {trial for trial, _ in moved}
    size = min(math.ceil(len(scores) * fraction), len(scores) // 2)
    order = sorted(range(len(scores)), key=lambda number: (scores[number], -number))

    assert replaced == set(order[:size])
    assert {donor for _, donor in moved} <= set(order[len(order) - size :])
