"""When a group counts as hung, in one story after another; times are written out."""

from __future__ import annotations

import math

import pytest

from holdfast.core.run.hang_detection import Hang, Learned, Progress


class Group:
    """A group under watch, and a clock that the test turns."""

    def __init__(
        self,
        ranks: int = 1,
        timeout_s: float | None = None,
        learned: Learned | None = None,
        *,
        begins: bool = True,
    ) -> None:
        self.now = 1000.0
        self.learned = learned if learned is not None else Learned()
        self.progress = Progress(range(ranks), timeout_s, self.now, self.learned)
        if begins:
            for rank in range(ranks):
                self.progress.gave_sign(rank, self.now)

    def listen(self, seconds: float, tick_s: float = 1.0) -> Hang | None:
        """Let time pass, asking all the while; stop at the first hang."""
        until = self.now + seconds
        while self.now < until:
            self.now = min(self.now + tick_s, until)
            if (hang := self.progress.hung(self.now)) is not None:
                return hang
        return None

    def sleep(self, seconds: float) -> None:
        """Let time pass in which the driver does nothing at all."""
        self.now += seconds

    def report(self, *ranks: int) -> None:
        for rank in ranks:
            self.progress.reported(rank, self.now)

    def steps(self, count: int, step_s: float, *ranks: int) -> None:
        for _ in range(count):
            assert self.listen(step_s, min(step_s, 4.0)) is None
            self.report(*ranks)


def test_a_silent_worker_is_found_after_the_time_that_was_given() -> None:
    group = Group(timeout_s=10.0)
    group.steps(3, 5.0, 0)

    assert group.listen(10.0) is None
    hang = group.listen(10.0)
    assert hang is not None
    assert hang.first == 0
    assert 10.0 < hang.idle_s[0] <= 20.0
    assert hang.timeout_s == 10.0


@pytest.mark.parametrize("timeout_s", [0.5, 5.0, 12.0, 1800.0])
def test_a_hang_is_found_when_the_time_is_over_and_not_later(timeout_s: float) -> None:
    """Asked once a second, and whenever it says that it is due."""
    group = Group(timeout_s=timeout_s)
    group.steps(3, min(timeout_s / 2, 1.3), 0)

    hang = None
    while hang is None:
        group.now += min(1.0, group.progress.due_s())
        hang = group.progress.hung(group.now)

    assert timeout_s < hang.idle_s[0] < timeout_s + 0.01


@pytest.mark.parametrize("given", [10.0, 4000.0, None, math.inf])
def test_who_never_begins_is_found_if_somebody_said_what_is_too_long(given: float | None) -> None:
    group, is_said = Group(2, timeout_s=given, begins=False), given in (10.0, 4000.0)

    assert group.listen(1800.0 if given == 10.0 else 4000.0) is None
    hang = group.listen(10.0)
    assert (hang and sorted(hang.idle_s)) == ([0, 1] if is_said else None)


def test_a_hang_is_told_again_until_somebody_ends_it() -> None:
    group = Group(timeout_s=10.0)
    assert group.listen(20.0) is not None
    assert group.listen(1.0) is not None

    group.report(0)
    assert group.listen(1.0) is None, "it moves after all"


def test_the_first_step_may_hang_too() -> None:
    group = Group(timeout_s=10.0)

    assert group.listen(20.0) is not None


def test_time_before_a_worker_begins_does_not_count() -> None:
    group = Group(timeout_s=10.0, begins=False)
    assert group.listen(500.0) is None

    group.progress.gave_sign(0, group.now)
    assert group.listen(10.0) is None
    assert group.listen(10.0) is not None


def test_infinity_waits_for_ever() -> None:
    group = Group(timeout_s=math.inf)
    group.steps(10, 1.0, 0)

    assert group.listen(200_000.0, tick_s=4.0) is None


def test_a_group_of_which_all_have_finished_is_not_hung() -> None:
    group = Group(2, timeout_s=10.0)
    for rank in (0, 1):
        group.progress.finished(rank, group.now)

    assert group.listen(100.0) is None


# ---------------------------------------------------------------------- learning


def test_nothing_is_too_long_while_too_little_is_known() -> None:
    group = Group()
    group.steps(5, 1.0, 0)  # four gaps

    assert group.progress.timeout_s == math.inf
    assert group.listen(100_000.0, tick_s=4.0) is None


