"""Hand-worked rules of the run machine, one at a time."""

from __future__ import annotations

import pytest

from holdfast.core.run.budget import Budget, blame
from holdfast.core.run.machine import (
    Active,
    CheckpointCommitted,
    DriverStarted,
    Ending,
    GroupEnded,
    GroupNotStarted,
    Over,
    Run,
    StartGroup,
    StopRequested,
    advance,
)
from holdfast.core.run.outcomes import Blame, Died, Evicted, Finished, Hung, Raised, WorkerExit

RAISED = Raised(1, "n", "ValueError: loss is nan", "trace")
DIED = Died(0, "n", 7, signal=9)
STOPPED = Evicted(0, "n")


def started(failures: int | None = 0, **limits: int | None) -> Run:
    return advance(Run(), DriverStarted(Budget(failures=failures, **limits))).run


def lose(run: Run, *exits: WorkerExit) -> Run:
    return advance(run, GroupEnded(run.attempts, exits)).run


@pytest.mark.parametrize(("failures", "tolerated"), [(0, 0), (1, 1), (2, 2), (5, 5)])
def test_a_limit_of_n_allows_n_retries(failures: int, tolerated: int) -> None:
    run = started(failures)
    for _ in range(tolerated):
        run = lose(run, RAISED, STOPPED)
        assert isinstance(run.phase, Active)

    run = lose(run, RAISED, STOPPED)
    assert isinstance(run.phase, Over)
    assert run.phase.ending is Ending.FAILED
    assert run.attempts == tolerated + 1


def test_no_limit_is_no_limit() -> None:
    run = started(None)
    for _ in range(1000):
        run = lose(run, DIED)

    assert run.phase == Active(1001)


def not_started(run: Run, reason: str) -> Run:
    return advance(run, GroupNotStarted(run.attempts, reason)).run


def test_a_run_that_never_ran_is_given_up_after_failing_alike_to_start() -> None:
    run = started(starts_alike=3)
    for attempt in (1, 2):
        run = not_started(run, f"no log at attempt-{attempt}")
        assert isinstance(run.phase, Active)

    run = not_started(run, "no log at attempt-3")
    assert run.phase == Over(Ending.FAILED)


def test_starts_that_fail_for_other_reasons_each_time_are_tried_on() -> None:
    run = started(starts_alike=3)
    for _ in range(10):
        run = not_started(not_started(run, "no memory"), "no room")

    assert isinstance(run.phase, Active)


def test_a_run_that_has_run_is_started_for_as_long_as_it_takes() -> None:
    run = lose(started(1, starts_alike=3), DIED)
    for _ in range(10):
        run = not_started(run, "no memory")
    again = advance(run, DriverStarted(Budget(starts_alike=3))).run
    for _ in range(10):
        again = not_started(again, "no memory")

    assert isinstance(run.phase, Active)
    assert isinstance(again.phase, Active)


def test_a_launch_after_one_that_was_given_up_tries_as_often_again() -> None:
    run = started(starts_alike=2)
    run = not_started(not_started(run, "no memory"), "no memory")
    run = advance(run, DriverStarted(Budget(starts_alike=2))).run
    once = not_started(run, "no memory")

    assert isinstance(once.phase, Active)
    assert isinstance(not_started(once, "no memory").phase, Over)


@pytest.mark.parametrize(
    ("exits", "blamed"),
    [
        ([RAISED, STOPPED], Blame.CODE),
        ([RAISED, DIED], Blame.PROCESS),
        ([RAISED, Hung(0, "n", 9.0, "")], Blame.HANG),
        ([RAISED, Died(0, "n", 7, node_lost=True)], Blame.NODE),
        ([RAISED, DIED, Evicted(2, "n", preempted=True)], Blame.PREEMPTION),
    ],
)
def test_the_most_external_cause_is_blamed(exits: list[WorkerExit], blamed: Blame) -> None:
    assert blame(exits) is blamed


def test_preemptions_and_new_drivers_are_not_charged() -> None:
    run = started(failures=1)
    for _ in range(10):
        run = lose(run, Evicted(0, "n", preempted=True))
    assert run.losses == {Blame.PREEMPTION: 10}
    for _ in range(10):
        run = advance(run, DriverStarted(Budget(failures=1))).run

    run = lose(run, RAISED)
    assert isinstance(run.phase, Active), "the one failure it absorbs is still there"


def test_each_launch_has_a_full_budget_and_no_loss_is_forgotten() -> None:
    run = lose(started(failures=1), RAISED)
    run = advance(run, DriverStarted(Budget(failures=1))).run
    run = lose(run, RAISED)

    assert isinstance(run.phase, Active)
    assert (run.losses, run.lost_before) == ({Blame.CODE: 1}, {Blame.CODE: 1})
    assert isinstance(lose(run, RAISED).phase, Over)


def test_a_failed_run_that_is_launched_again_has_a_full_budget() -> None:
    run = lose(started(failures=0), RAISED)
    run = advance(run, DriverStarted(Budget(failures=1))).run

    assert run.phase == Active(2)
    assert isinstance(lose(run, RAISED).phase, Active)


def test_the_first_retry_is_at_once_and_fruitless_ones_wait_longer_and_longer() -> None:
    run = started(None)
    pauses = []
    for _ in range(12):
        step = advance(run, GroupEnded(run.attempts, (DIED,)))
        [action] = step.actions
        assert isinstance(action, StartGroup)
        pauses.append(action.after_s)
        run = step.run

    assert pauses[:4] == [0.0, 0.1, 0.2, 0.4]
    assert pauses[-1] == 30.0

    run = advance(run, CheckpointCommitted(run.attempts, 1)).run
    [action] = advance(run, GroupEnded(run.attempts, (DIED,))).actions
    assert action == StartGroup(run.attempts + 1, 0.0)


def test_the_same_error_at_the_same_place_is_counted() -> None:
    run = lose(lose(lose(started(None), RAISED), RAISED), RAISED)
    assert run.repeats == 3

    moved = advance(run, CheckpointCommitted(run.attempts, 4)).run
    assert lose(moved, RAISED).repeats == 1
    assert lose(run, Raised(1, "n", "OSError", "")).repeats == 1


def test_a_run_is_over_only_once_its_group_is_gone() -> None:
    run = advance(started(), StopRequested(Ending.STOPPED)).run
    assert not isinstance(run.phase, Over)

    run = lose(run, STOPPED)
    assert run.phase == Over(Ending.STOPPED, (STOPPED,))


def test_a_group_that_finishes_while_it_is_stopped_has_succeeded() -> None:
    run = advance(started(), StopRequested(Ending.STOPPED)).run

    assert lose(run, Finished(0, "n")).phase == Over(Ending.SUCCEEDED, (Finished(0, "n"),))


def test_workers_that_return_while_their_machine_leaves_may_not_be_done() -> None:
    run = advance(started(), StopRequested(Ending.PREEMPTED)).run

    assert lose(run, Finished(0, "n")).phase == Over(Ending.PREEMPTED, (Finished(0, "n"),))
