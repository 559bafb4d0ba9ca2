"""Workers that end in every way and at every moment, and the attempts that follow."""

from __future__ import annotations

import os

import pytest

from holdfast import train
from holdfast.train import TrainingFailedError, WorkerGroupError
from holdfast.train.collective import barrier
from tests.integration.train.conftest import Lab
from tests.integration.train.loops import (
    DEATHS,
    begin,
    die,
    is_first,
    note,
    read_notes,
    save,
    train_until_death,
)


@pytest.mark.req("T-001", "T-039")
@pytest.mark.parametrize("moment", ["at launch", "before report", "after report"])
@pytest.mark.parametrize("way", DEATHS)
def test_a_run_survives_a_worker_that_ends(lab: Lab, way: str, moment: str) -> None:
    notes = lab.notes

    result = lab.fit(lambda: train_until_death(notes, way, moment, {1}), workers=2, max_failures=1)

    assert result.metrics == {"step": 2}
    assert result.error is None
    assert len(lab.begun(rank=1)) == (1 if moment == "at launch" else 2)


@pytest.mark.req("T-036", "T-007")
@pytest.mark.parametrize("dying", [{0}, {1, 2}, {0, 1, 2}], ids=["one", "two", "all"])
@pytest.mark.parametrize("way", ["SIGKILL", "ValueError"])
def test_any_number_of_ranks_that_fail_together_cost_one_retry(
    lab: Lab, way: str, dying: set[int]
) -> None:
    notes = lab.notes

    def loop() -> None:
        first = is_first(notes.with_name(f"start of {train.get_context().get_world_rank()}"))
        begin(notes)
        barrier()
        if first and train.get_context().get_world_rank() in dying:
            die(way)
        barrier()

    lab.fit(loop, workers=3, max_failures=1)

    assert [len(lab.begun(rank)) for rank in range(3)] == [2, 2, 2]


@pytest.mark.req("T-002", "T-003", "T-043", "T-045")
def test_a_new_attempt_has_all_ranks_in_new_processes_and_none_of_the_old(lab: Lab) -> None:
    notes = lab.notes

    def loop() -> None:
        begin(notes)
        barrier()
        if train.get_context().get_world_rank() == 1 and is_first(notes.with_name("death")):
            die("SIGKILL")
        barrier()

    lab.fit(loop, workers=3, max_failures=1)

    old, new = lab.begun()[:3], lab.begun()[3:]
    assert sorted(fact["rank"] for fact in new) == [0, 1, 2]
    assert [fact["world_size"] for fact in new] == [3, 3, 3]
    assert not {fact["pid"] for fact in old} & {fact["pid"] for fact in new}
    assert all(fact["before"] >= 3 for fact in new), "the old ones were not looked for"
    assert all(not set(fact["alive"]) & {one["pid"] for one in old} for fact in new)


@pytest.mark.req("T-004", "T-008", "T-009", "T-050", "T-042")
@pytest.mark.parametrize("allowed", [0, 1, 2])
def test_there_is_one_attempt_more_than_failures_allowed(lab: Lab, allowed: int) -> None:
    notes = lab.notes

    def loop() -> None:
        begin(notes)
        barrier()
        raise ValueError("always")

    with pytest.raises(WorkerGroupError, match="ValueError: always"):
        lab.fit(loop, workers=2, max_failures=allowed)

    assert len(lab.begun(rank=0)) == allowed + 1
    assert len(lab.begun(rank=1)) == allowed + 1


@pytest.mark.req("T-009")
def test_as_many_failures_as_are_allowed_still_end_well(lab: Lab) -> None:
    notes = lab.notes

    def loop() -> str:
        begin(notes)
        if is_first(notes.with_name("one")) or is_first(notes.with_name("two")):
            die("SIGKILL")
        return "done"

    result = lab.fit(loop, max_failures=2)

    assert result.return_value == "done"
    assert len(lab.begun()) == 3


@pytest.mark.req("T-049")
def test_by_default_the_first_failure_ends_the_run(lab: Lab) -> None:
    notes = lab.notes

    def loop() -> None:
        begin(notes)
        die("SIGKILL")

    trainer = train.DataParallelTrainer(
        loop, run_config=train.RunConfig(name="run", storage_path=str(lab.storage))
    )
    with pytest.raises(TrainingFailedError, match="killed by SIGKILL"):
        trainer.fit()

    assert len(lab.begun()) == 1


@pytest.mark.req("T-010", "T-051")
def test_without_a_limit_any_number_of_failures_is_absorbed(lab: Lab) -> None:
    notes = lab.notes

    def loop() -> int:
        begin(notes)
        tries = len(read_notes(notes, "began"))
        if tries <= 25:
            die("SIGKILL" if tries % 2 else "ValueError")
        return tries

    result = lab.fit(loop, max_failures=-1)

    assert result.return_value == 26