def test_after_five_gaps_half_an_hour_is_too_long() -> None:
    group = Group()
    group.steps(6, 1.0, 0)

    assert group.progress.timeout_s == 1800.0
    assert group.listen(1800.0) is None
    assert group.listen(10.0) is not None


def test_long_steps_are_given_twenty_times_the_longest() -> None:
    group = Group()
    group.steps(5, 100.0, 0)
    group.steps(1, 300.0, 0)

    assert group.progress.timeout_s == 6000.0


def test_the_first_step_is_a_silence_like_any_other() -> None:
    group = Group()
    group.steps(1, 600.0, 0)
    group.steps(5, 1.0, 0)

    assert group.progress.timeout_s == 12_000.0


def test_many_ranks_do_not_make_many_gaps() -> None:
    group = Group(8)
    group.steps(5, 1.0, *range(8))

    assert group.progress.timeout_s == math.inf


def test_signs_that_are_not_reports_teach_no_habit() -> None:
    """Barriers before the first step, and then the model is compiled for hours."""
    group = Group(2)
    for _ in range(20):
        group.listen(1.0)
        for rank in (0, 1):
            group.progress.gave_sign(rank, group.now)

    assert group.listen(20_000.0, tick_s=4.0) is None


def test_what_one_attempt_taught_the_next_one_knows() -> None:
    learned = Learned()
    Group(learned=learned).steps(4, 1.0, 0)
    second = Group(learned=learned)
    second.steps(3, 1.0, 0)

    assert second.progress.timeout_s == 1800.0
    assert second.listen(2000.0) is not None


def test_quick_steps_do_not_make_the_long_one_forgotten() -> None:
    learned = Learned()
    Group(2, learned=learned).steps(1, 600.0, 0)
    second = Group(2, learned=learned)
    second.steps(6, 1.0, 0, 1)

    assert second.progress.timeout_s == 12_000.0


def test_the_first_step_of_a_later_attempt_may_repeat_all_the_work() -> None:
    """A loader that goes through the data again reports nothing until it is where it was."""
    learned = Learned()
    Group(learned=learned).steps(4000, 1.0, 0)
    second = Group(learned=learned)

    assert second.listen(4000.0) is None
    assert second.listen(10.0) is not None


def test_an_attempt_after_a_hang_has_twice_the_time() -> None:
    learned = Learned()
    first = Group(learned=learned)
    first.steps(6, 1.0, 0)
    assert first.listen(2000.0) is not None
    assert first.listen(10.0) is not None, "the time for this attempt is not changed"
    second = Group(learned=learned)
    second.steps(1, 1.0, 0)

    assert second.progress.timeout_s == 3600.0


def test_a_time_that_was_given_is_not_changed_by_hangs() -> None:
    learned = Learned()
    assert Group(timeout_s=10.0, learned=learned).listen(20.0) is not None

    assert Group(timeout_s=10.0, learned=learned).progress.timeout_s == 10.0


# ---------------------------------------------------------------------- the driver's own silence


def test_a_driver_that_slept_holds_it_against_nobody() -> None:
    group = Group(2, timeout_s=60.0)
    group.steps(3, 1.0, 0, 1)
    group.sleep(3600.0)

    assert group.listen(50.0) is None


def test_signs_that_came_while_the_driver_was_stuck_are_heard_before_it_judges() -> None:
    """It checks right after it was stuck, before it reads the messages of the workers."""
    group = Group(2, timeout_s=3.0)
    group.steps(3, 1.0, 0, 1)
    group.sleep(4.0)  # not long enough to be called a sleep, and longer than the timeout
    assert group.progress.hung(group.now) is None
    group.report(0)
    assert group.progress.hung(group.now) is None
    group.report(1)

    assert group.listen(2.5) is None


def test_a_suspicion_that_was_answered_does_not_shorten_the_next() -> None:
    group = Group(timeout_s=3.0)
    for _ in range(3):
        group.sleep(4.0)
        assert group.progress.hung(group.now) is None
        group.report(0)
        assert group.listen(1.0) is None


def test_a_driver_that_never_listens_well_still_finds_a_hang() -> None:
    group = Group(timeout_s=10.0)

    assert group.listen(600.0, tick_s=20.0) is not None


def test_a_clock_that_stands_still_does_no_harm() -> None:
    group = Group(timeout_s=10.0)
    for _ in range(1000):
        assert group.progress.hung(group.now) is None
        assert group.progress.hung(group.now - 5.0) is None


# ---------------------------------------------------------------------- ranks


