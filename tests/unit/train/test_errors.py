from __future__ import annotations

from holdfast.control.run.plan import Outcome
from holdfast.core.run.machine import Ending, Over
from holdfast.core.run.outcomes import Evicted, Raised, WorkerExit
from holdfast.errors import EngineError
from holdfast.train import (
    ControllerError,
    PreemptionError,
    PreemptionInfo,
    RayTrainError,
    TrainingFailedError,
    WorkerGroupError,
    base_trainer,
)
from holdfast.train.errors import failure_of


def failure(*exits: WorkerExit) -> TrainingFailedError:
    return failure_of(Outcome(Over(Ending.FAILED, exits), None, {}, None, attempts=2))


def test_a_run_lost_to_its_machines_says_which() -> None:
    error = failure(
        Evicted(0, "node-0", preempted=True),
        Evicted(1, "node-0", preempted=True),
        Evicted(2, "node-1"),
    )

    assert isinstance(error, PreemptionError)
    assert error.preemption_info == PreemptionInfo(None, {"node-0": [0, 1]})


def test_a_run_whose_workers_never_started_says_what_stood_in_the_way() -> None:
    error = failure()

    assert isinstance(error, ControllerError)
    assert isinstance(error.controller_failure, EngineError)


def test_every_failure_is_caught_by_the_names_of_all_eras() -> None:
    for error in (failure(), failure(Raised(0, "node-0", "ValueError: x", ""))):
        assert isinstance(error, RayTrainError)
        assert isinstance(error, RuntimeError)
        assert isinstance(error, base_trainer.TrainingFailedError)
    assert isinstance(error, WorkerGroupError)
