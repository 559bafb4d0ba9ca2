"""Checkpoints that are validated while training goes on."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast import train
from holdfast.errors import ConfigError
from holdfast.train import (
    Checkpoint,
    CheckpointConfig,
    Interrupted,
    ReportedCheckpointStatus,
    RunConfig,
    ValidationConfig,
    ValidationTaskConfig,
)
from holdfast.train.trainer import DataParallelTrainer
from tests.integration.train.conftest import Lab
from tests.integration.train.loops import (
    STATE,
    die,
    folder_with,
    is_first,
    note,
    read_notes,
    wait_for,
)

STATUS = ReportedCheckpointStatus


def save(step: int, validation: bool | ValidationTaskConfig = True) -> None:
    with folder_with({STATE: json.dumps({"step": step})}) as folder:
        train.report({"step": step}, Checkpoint.from_directory(folder), validation=validation)


def step_of(checkpoint: Checkpoint) -> int:
    with checkpoint.as_directory() as folder:
        step = json.loads(Path(folder, STATE).read_text())["step"]
        assert isinstance(step, int)
        return step


def score(checkpoint: Checkpoint, factor: int = 10) -> dict[str, Any]:
    return {"score": factor * step_of(checkpoint)}


def fit(
    lab: Lab, loop: Any, validation: ValidationConfig | None, keep: int | None = None
) -> train.Result:
    return DataParallelTrainer(
        loop,
        run_config=RunConfig(
            name="run",
            storage_path=str(lab.storage),
            checkpoint_config=CheckpointConfig(
                num_to_keep=keep, checkpoint_score_attribute="score" if keep else None
            ),
        ),
        validation_config=validation,
    ).fit()


def test_what_validation_finds_is_added_to_the_metrics(lab: Lab) -> None:
    def loop() -> None:
        save(1)
        save(2, ValidationTaskConfig(fn_kwargs={"factor": -1}))
        save(3, False)

    result = fit(lab, loop, ValidationConfig(score))

    assert [metrics for _, metrics in result.best_checkpoints] == [
        {"step": 1, "score": 10},
        {"step": 2, "score": -2},
        {"step": 3},
    ]


def test_the_result_has_what_validation_found_of_the_newest_checkpoint(lab: Lab) -> None:
    def loop() -> None:
        if train.get_checkpoint() is None:
            save(1)
            save(2)

    first = fit(lab, loop, ValidationConfig(score))
    second = fit(lab, loop, ValidationConfig(score))

    assert first.metrics == second.metrics == {"step": 2, "score": 20}
    assert train.Result.from_path(lab.run).metrics == {"step": 2, "score": 20}


def test_what_validation_found_is_not_put_into_a_later_report(lab: Lab) -> None:
    def loop() -> None:
        save(1)
        train.report({"step": 2})

    result = fit(lab, loop, ValidationConfig(score))

    assert result.metrics == {"step": 2}


@pytest.mark.parametrize("first", [0, 1, 2])
def test_of_several_ranks_the_lowest_says_how_to_validate(lab: Lab, first: int) -> None:
    """Whichever reports first; rank 0 has no say in it, because it wants no validation."""
    mark = lab.folder / "first"

    def loop() -> None:
        rank = train.get_context().get_world_rank()
        if rank != first:
            wait_for(mark)
        wanted = ValidationTaskConfig(fn_kwargs={"factor": rank}) if rank else False
        with folder_with({STATE: json.dumps({"step": 1})}) as folder:
            train.report(
                {"step": 1},
                Checkpoint.from_directory(folder),
                checkpoint_upload_mode=train.CheckpointUploadMode.ASYNC,
                delete_local_checkpoint_after_upload=False,
                validation=wanted,
            )
        if rank == first:
            mark.touch()

    result = DataParallelTrainer(
        loop,
        scaling_config=train.ScalingConfig(num_workers=3, resources_per_worker={"CPU": 0.1}),
        run_config=RunConfig(name="run", storage_path=str(lab.storage)),
        validation_config=ValidationConfig(score),
    ).fit()

    assert result.metrics == {"step": 1, "score": 1}


def test_retention_waits_for_the_verdict_and_then_follows_it(lab: Lab) -> None:
    def loop() -> None:
        for step in (3, 9, 1, 2):
            save(step)

    result = fit(lab, loop, ValidationConfig(score), keep=1)

    assert [metrics["step"] for _, metrics in result.best_checkpoints] == [2, 9]


def test_the_list_of_checkpoints_waits_until_all_are_validated(lab: Lab) -> None:
    notes, gate = lab.notes, lab.folder / "gate"

    def slow(checkpoint: Checkpoint) -> dict[str, Any]:
        wait_for(gate)
        return {"score": 1}

    def loop() -> None:
        save(1)
        committed = train.get_all_reported_checkpoints(train.CheckpointConsistencyMode.COMMITTED)
        impatient = train.get_all_reported_checkpoints(timeout_s=0.05)
        gate.touch()
        validated = train.get_all_reported_checkpoints()
        found = [kept[0].status.name for kept in (committed, impatient, validated)]
        note(notes, what="statuses", found=found)

    fit(lab, loop, ValidationConfig(slow))

    [fact] = lab.noted("statuses")
    assert fact["found"] == ["PENDING_VALIDATION", "PENDING_VALIDATION", "VALIDATED"]


@pytest.mark.parametrize(
    ("way", "status", "said"),
    [
        ("raises", STATUS.VALIDATION_FAILED, "ValueError: a bug in validation"),
        ("dies", STATUS.VALIDATION_FAILED, "SIGKILL"),
        ("returns a list", STATUS.VALIDATION_FAILED, "returned ['score', 1], which is not"),
        ("takes too long", STATUS.VALIDATION_TIMEOUT, "took too long"),
    ],
)
def test_a_validation_that_fails_fails_nothing_else(
    lab: Lab,
    way: str,
    status: ReportedCheckpointStatus,
    said: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    notes, never = lab.notes, lab.folder / "never"

    def validate(checkpoint: Checkpoint) -> Any:
        if step_of(checkpoint) == 2:
            return {"score": 2}
        match way:
            case "raises":
                raise ValueError("a bug in validation")
            case "dies":
                die("SIGKILL")
            case "takes too long":
                wait_for(never)
        return ["score", 1]

    def loop() -> None:
        save(1, ValidationTaskConfig(timeout_s=0.1) if way == "takes too long" else True)
        save(2)
        found = [one.status.value for one in train.get_all_reported_checkpoints()]
        note(notes, what="statuses", found=found)

    result = fit(lab, loop, ValidationConfig(validate))

    assert lab.noted("statuses")[0]["found"] == [status.value, STATUS.VALIDATED.value]
    assert said in caplog.text and "validation of checkpoint_000000" in caplog.text
    assert result.metrics is not None and result.metrics["step"] == 2


def test_a_validation_that_a_driver_left_undone_is_done_by_the_next(lab: Lab) -> None:
    def loop() -> None:
        if train.get_checkpoint() is None:
            save(1)
            raise ValueError("no retries")

    with pytest.raises(train.TrainingFailedError):
        fit(lab, loop, ValidationConfig(hangs_for_ever))
    result = fit(lab, loop, ValidationConfig(lambda checkpoint: {"score": 7}))

    assert [metrics for _, metrics in result.best_checkpoints] == [{"step": 1, "score": 7}]


def hangs_for_ever(checkpoint: Checkpoint) -> dict[str, Any]:
    threading.Event().wait()
    return {}


def test_validation_without_a_way_to_validate_is_refused(lab: Lab) -> None:
    notes = lab.notes

    def loop() -> None:
        try:
            save(1)
        except ConfigError as error:
            note(notes, what="refused", text=str(error))

    fit(lab, loop, None)

    assert "validation_config=" in lab.noted("refused")[0]["text"]


def test_a_driver_that_is_told_to_go_does_not_wait_for_validation_and_the_next_one_does_it(
    lab: Lab,
) -> None:
    driver, told, never = os.getpid(), lab.folder / "told", lab.folder / "never"

    def endless(checkpoint: Checkpoint) -> dict[str, Any]:
        if is_first(told):
            os.kill(driver, signal.SIGTERM)
            wait_for(never)
        return score(checkpoint)

    def loop() -> None:
        if train.get_checkpoint() is None:
            save(1)

    with pytest.raises(Interrupted):
        fit(lab, loop, ValidationConfig(endless))
    result = fit(lab, loop, ValidationConfig(endless))

    assert result.best_checkpoints[-1][1] == {"step": 1, "score": 10}


class Passing(Exception):
    """Something that is over the next time."""


@pytest.mark.parametrize(
    ("kind", "remote", "tries"),
    [
        ("raises", {"max_retries": 2, "retry_exceptions": [KeyError, Passing]}, 3),
        ("raises", {"max_retries": 2, "retry_exceptions": True}, 3),
        ("raises", {"max_retries": -1, "retry_exceptions": [Exception]}, 3),
        ("raises", {"max_retries": 1, "retry_exceptions": [Passing]}, 2),
        ("raises", {"max_retries": 2, "retry_exceptions": [KeyError]}, 1),
        ("raises", {"max_retries": 2}, 1),
        ("raises", None, 1),
        ("dies", {"max_retries": 2}, 3),
        ("dies", None, 1),
    ],
)
def test_a_validation_is_tried_again_as_often_as_was_said(
    lab: Lab, kind: str, remote: dict[str, Any] | None, tries: int
) -> None:
    """It works the third time."""
    notes = lab.notes

    def check(checkpoint: Checkpoint) -> dict[str, Any]:
        note(notes, what="try")
        if len(read_notes(notes, "try")) < 3:
            if kind == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            raise Passing("not yet")
        return {"score": 1}

    result = fit(lab, lambda: save(1), ValidationConfig(check, ray_remote_kwargs=remote))

    assert len(lab.noted("try")) == tries
    assert (result.metrics == {"step": 1, "score": 1}) == (tries == 3)


def test_what_a_validation_does_not_need_is_named_once_and_bad_values_are_refused() -> None:
    with pytest.warns(UserWarning, match="ignores: num_cpus, num_gpus"):
        ValidationConfig(score, ray_remote_kwargs={"num_gpus": 1, "num_cpus": 2})
    with pytest.raises(ConfigError) as refused:
        ValidationConfig(
            score, ray_remote_kwargs={"max_retries": "2", "retry_exceptions": ["ValueError"]}
        )

    assert "max_retries" in str(refused.value) and "retry_exceptions" in str(refused.value)
