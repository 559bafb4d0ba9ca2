"""Population based training beside tables worked by hand.

As in the paper (Jaderberg et al. 2017): a trial in the bottom 20 % of the population copies weights
and hyperparameters of one of the top 20 %, each as likely as the other, and explores: it multiplies
every hyperparameter by 1.2 or 0.8, or draws it anew from where it came from.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.testing.fake_study import FakeStudy
from holdfast.tune.search.sample import choice, randint, uniform
from holdfast.tune.trial import Trial
from tests.unit.tune.schedulers.test_pbt import meet, pbt

# Nearly all draws are far from the best value times a factor, so the two can be distinguished.
MUTATIONS = {
    "lr": uniform(0.0, 5000.0),
    "batch": randint(1, 1_000_000),
    "layers": [1, 2, 4, 8],
    "unit": choice(["relu", "tanh", "elu"]),
}
POPULATION = [  # score, and config
    (0.52, {"lr": 0.30, "batch": 10, "layers": 1, "unit": "elu", "id": 0}),
    (0.91, {"lr": 0.02, "batch": 64, "layers": 4, "unit": "relu", "id": 1}),  # best
    (0.13, {"lr": 0.40, "batch": 11, "layers": 1, "unit": "elu", "id": 2}),  # worst but one
    (0.77, {"lr": 0.50, "batch": 12, "layers": 1, "unit": "elu", "id": 3}),
    (0.35, {"lr": 0.60, "batch": 13, "layers": 1, "unit": "elu", "id": 4}),
    (0.64, {"lr": 0.70, "batch": 14, "layers": 1, "unit": "elu", "id": 5}),
    (0.08, {"lr": 0.80, "batch": 15, "layers": 1, "unit": "elu", "id": 6}),  # worst
    (0.88, {"lr": 0.10, "batch": 7, "layers": 8, "unit": "tanh", "id": 7}),  # best but one
    (0.41, {"lr": 0.90, "batch": 16, "layers": 1, "unit": "elu", "id": 8}),
    (0.70, {"lr": 1.00, "batch": 17, "layers": 1, "unit": "elu", "id": 9}),
]
SEEDS = 60  # of two ways that are as likely, one is not seen once in 2 ** 60


def score(trial: Trial, time: int) -> float:
    return POPULATION[trial.number][0]


def after_a_round(seed: int, resample_probability: float) -> FakeStudy:
    scheduler = pbt(
        hyperparam_mutations=MUTATIONS, quantile_fraction=0.2, synch=True, seed=seed,
        resample_probability=resample_probability,
    )  # fmt: skip
    study = FakeStudy(scheduler, slots=10, score=score)
    for _, config in POPULATION:
        study.add(dict(config))
    study.fill()
    meet(study, 2)
    return study


def exploits(study: FakeStudy) -> list[tuple[str, str]]:
    return [(entry[1], entry[2]) for entry in study.log if entry[0] == "_exploit"]


def explored(resample_probability: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the trial that was copied, and the config made from it."""
    for seed in range(SEEDS):
        study = after_a_round(seed, resample_probability)
        for member, donor in exploits(study):
            yield donor, study.trials[int(member[1:])].config


def test_the_two_worst_of_ten_become_one_of_the_two_best_each() -> None:
    """Worst first: 6 2 | 4 8 0 5 9 3 | 7 1."""
    seen: Counter[tuple[str, str]] = Counter()
    for seed in range(SEEDS):
        study = after_a_round(seed, 0.25)
        seen.update(exploits(study))
        for number in (0, 1, 3, 4, 5, 7, 8, 9):
            assert study.trials[number].config == POPULATION[number][1]

    assert set(seen) == {("t6", "t7"), ("t6", "t1"), ("t2", "t7"), ("t2", "t1")}
    assert all(15 <= times <= 45 for times in seen.values()), seen  # 30 are expected
    assert sum(seen.values()) == 2 * SEEDS


@pytest.mark.parametrize(
    ("donor", "name", "allowed"),
    [
        ("t1", "lr", {0.02 * 1.2, 0.02 * 0.8}),
        ("t7", "lr", {0.10 * 1.2, 0.10 * 0.8}),
        ("t1", "batch", {77, 51}),  # 76.8 and 51.2: it stays whole
        ("t7", "batch", {8, 6}),  # 8.4 and 5.6
        ("t1", "layers", {2, 8}),  # a list has neighbours, not factors
        ("t7", "layers", {4, 8}),  # the last has one only, and may stay
        ("t1", "unit", {"relu", "tanh"}),  # the first too
        ("t7", "unit", {"relu", "elu"}),
        ("t1", "id", {1}),  # what is not to be explored is copied
        ("t7", "id", {7}),
    ],
)
def test_without_drawing_every_value_is_perturbed_and_none_otherwise(
    donor: str, name: str, allowed: set[Any]
) -> None:
    values = {config[name] for value, config in perturbed_configs() if value == donor}

    assert values == allowed
    assert {type(value) for value in values} == {type(value) for value in allowed}


