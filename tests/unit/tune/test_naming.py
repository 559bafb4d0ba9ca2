"""What trials and their folders are called."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from holdfast.tune import TuneConfig
from holdfast.tune.naming import Namer
from holdfast.tune.search.generator import Proposal
from tests.unit.core.studies import Judge, study_of


def test_a_trial_that_a_killed_driver_had_no_record_of_gets_its_folder_again() -> None:
    spec: Any = SimpleNamespace(trainable=SimpleNamespace(name="train"), tune_config=TuneConfig())
    proposal = Proposal("abc_00000", 0, {"lr": 0.1}, {"lr": 0.1}, "0_lr=0.1")
    created = 1e9  # long before either driver

    _, folder = Namer(spec, study_of(Judge()), created).names_of(proposal)

    day = time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(created))
    assert folder == f"train_abc_00000_0_lr=0.1_{day}"
