"""The run machine under histories of all kinds: current and stale news, losses, new drivers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.run.budget import Budget, failures_in
from holdfast.core.run.history import KIND, RunHistory, data_of, event_of
from holdfast.core.run.machine import (
    Active,
    CheckpointCommitted,
    DriverStarted,
    Ending,
    Event,
    GroupEnded,
    GroupNotStarted,
    Over,
    RestartWanted,
    Run,
    StartGroup,
    StopGroup,
    StopRequested,
    advance,
)
from holdfast.core.run.outcomes import Blame, Died, Evicted, Finished, Hung, Raised

attempts = st.integers(1, 6)  # small, so that current and stale attempts are both common
ranks = st.integers(0, 3)
limits = st.none() | st.integers(0, 2)
exits = st.one_of(
    st.builds(Finished, ranks, st.just("n")),
    st.builds(
        Raised, ranks, st.just("n"), st.sampled_from(["ValueError: x", "OSError"]), st.just("")
    ),
    st.builds(Died, ranks, st.just("n"), st.just(7), node_lost=st.booleans()),
    st.builds(Hung, ranks, st.just("n"), st.just(9.0), st.just("")),
    st.builds(Evicted, ranks, st.just("n"), preempted=st.just(True)),
)
starts = st.builds(
    DriverStarted, st.builds(Budget, failures=limits, preemptions=limits, starts=limits)
)
events = st.one_of(
    starts,
    st.builds(CheckpointCommitted, attempts, st.integers(0, 9)),
    st.builds(GroupEnded, attempts, st.lists(exits, min_size=1, max_size=4).map(tuple)),
    st.builds(GroupNotStarted, attempts, st.just("no room")),
    st.builds(RestartWanted, attempts, st.just("resize")),
    st.builds(StopRequested, st.sampled_from([Ending.STOPPED, Ending.PREEMPTED])),
)
histories = st.tuples(starts, st.lists(events, max_size=40)).map(lambda h: [h[0], *h[1]])


def is_about(event: Event, attempt: int) -> bool:
    return getattr(event, "attempt", None) == attempt


@given(histories)
def test_at_most_one_group_is_ever_wanted(history: list[Event]) -> None:
    run, live, used = Run(), set[int](), set[int]()
    for event in history:
        if isinstance(event, GroupEnded | GroupNotStarted):
            live.discard(event.attempt)
        if isinstance(event, DriverStarted):
            live.clear()  # nothing outlives its driver
        step = advance(run, event)
        for action in step.actions:
            match action:
                case StartGroup(attempt):
                    assert attempt not in used, "an attempt number was used twice"
                    used.add(attempt)
                    live.add(attempt)
                case StopGroup(attempt):
                    assert attempt in live
        run = step.run

        assert len(live) <= 1
        assert not (live and isinstance(run.phase, Over)), "over, but a group was left running"


@given(histories)
def test_no_budget_is_ever_overdrawn_and_none_is_left_unused(history: list[Event]) -> None:
    run = Run()
    for event in history:
        before, run = run, advance(run, event).run
        losses = run.losses
        limits_left = [
            (run.budget.failures, failures_in(losses)),
            (run.budget.preemptions, losses.get(Blame.PREEMPTION, 0)),
            (run.budget.starts, losses.get(Blame.START, 0)),
        ]
        overdrawn = any(limit is not None and used > limit for limit, used in limits_left)
        is_failed = isinstance(run.phase, Over) and run.phase.ending is Ending.FAILED
        if is_failed and not isinstance(before.phase, Over):
            assert overdrawn, "the run failed although its budget was not used up"
        if isinstance(run.phase, Active) and not isinstance(event, DriverStarted) and overdrawn:
            # Only a smaller budget, brought by a new driver, can be overdrawn while running.
            assert any(isinstance(one, DriverStarted) for one in history[1:])


@given(histories)
def test_stale_news_changes_nothing(history: list[Event]) -> None:
    run = Run()
    for event in history:
        step = advance(run, event)
        if hasattr(event, "attempt") and not is_about(event, run.attempts):
            assert step.run == run
            assert step.actions == ()
        run = step.run


@given(histories)
def test_the_journal_leads_to_the_same_run(history: list[Event]) -> None:
    run, follower = Run(), RunHistory()
    for event in history:
        run = advance(run, event).run
        if isinstance(event, CheckpointCommitted):
            follower.apply(
                "checkpoint_committed", {"attempt": event.attempt, "number": event.number}
            )
        else:
            assert event_of(data_of(event)) == event
            follower.apply(KIND, data_of(event))

    assert follower.run == run


@given(histories, starts)
def test_a_compacted_journal_leads_on_in_the_same_way(
    history: list[Event], next_driver: DriverStarted
) -> None:
    """What a driver that died left half done is done anew, whichever way the journal was kept."""
    run, compacted = Run(), RunHistory()
    for event in history:
        run = advance(run, event).run
    compacted.run = run
    again = RunHistory()
    for kind, data in compacted.to_events():
        again.apply(kind, data)

    assert advance(again.run, next_driver) == advance(run, next_driver)
