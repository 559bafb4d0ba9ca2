"""Workers that stop without ending: they are found, told of, and replaced."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from pathlib import Path

import pytest

from holdfast import train
from holdfast.testing.suites.engine import state_of
from holdfast.train import FailureConfig, RunConfig, ScalingConfig, WorkerGroupError
from holdfast.train.trainer import DataParallelTrainer
from tests.integration.train.conftest import Lab
from tests.integration.train.hang_clock import watch_for_hangs_while
from tests.integration.train.loops import begin, is_first, note, save

TIMEOUT_S = 1.0


def stop_process() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def wait_for_a_lock_that_nobody_lets_go() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def hold_the_interpreter() -> None:
    """Loop inside a function of C, which lets no other thread run, ever."""
    sum(itertools.repeat(0))


def loop_in_python() -> None:
    for _ in itertools.count():
        pass


WAYS = {
    "SIGSTOP": stop_process,
    "deadlock": wait_for_a_lock_that_nobody_lets_go,
    "the interpreter held": hold_the_interpreter,
    "an endless loop": loop_in_python,
}


def trainer(lab: Lab, loop: object, *, workers: int, max_failures: int) -> DataParallelTrainer:
    failures = FailureConfig(max_failures=max_failures, hang_timeout_s=TIMEOUT_S, backoff_max_s=0.0)
    return DataParallelTrainer(
        loop,  # type: ignore[arg-type]
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(name="run", storage_path=str(lab.storage), failure_config=failures),
    )


@pytest.mark.req("T-040")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("others", ["wait at a barrier", "wait in report"])
def test_a_worker_that_hangs_is_found_and_replaced(
    lab: Lab, way: str, others: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = lab.notes
    hangs = notes.with_name("hang")
    watch_for_hangs_while(monkeypatch, lambda: hangs.exists() and len(lab.begun(rank=0)) == 1)

    def loop() -> None:
        rank = train.get_context().get_world_rank()
        for step in range(begin(notes), 4):
            if step == 2 and rank == 1 and is_first(hangs):
                WAYS[way]()
            if others == "wait at a barrier":
                train.collective.barrier()
            save(step)

    result = trainer(lab, loop, workers=2, max_failures=1).fit()

    assert result.metrics == {"step": 3}
    assert [fact["step"] for fact in lab.begun(rank=0)] == [None, 1]
    stacks = (lab.run / "logs" / "attempt-1" / "stacks.txt").read_text()
    assert "rank 0" in stacks and "rank 1" in stacks
    assert not (lab.run / "logs" / "attempt-2" / "stacks.txt").exists()


def test_the_error_names_the_rank_that_stopped_first_and_where(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = lab.notes

    def all_wait() -> bool:
        at_step_2 = [fact["pid"] for fact in lab.noted("step 2")]
        return len(at_step_2) == 3 and all(state_of(pid) == "S" for pid in at_step_2)

    watch_for_hangs_while(monkeypatch, all_wait)

    def loop() -> None:
        for step in range(begin(notes), 4):
            if step == 2:
                note(notes, what="step 2", pid=os.getpid())
            if step == 2 and train.get_context().get_world_rank() == 1:
                wait_for_a_lock_that_nobody_lets_go()
            save(step)

    with pytest.raises(WorkerGroupError) as caught:
        trainer(lab, loop, workers=3, max_failures=0).fit()

    said = str(caught.value)
    assert "rank 1 stopped first" in said
    assert "wait_for_a_lock_that_nobody_lets_go" in said
    assert str(lab.run / "logs" / "attempt-1" / "stacks.txt") in said
    result = caught.value.result
    assert result is not None
    assert result.metrics == {"step": 2}  # said by rank 0, which did not hang
    assert result.best_checkpoints[-1][1] == {"step": 1}


def test_a_slow_step_is_no_hang_while_a_checkpoint_is_on_its_way(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The upload takes longer than the time a group may be silent."""
    notes, run = lab.notes, lab.run
    watch_for_hangs_while(
        monkeypatch, lambda: len(lab.noted("uploads")) > len(lab.noted("uploaded"))
    )

    def slow(checkpoint: train.Checkpoint, name: str) -> train.Checkpoint:
        note(notes, what="uploads")
        threading.Event().wait(3 * TIMEOUT_S)
        note(notes, what="uploaded")
        (run / name).mkdir()
        (run / name / "file").write_text("x")
        return train.Checkpoint.from_directory(run / name)

    def loop() -> None:
        begin_at = Path(notes).parent / "folder"
        begin_at.mkdir()
        for step in range(3):
            train.report({"step": step})
        checkpoint = train.Checkpoint.from_directory(begin_at)
        train.report({"step": 3}, checkpoint, checkpoint_upload_fn=slow)
        note(notes, what="saved")

    trainer(lab, loop, workers=1, max_failures=0).fit()

    assert len(lab.noted("saved")) == 1
