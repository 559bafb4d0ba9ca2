"""Ranks that do not report in step: found, named, and never mixed into one checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import train
from holdfast.errors import RanksDisagree
from holdfast.train import Checkpoint, CheckpointUploadMode, WorkerGroupError
from tests.integration.train.conftest import Lab
from tests.integration.train.loops import folder_with, note


def save_shard(step: int, mode: CheckpointUploadMode = CheckpointUploadMode.SYNC) -> None:
    rank = train.get_context().get_world_rank()
    with folder_with({f"shard-{rank}": str(step)}) as folder:
        train.report(
            {"step": step},
            checkpoint=Checkpoint.from_directory(folder),
            checkpoint_upload_mode=mode,
            delete_local_checkpoint_after_upload=False,
        )


def shards(lab: Lab) -> list[set[str]]:
    """Return the steps that the shards of each committed checkpoint are of."""
    folders = [lab.run / name for name in lab.committed()]
    return [{path.read_text() for path in folder.iterdir()} for folder in folders]


def is_rank(rank: int) -> bool:
    return train.get_context().get_world_rank() == rank


@pytest.mark.parametrize("mode", [CheckpointUploadMode.SYNC, CheckpointUploadMode.ASYNC])
def test_a_rank_that_reports_an_extra_is_named_and_nothing_is_mixed(
    lab: Lab, mode: CheckpointUploadMode
) -> None:
    def loop() -> None:
        for step in range(1, 5):
            save_shard(step, mode)
            if is_rank(0):
                train.report({"extra": 1})

    with pytest.raises(WorkerGroupError) as caught:
        lab.fit(loop, workers=2)

    error = str(caught.value)
    assert "RanksDisagree: ranks are not in step: the checkpoint of report 2" in error
    assert "  rank 1 saves (test_ranks_in_step.py:" in error
    assert "  rank 0, which saved at report 1, does not (test_ranks_in_step.py:" in error
    assert shards(lab) == [{"1"}]


def test_an_extra_before_the_first_save_is_found_before_anything_is_mixed(lab: Lab) -> None:
    def loop() -> None:
        if is_rank(0):
            train.report({"start": 1})
        for step in range(1, 5):
            save_shard(step)

    with pytest.raises(WorkerGroupError, match="rank 0 saves for the first time"):
        lab.fit(loop, workers=2)

    assert all(len(steps) == 1 for steps in shards(lab))


def test_ranks_that_save_and_return_after_unequal_numbers_of_reports_fail_the_run(lab: Lab) -> None:
    def loop() -> None:
        for step in range(1, 4 if is_rank(0) else 3):
            save_shard(step)

    with pytest.raises(WorkerGroupError, match="rank 1, which saved at report 1, has returned"):
        lab.fit(loop, workers=2)

    assert shards(lab) == [{"1"}, {"2"}]


def test_a_function_that_catches_the_error_does_not_make_the_run_a_success(lab: Lab) -> None:
    def loop(config: dict[str, Path]) -> None:
        for step in range(1, 5):
            try:
                save_shard(step)
            except RanksDisagree as error:
                note(config["notes"], what="refused", hint=error.hint)
            if is_rank(0):
                train.report({"extra": 1})

    with pytest.raises(WorkerGroupError, match="ranks are not in step: the checkpoint of report 2"):
        lab.fit(loop, workers=2, config={"notes": lab.notes})

    assert "make the same reports in the same order" in lab.noted("refused")[0]["hint"]
    assert shards(lab) == [{"1"}]


def test_code_that_is_put_right_carries_on_from_what_was_saved_before(lab: Lab) -> None:
    def loop(config: dict[str, bool]) -> None:
        begin = 1
        if checkpoint := train.get_checkpoint():
            rank = train.get_context().get_world_rank()
            begin = int((Path(checkpoint.path) / f"shard-{rank}").read_text()) + 1
        for step in range(begin, 5):
            save_shard(step)
            if is_rank(0) and config["extra"]:
                train.report({"extra": 1})

    with pytest.raises(WorkerGroupError, match="not in step"):
        lab.fit(loop, workers=2, config={"extra": True}, max_failures=1)
    lab.fit(loop, workers=2, config={"extra": False})

    assert shards(lab) == [{"1"}, {"2"}, {"3"}, {"4"}]


def test_ranks_that_never_save_report_and_return_as_they_like(lab: Lab) -> None:
    def loop() -> None:
        if is_rank(2):
            return
        for step in range(1, 4):
            if is_rank(0):
                save_shard(step)
            else:
                train.report({"step": step})
                train.report({"extra": 1})
        if is_rank(0):
            train.report({"done": 1})

    lab.fit(loop, workers=3)

    assert shards(lab) == [{"1"}, {"2"}, {"3"}]
