"""How questions are asked: who takes part in which round, and what becomes of sides that fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench.question import Claim, Question, Side, at_least, ratio
from bench.runner import FAILURES_MAX, MORE_ROUNDS, SideFailed, ask
from bench.summary import Verdict


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is measured here, so nothing needs to be cleaned up between the sides."""
    monkeypatch.setattr("bench.runner.gc.collect", lambda: 0)


class Scripted:
    """A side that does in each call what it was told, and counts the calls."""

    def __init__(self, *does: float | Exception) -> None:
        self._does = does
        self.calls = 0

    def __call__(self) -> float:
        done = self._does[min(self.calls, len(self._does) - 1)]
        self.calls += 1
        if isinstance(done, Exception):
            raise done
        return done


def question(ours: Callable[[], float], peer: Callable[[], float], **more: object) -> Question:
    rounds_max = more.pop("peer_rounds_max", None)
    assert rounds_max is None or isinstance(rounds_max, int)
    return Question(
        "a question",
        "s",
        [Side("holdfast", ours), Side("peer", peer, rounds_max=rounds_max)],
        [Claim("times faster", ratio("peer", "holdfast"), at_least(2))],
        warms_up=bool(more.pop("warms_up", True)),
    )


def test_the_round_that_warms_up_does_not_count() -> None:
    answer = ask("q", question(Scripted(99.0, 1.0), Scripted(99.0, 3.0)), rounds=5)

    [claim] = answer.claims()
    assert [measured["holdfast"] for measured in answer.rounds] == [1.0] * 5
    assert answer.of_claim(claim).median == 3.0
    assert answer.verdict(claim) is Verdict.MET


def test_a_question_that_does_not_warm_up_counts_its_first_round() -> None:
    ours = Scripted(7.0)

    answer = ask("q", question(ours, Scripted(1.0), warms_up=False), rounds=1)

    assert ours.calls == 1
    assert [measured["holdfast"] for measured in answer.rounds] == [7.0]


def test_a_peer_that_fails_once_is_tried_again_and_its_other_rounds_count() -> None:
    peer = Scripted(3.0, SideFailed("hung"), 3.0)

    answer = ask("q", question(Scripted(1.0), peer), rounds=3)

    assert ["peer" in measured for measured in answer.rounds] == [False, True, True]
    assert "hung" in answer.left_out["peer"]


def test_a_peer_that_keeps_failing_is_given_up_and_the_question_is_answered() -> None:
    peer = Scripted(OSError("no such file"))

    answer = ask("q", question(Scripted(1.0), peer), rounds=5)

    assert peer.calls == FAILURES_MAX
    assert len(answer.rounds) == 5
    assert [side.name for side in answer.sides()] == ["holdfast"]
    assert not answer.claims()


def test_a_failure_of_our_own_is_not_passed_over() -> None:
    with pytest.raises(SideFailed, match="ours"):
        ask("q", question(Scripted(SideFailed("ours")), Scripted(1.0)), rounds=1)


def test_a_slow_peer_is_measured_in_its_first_rounds_only_and_does_not_warm_up() -> None:
    peer = Scripted(3.0)

    answer = ask("q", question(Scripted(1.0), peer, peer_rounds_max=2), rounds=5)

    assert peer.calls == 2
    assert ["peer" in measured for measured in answer.rounds] == [True, True, False, False, False]


def test_what_each_side_took_in_all_is_known() -> None:
    answer = ask("q", question(Scripted(1.0), Scripted(1.0)), rounds=1)

    assert set(answer.took_s) == {"holdfast", "peer"}
    assert all(seconds >= 0 for seconds in answer.took_s.values())


def test_three_rounds_will_do_if_the_bar_is_further_off_than_the_rounds_are_from_each_other() -> (
    None
):
    ours, peer = Scripted(1.0), Scripted(99.0, 4.1, 5.0, 4.5)

    answer = ask("q", question(ours, peer), rounds=7, stops_early=True)

    [claim] = answer.claims()
    assert ours.calls == peer.calls == 1 + 3
    assert answer.verdict(claim) is Verdict.MET


def test_the_same_is_not_known_after_three_rounds_if_they_scatter_as_far_as_the_bar_is() -> None:
    ours, peer = Scripted(1.0), Scripted(99.0, 2.5, 3.1, 2.8)

    answer = ask("q", question(ours, peer), rounds=7, stops_early=True)

    [claim] = answer.claims()
    assert ours.calls == 1 + 5  # after which the range tells
    assert answer.verdict(claim) is Verdict.MET


def test_a_side_that_no_bar_depends_on_any_more_is_not_measured_again() -> None:
    ours, near = Scripted(1.0), Scripted(*[2.1, 1.9] * 4)
    far, shown = Scripted(50.0), Scripted(7.0)
    asked = Question(
        "a question",
        "s",
        [Side("holdfast", ours), Side("near", near), Side("far", far), Side("shown", shown)],
        [
            Claim("times faster than near", ratio("near", "holdfast"), at_least(2)),
            Claim("times faster than far", ratio("far", "holdfast"), at_least(2)),
            Claim("times faster than shown", ratio("shown", "holdfast")),
        ],
        warms_up=False,
    )

    answer = ask("q", asked, rounds=5, stops_early=True)

    assert [side.calls for side in (ours, near, far, shown)] == [8, 8, 3, 3]
    assert [answer.verdict(claim) for claim in answer.claims()] == [
        Verdict.UNCLEAR,
        Verdict.MET,
        Verdict.NO_BAR,
    ]


def test_rounds_that_were_asked_for_are_all_made() -> None:
    ours = Scripted(1.0)

    ask("q", question(ours, Scripted(50.0)), rounds=7)

    assert ours.calls == 1 + 7


def test_where_the_spread_spans_the_bar_there_are_more_rounds_and_the_outermost_do_not_count() -> (
    None
):
    ours, peer = Scripted(1.0), Scripted(99.0, 3.0, 1.9, 2.8, 3.1, 2.9)

    answer = ask("q", question(ours, peer), rounds=5, stops_early=True)

    [claim] = answer.claims()
    assert ours.calls == peer.calls == 1 + 5 + MORE_ROUNDS
    assert answer.verdict(claim) is Verdict.MET


def test_there_are_no_more_rounds_for_a_side_that_takes_part_in_none_of_them() -> None:
    ours, peer = Scripted(1.0), Scripted(3.0, 1.9, 2.8, 3.1, 2.9)

    answer = ask("q", question(ours, peer, peer_rounds_max=5), rounds=5, stops_early=True)

    [claim] = answer.claims()
    assert peer.calls == 5
    assert ours.calls == 1 + 5
    assert answer.verdict(claim) is Verdict.UNCLEAR


def test_a_question_of_one_round_has_no_more_of_them_if_nothing_is_held_against_it() -> None:
    ours = Scripted(7.0)
    asked = Question("a question", "s", [Side("holdfast", ours)], [], rounds_max=1, warms_up=False)

    ask("q", asked, rounds=5, stops_early=True)

    assert ours.calls == 1