@functools.cache
def perturbed_configs() -> list[tuple[str, dict[str, Any]]]:
    return list(explored(0.0))


def test_each_value_is_perturbed_by_itself() -> None:
    """One may go up while another goes down: of two values there are four ways."""
    ways = {
        (config["lr"] > 0.02, config["batch"] > 64)
        for donor, config in perturbed_configs()
        if donor == "t1"
    }

    assert len(ways) == 4


def test_with_drawing_alone_every_value_comes_from_where_it_could_at_first() -> None:
    configs = [config for _, config in explored(1.0)]

    assert all(0.0 <= config["lr"] <= 5000.0 for config in configs)
    assert all(1 <= config["batch"] < 1_000_000 for config in configs)
    assert 2000 < sum(config["lr"] for config in configs) / len(configs) < 3000
    assert {config["layers"] for config in configs} == {1, 2, 4, 8}
    assert {config["unit"] for config in configs} == {"relu", "tanh", "elu"}
    assert {config["id"] for config in configs} == {1, 7}


def test_with_both_each_value_is_resampled_with_the_given_probability() -> None:
    configs = [config for _, config in explored(0.25)]
    drawn = [(config["lr"] >= 5.0, config["batch"] >= 1000) for config in configs]

    assert len(configs) == 120
    assert 15 <= sum(lr for lr, _ in drawn) <= 45  # 30 are expected
    assert 15 <= sum(batch for _, batch in drawn) <= 45
    assert {(True, False), (False, True), (False, False)} <= set(drawn)  # each by itself


# Members become ready one after the other, and are ranked among those that were before them.
# Of n, ceil(0.2 n) are worst and as many best, and never more than half. Who was copied keeps its
# place in the ranking until it is judged again.
#   the trial that is ready, its score, the outcome, the trials that it may copy
READY = [
    ("t0", 5.0, "goes on", ""),  # 0, alone
    ("t1", 3.0, "goes on", ""),  # 1 0: the worst of 2, but 0 was never best and has not saved
    ("t2", 8.0, "saves", ""),  # 1 0 2
    ("t3", 1.0, "copies", "t2"),  # 3 1 0 2
    ("t4", 9.0, "saves", ""),  # 3 1 0 2 4: 5 * 0.2 = 1 is worst
    ("t5", 4.0, "goes on", ""),  # 3 1 5 0 2 4: 6 * 0.2 = 1.2, so 2
    ("t6", 2.0, "copies", "t2 t4"),  # 3 6 1 5 0 2 4
    ("t7", 6.0, "goes on", ""),  # 3 6 1 5 0 7 2 4
    ("t8", 7.0, "goes on", ""),  # 3 6 1 5 0 7 8 2 4: the third best of 9
    ("t9", 2.5, "goes on", ""),  # 3 6 9 1 5 0 7 8 2 4: 10 * 0.2 = 2, and this is the third
    ("t1", 0.5, "copies", "t2 t4"),  # 1 3 6 9 5 0 7 8 2 4
    ("t3", 9.2, "saves", ""),  # 1 6 9 5 0 7 8 2 4 3: what was copied does well
    ("t2", 1.5, "copies", "t3 t4"),  # 1 2 6 9 5 0 7 8 4 3: a trial that was best may become worst
    ("t6", 9.1, "saves", ""),  # 1 2 9 5 0 7 8 4 6 3
    ("t4", 6.5, "goes on", ""),  # 1 2 9 5 0 7 4 8 6 3
    ("t9", 1.0, "copies", "t3 t6"),  # 1 9 2 5 0 7 4 8 6 3
]


def test_members_that_become_ready_one_by_one_are_ranked_among_those_before() -> None:
    donors: dict[int, set[str]] = {row: set() for row in range(len(READY))}
    for seed in range(SEEDS):
        study = FakeStudy(pbt(quantile_fraction=0.2, seed=seed), slots=10)
        for _ in range(10):
            study.add({"lr": 0.5})
        study.fill()
        for row, (name, score, outcome, _) in enumerate(READY):
            before = len(study.log)
            time = study.times[name] + 2
            decision = study.report(study.trials[int(name[1:])], time, score=score)
            study.fill()
            done = [entry[:3] for entry in study.log[before:] if entry[0] in ("_exploit", "_save")]
            donors[row].update(entry[2] for entry in done if entry[0] == "_exploit")

            assert decision == ("NOOP" if outcome == "copies" else "CONTINUE"), row
            whats = {"copies": ["_exploit"], "saves": ["_save"], "goes on": []}[outcome]
            assert [entry[:2] for entry in done] == [(what, name) for what in whats], row

    assert [" ".join(sorted(names)) for names in donors.values()] == [row[3] for row in READY]