def test_nobody_is_idle_while_a_rank_waits_for_the_driver() -> None:
    """Rank 0 saves; the others wait for it in a collective that the driver knows nothing of."""
    group = Group(4, timeout_s=10.0)
    group.steps(3, 1.0, *range(4))
    group.progress.busy(0, group.now)
    assert group.listen(3600.0) is None

    group.progress.not_busy(0, group.now)
    assert group.listen(9.0) is None
    assert group.listen(11.0) is not None


def test_a_rank_that_finished_is_no_longer_busy() -> None:
    group = Group(2, timeout_s=10.0)
    group.progress.busy(0, group.now)
    group.progress.finished(0, group.now)

    assert group.listen(20.0) is not None


def test_late_words_about_a_rank_that_has_ended_change_nothing() -> None:
    group = Group(2, timeout_s=10.0)
    group.progress.finished(0, group.now)
    for _ in range(20):
        group.listen(1.0)
        group.report(0)
        group.progress.busy(0, group.now)
        group.progress.finished(0, group.now)

    hang = group.listen(1.0)
    assert hang is not None and hang.idle_s.keys() == {1}


def test_ranks_that_leave_reporting_to_rank_0_are_healthy() -> None:
    group = Group(4)
    group.steps(1000, 4.0, 0)

    given = Group(4, timeout_s=10.0)
    given.steps(100, 4.0, 0)


def test_a_rank_that_reports_once_an_epoch_is_healthy_beside_one_that_reports_every_step() -> None:
    group = Group(2, timeout_s=10.0)
    for _ in range(4):
        group.steps(100, 4.0, 0)
        group.report(1)


def test_the_last_ranks_may_still_finish_after_the_one_that_reported_has() -> None:
    group = Group(2, timeout_s=10.0)
    group.steps(100, 4.0, 0)
    group.listen(8.0)
    group.progress.finished(0, group.now)

    assert group.listen(10.0) is None
    assert group.listen(10.0) is not None


@pytest.mark.parametrize("timeout_s", [None, 60.0])
def test_a_rank_with_a_habit_is_missed_while_others_go_on(timeout_s: float | None) -> None:
    group = Group(3, timeout_s)
    group.steps(6, 1.0, 0, 1, 2)

    hang = None
    for _ in range(4000):
        if (hang := group.listen(1.0)) is not None:
            break
        group.report(0, 1)
    assert hang is not None
    assert hang.first == 2
    assert hang.idle_s.keys() == {2}


# ---------------------------------------------------------------------- who stopped first


def test_the_rank_behind_the_others_stopped_first() -> None:
    group = Group(3, timeout_s=30.0)
    group.steps(5, 2.0, 0, 1, 2)
    group.listen(1.0)
    group.report(2)
    group.report(0)

    hang = group.listen(60.0)
    assert hang is not None
    assert hang.first == 1
    assert hang.idle_s.keys() == {0, 1, 2}


def test_of_equals_the_one_silent_for_longest_stopped_first() -> None:
    group = Group(3, timeout_s=30.0)
    for rank in (2, 0, 1):
        group.listen(0.5)
        group.report(rank)

    hang = group.listen(60.0)
    assert hang is not None and hang.first == 2


def test_a_rank_behind_that_was_heard_of_a_little_later_is_named_all_the_same() -> None:
    """Rank 0 waits for rank 1, which had a sign of life of its own before it stopped."""
    group = Group(2, timeout_s=30.0)
    group.steps(3, 1.0, 0, 1)
    group.report(0)
    group.listen(5.0)
    group.progress.gave_sign(1, group.now)

    hang = group.listen(60.0)
    assert hang is not None and hang.first == 1


def test_a_rank_that_never_began_stopped_first() -> None:
    group = Group(2, timeout_s=10.0, begins=False)
    group.progress.gave_sign(0, group.now)

    hang = group.listen(20.0)
    assert hang is not None and hang.first == 1


def test_ranks_that_never_report_are_not_blamed_when_the_one_that_does_has_stopped() -> None:
    group = Group(3, timeout_s=10.0)
    group.steps(20, 2.0, 1)

    hang = group.listen(20.0)
    assert hang is not None and hang.first == 1


def test_a_rank_whose_silence_is_usual_is_not_blamed() -> None:
    group = Group(2, timeout_s=50.0)
    for _ in range(3):
        group.steps(100, 1.0, 0)
        group.report(1)

    hang = group.listen(100.0)
    assert hang is not None and hang.first == 0
