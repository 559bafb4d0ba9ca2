"""What the acceptance list asks for and no other test shows."""

from __future__ import annotations

import os

import pytest

from holdfast import train
from holdfast.storage import locate
from holdfast.train import WorkerGroupError
from tests.integration.train.conftest import Lab
from tests.integration.train.loops import (
    STATE,
    begin,
    die,
    folder_with,
    is_first,
    is_running,
    note,
    read_notes,
    save,
    wait_for,
)
from tests.patience import pause


@pytest.mark.req("T-054")
def test_a_worker_that_does_not_see_the_storage_says_so_before_training(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine has a folder of that name, and it is another one."""
    its_own = lab.folder / "its own disk"
    its_own.mkdir()
    monkeypatch.setattr(locate, "describe", lambda store: {"path": str(its_own)})
    notes = lab.notes

    with pytest.raises(WorkerGroupError) as caught:
        lab.fit(lambda: note(notes, what="trained"))

    assert str(its_own) in str(caught.value)
    assert "storage path that all machines share" in str(caught.value)
    assert lab.noted("trained") == []


@pytest.mark.req("T-080", "T-041")
def test_failures_before_and_after_a_driver_was_killed_are_charged_to_their_own_launch(
    lab: Lab,
) -> None:
    """One failure is absorbed: there is one, the driver is killed, and there is another one."""
    notes, gate = lab.notes, lab.folder / "gate"

    def loop() -> None:
        for step in range(begin(notes), 4):
            if step == 1 and is_first(notes.with_name("first failure")):
                raise ValueError("before the driver dies")
            if step == 3 and is_first(notes.with_name("second failure")):
                raise ValueError("after the driver died")
            save(step)
            if step == 2 and not gate.exists():
                note(notes, what="may be killed")
                wait_for(gate)

    driver = os.fork()
    if driver == 0:
        try:
            lab.fit(loop, max_failures=1)
        finally:
            os._exit(1)
    while not lab.noted("may be killed"):
        pause()
    os.kill(driver, 9)
    os.waitpid(driver, 0)
    while any(is_running(fact["pid"]) for fact in lab.begun()):
        pause()
    gate.touch()

    result = lab.fit(loop, max_failures=1)

    assert result.metrics == {"step": 3}
    assert [fact["step"] for fact in lab.begun()] == [None, 0, 2, 2]


def test_a_failure_that_repeats_at_the_same_step_is_called_a_bug(
    lab: Lab, capfd: pytest.CaptureFixture[str]
) -> None:
    def loop() -> None:
        if train.get_checkpoint() is None:
            save(0)
        raise ValueError(f"loss is nan at {os.getpid()}")

    with pytest.raises(WorkerGroupError) as caught:
        lab.fit(loop, max_failures=2)

    assert "bug" in str(caught.value)


def test_training_survives_a_folder_for_logs_that_cannot_be_written(lab: Lab) -> None:
    """It says so, and what to do; nothing runs."""
    lab.run.mkdir(parents=True)
    (lab.run / "logs").write_text("a file is in the way")

    with pytest.raises(train.ControllerError) as caught:
        lab.fit(lambda: None, controller_failures=0)

    assert "cannot be written to" in str(caught.value)


def test_a_dead_worker_takes_its_failure_to_the_one_who_asks_later(lab: Lab) -> None:
    with pytest.raises(WorkerGroupError):
        lab.fit(lambda: die("SIGKILL"))

    error = train.Result.from_path(lab.run).error

    assert error is not None and "SIGKILL" in str(error)


def test_a_save_that_is_on_its_way_is_finished_when_another_rank_fails(lab: Lab) -> None:
    """Rank 1 has nothing to add and raises while rank 0 still stores its part."""
    notes, run = lab.notes, lab.run
    raised = notes.with_name("raised")

    def slow(checkpoint: train.Checkpoint, name: str) -> train.Checkpoint:
        notes.with_name("begun").touch()
        wait_for(raised)
        [pid] = [fact["pid"] for fact in read_notes(notes, "began") if fact["rank"] == 1]
        while is_running(pid):
            pause()
        (run / name).mkdir()
        (run / name / STATE).write_text('{"step": 0}')
        return train.Checkpoint.from_directory(run / name)

    def loop() -> None:
        rank, first = train.get_context().get_world_rank(), begin(notes)
        if first == 1:
            return
        if rank == 1:
            train.report({})
            wait_for(notes.with_name("begun"))
            raised.touch()
            raise ValueError("while rank 0 saves")
        with folder_with({STATE: ""}) as folder:
            checkpoint = train.Checkpoint.from_directory(folder)
            train.report({}, checkpoint, checkpoint_upload_fn=slow)

    lab.fit(loop, workers=2, max_failures=1)

    assert [fact["step"] for fact in lab.begun(rank=0)] == [None, 0]