@pytest.mark.req("T-048")
def test_failures_of_different_kinds_are_counted_together(lab: Lab) -> None:
    notes = lab.notes
    kinds = ["SIGKILL", "ValueError", "os._exit(0)", "sys.exit(0)"]

    def loop() -> None:
        begin(notes)
        die(kinds[len(read_notes(notes, "began")) - 1])

    with pytest.raises(WorkerGroupError, match="SystemExit"):
        lab.fit(loop, max_failures=3)

    assert len(lab.begun()) == 4


@pytest.mark.req("T-005", "T-011", "T-046")
def test_no_committed_step_is_done_again(lab: Lab) -> None:
    notes = lab.notes

    def loop() -> None:
        for step in range(begin(notes), 6):
            note(notes, what="did", step=step)
            save(step)
            if step in (1, 3) and is_first(notes.with_name(f"death at {step}")):
                die("SIGKILL")

    lab.fit(loop, max_failures=2)

    assert [fact["step"] for fact in lab.noted("did")] == [0, 1, 2, 3, 4, 5]
    assert [fact["step"] for fact in lab.begun()] == [None, 1, 3]


@pytest.mark.req("T-012")
@pytest.mark.parametrize("dying", [{0}, {1}, {0, 1}], ids=["rank 0", "rank 1", "both"])
@pytest.mark.parametrize("way", ["SIGKILL", "ValueError", "os._exit(0)"])
def test_the_checkpoint_that_report_returned_for_is_the_one_offered(
    lab: Lab, way: str, dying: set[int]
) -> None:
    """Not a moment lies between the return of `report` and the death."""
    notes = lab.notes

    result = lab.fit(
        lambda: train_until_death(notes, way, "after report", dying), workers=2, max_failures=1
    )

    assert [fact["step"] for fact in lab.begun()] == [None, None, 1, 1]
    assert result.metrics == {"step": 2}


@pytest.mark.req("T-055")
def test_a_death_in_the_middle_of_a_save_leaves_the_checkpoint_before_it(lab: Lab) -> None:
    notes = lab.notes

    lab.fit(lambda: train_until_death(notes, "SIGKILL", "in", {0}), workers=2, max_failures=1)

    assert [fact["step"] for fact in lab.begun()] == [None, None, 0, 0]
    assert lab.committed() == ["checkpoint_000000", "checkpoint_000002", "checkpoint_000003"]


@pytest.mark.req("T-006", "T-047")
def test_a_loop_that_saves_and_does_not_load_starts_over_and_completes(lab: Lab) -> None:
    notes = lab.notes

    def loop() -> None:
        begin(notes)
        for step in range(3):
            note(notes, what="did", step=step)
            save(step)
            if step == 1 and is_first(notes.with_name("death")):
                die("SIGKILL")

    result = lab.fit(loop, max_failures=1)

    assert [fact["step"] for fact in lab.noted("did")] == [0, 1, 0, 1, 2]
    assert result.metrics == {"step": 2}


@pytest.mark.req("T-006", "T-013")
def test_a_loop_that_never_saves_starts_from_scratch(lab: Lab) -> None:
    notes = lab.notes

    def loop() -> None:
        for step in range(begin(notes), 3):
            note(notes, what="did", step=step)
            train.report({"step": step})
            if step == 1 and is_first(notes.with_name("death")):
                die("SIGKILL")

    lab.fit(loop, max_failures=1)

    assert [fact["step"] for fact in lab.noted("did")] == [0, 1, 0, 1, 2]
    assert [fact["step"] for fact in lab.begun()] == [None, None]


def test_what_a_failed_run_has_saved_comes_with_the_error(lab: Lab) -> None:
    def loop() -> None:
        save(0)
        raise ValueError("loss is nan")

    with pytest.raises(WorkerGroupError) as caught:
        lab.fit(loop)

    assert caught.value.result is not None
    assert caught.value.result.metrics == {"step": 0}
    assert caught.value.result.error is caught.value
    assert [type(error) for error in caught.value.worker_failures.values()] == [ValueError]


def test_the_error_shows_where_user_code_raised_and_nothing_of_ours(lab: Lab) -> None:
    def loop() -> None:
        raise ValueError("loss is nan")

    with pytest.raises(WorkerGroupError) as caught:
        lab.fit(loop)

    assert 'raise ValueError("loss is nan")' in str(caught.value)
    assert "holdfast/worker" not in str(caught.value)


def test_what_a_worker_prints_is_in_its_own_log(lab: Lab) -> None:
    notes = lab.notes

    def loop() -> None:
        os.write(1, f"hello from {train.get_context().get_world_rank()}\n".encode())
        barrier()
        if is_first(notes):
            die("SIGKILL")
        barrier()

    lab.fit(loop, workers=2, max_failures=1)

    logs = {
        str(path.relative_to(lab.run)): path.read_text()
        for path in sorted((lab.run / "logs").rglob("*.log"))
    }
    assert logs == {
        "logs/attempt-1/rank-0.log": "hello from 0\n",
        "logs/attempt-1/rank-1.log": "hello from 1\n",
        "logs/attempt-2/rank-0.log": "hello from 0\n",
        "logs/attempt-2/rank-1.log": "hello from 1\n",
    }
