"""Calls of a training function that cannot work: what they say, and that nothing suffers."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import train
from holdfast.errors import ConfigError
from holdfast.storage.local.store import LocalStore
from holdfast.train import Checkpoint, CheckpointUploadMode, FailureConfig, WorkerGroupError
from tests.integration.train.conftest import Lab
from tests.integration.train.loops import folder_with
from tests.metric_rows import steps, told


def save(**options: Any) -> None:
    with folder_with({"model": "x"}) as folder:
        train.report({"loss": 1.0}, Checkpoint.from_directory(folder), **options)


def endless() -> dict[str, Any]:
    metrics: dict[str, Any] = {}
    metrics["again"] = metrics
    return metrics


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "a name that is none": (lambda: save(checkpoint_dir_name=3), "checkpoint_dir_name=3"),
    "a name that leads out": (lambda: save(checkpoint_dir_name="../x"), "'../x'"),
    "a mode as text": (lambda: save(checkpoint_upload_mode="async"), "CheckpointUploadMode.SYNC"),
    "an upload that is none": (lambda: save(checkpoint_upload_fn=3), "checkpoint_upload_fn=3"),
    "a text for a flag": (
        lambda: save(
            checkpoint_upload_mode=CheckpointUploadMode.ASYNC,
            delete_local_checkpoint_after_upload="no",
        ),
        "delete_local_checkpoint_after_upload='no'",
    ),
    "too large a number": (lambda: train.report({"fine": 1, "big": 2**70}), "'big'"),
    "half a character": (lambda: train.report({"half": {"a": "\ud800"}}), "'half'"),
    "metrics of themselves": (lambda: train.report(endless()), "hold themselves"),
    "a time as text": (
        lambda: train.get_all_reported_checkpoints(timeout_s="1"),  # type: ignore[arg-type]
        "timeout_s='1'",
    ),
}


def test_a_call_that_cannot_work_says_why_and_costs_no_report(lab: Lab) -> None:
    """On every rank: what one of them sent by mistake must not disturb the driver either."""

    def loop() -> dict[str, str]:
        said = {}
        for case, (call, _) in BAD.items():
            with pytest.raises(ConfigError) as refused:
                call()
            said[case] = str(refused.value)
        save()
        return said

    result = lab.fit(loop, workers=2)

    for case, (_, message) in BAD.items():
        assert message in result.return_value[case], case
    assert lab.committed() == ["checkpoint_000000"]
    assert steps(LocalStore(lab.run)) == [1], "what was refused was counted"


def test_a_process_that_a_worker_forks_cannot_report_in_its_name(lab: Lab) -> None:
    notes = lab.notes

    def loop() -> tuple[int, int]:
        train.report({"by": "worker"})
        child = os.fork()
        if child == 0:
            try:
                train.report({"by": "child"})
            except RuntimeError as error:
                notes.write_text(str(error))
            finally:
                os._exit(train.get_context().get_world_size())
        _, status = os.waitpid(child, 0)
        train.report({"by": "worker"})
        return os.waitstatus_to_exitcode(status), train.get_context().get_world_size()

    result = lab.fit(loop)

    said = [metrics for _, _, metrics in told(LocalStore(lab.run))]
    assert said == [{"by": "worker"}, {"by": "worker"}]
    assert "only the worker itself can report" in notes.read_text()
    assert result.return_value == (1, 1), "a child knows its worker's place"


def test_ranks_that_wait_for_each_other_at_different_places_are_told_the_rule(lab: Lab) -> None:
    def loop() -> None:
        if train.get_context().get_world_rank() == 0:
            save()
        else:
            train.collective.barrier()

    with pytest.raises(WorkerGroupError) as caught:
        lab.trainer(loop, workers=2, failure_config=FailureConfig(late_timeout_s=0.1)).fit()

    rules = {
        0: "rank 1 did not deliver within 0.1 s; every rank makes every report",
        1: "rank 0 did not come within 0.1 s; all ranks meet",
    }
    assert caught.value.worker_failures, "the one who is told first may end the wait of the other"
    for rank, error in caught.value.worker_failures.items():
        assert rules[rank] in str(error)
