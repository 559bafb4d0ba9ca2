"""Ours decide as Ray's own schedulers did, result by result; see `record_peer_decisions`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.core.study.trial import Status
from holdfast.testing.fake_study import FakeStudy
from holdfast.tune.schedulers import ASHAScheduler, MedianStoppingRule, TrialScheduler
from tests.unit.tune.schedulers.record_peer_decisions import CASES, FILE, TRIALS, results

RECORDED = json.loads(FILE.read_text())["recorded"]
SHORT = {"CONTINUE": "c", "STOP": "s", "PAUSE": "p"}


def scheduler_of(case: dict[str, Any]) -> TrialScheduler:
    given = {name: value for name, value in case.items() if name != "kind"}
    kind: Any = {"ASHA": ASHAScheduler, "median": MedianStoppingRule}[case["kind"]]
    made = kind(time_attr="training_iteration", metric="score", **given)
    assert isinstance(made, TrialScheduler)
    return made


@pytest.mark.parametrize("recorded", RECORDED, ids=[str(at) for at in range(len(RECORDED))])
def test_ours_decides_as_rays_did(recorded: dict[str, Any]) -> None:
    study = FakeStudy(scheduler_of(recorded["case"]), slots=TRIALS)
    for _ in range(TRIALS):
        study.add()
    study.fill()
    verdicts = ""
    for number, time, score in results(recorded["seed"]):
        trial = study.trials[number]
        is_over = trial.status != Status.RUNNING
        verdicts += "-" if is_over else SHORT[study.report(trial, time, score=score)]

    assert verdicts == recorded["decisions"]


def test_what_was_recorded_is_what_is_asked_for_and_shows_something() -> None:
    assert [entry["case"] for entry in RECORDED] == CASES
    for entry in RECORDED:
        assert entry["decisions"].count("s") >= 5
        assert entry["decisions"].count("c") >= 50
