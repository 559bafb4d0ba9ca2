"""A study that is killed anywhere and goes on decides as the one that was not.

Every scheduler with every searcher, killed at every event of its journal and played to its end.
What a driver leaves that dies after some events is those events, so each study is played once from
the beginning, and once from every place in its journal.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from holdfast.control.study.tail import StudyTail
from holdfast.core.run.budget import Budget
from holdfast.core.study.rules import Rules
from holdfast.errors import ConfigError
from holdfast.testing.study_play import Cut, Driver, Played, Script, play
from holdfast.tune import RunConfig, Trainable, TuneConfig
from holdfast.tune.search.ax import ax_search
from holdfast.tune.study.spec import StudySpec
from holdfast.tune.trainables.kinds import runnable
from tests.faults.study.plays import (
    CHANCE,
    PAIRS,
    POPULATIONS,
    SCHEDULERS,
    SEARCHERS,
    score,
    script,
)


@pytest.fixture(autouse=True, scope="module")
def ax_is_asked_once() -> Iterator[None]:
    """Keep what Ax answers, which takes it most of a second, for who asks for the very same.

    That it answers the same again is shown in the tests of its searcher.
    """
    answers: dict[str, Any] = {}

    def kept(name: str) -> Callable[..., Any]:
        asked = getattr(ax_search, name)

        def answer(*given: Any, **more: Any) -> Any:
            question = f"{name}{given}{more}"
            if question not in answers:
                answers[question] = asked(*given, **more)
            return answers[question]

        return answer

    with pytest.MonkeyPatch.context() as patch:
        for name in ("propose", "check_limits"):
            patch.setattr(ax_search, name, kept(name))
        yield


def must_be_the_same(found: Played, wanted: Played, what: str) -> None:
    assert found.decisions == wanted.decisions, what
    assert found.trials == wanted.trials, what


def must_go_on_the_same(told: Script, wanted: Played, cut: int) -> None:
    """Play what is left of a study after its first `cut` events; it must be what was left."""
    must_be_what_was_left(play(told, past=wanted.events[:cut]), wanted, cut)


def must_be_what_was_left(found: Played, wanted: Played, cut: int) -> None:
    left = wanted.decisions[bisect_left(wanted.decided, cut) :]
    assert found.decisions == left, f"cut after {cut} events"
    assert found.trials == wanted.trials, f"cut after {cut} events"


@pytest.mark.req("U-078")
@pytest.mark.req("U-009")
@pytest.mark.parametrize(("scheduler", "searcher"), PAIRS)
def test_killed_at_every_event_it_decides_the_same(scheduler: str, searcher: str) -> None:
    told = script(scheduler, searcher)
    wanted = play(told)

    assert len(wanted.events) > 20
    for cut in range(1, len(wanted.events)):
        must_go_on_the_same(told, wanted, cut)


@pytest.mark.parametrize(("scheduler", "searcher"), PAIRS)
def test_killed_after_a_state_was_written_it_decides_the_same(
    scheduler: str, searcher: str
) -> None:
    told = script(scheduler, searcher, states_every=7)
    wanted = play(told)
    states = [at for at, event in enumerate(wanted.events) if event[0] == "study_state"]

    must_be_the_same(wanted, play(script(scheduler, searcher)), "with states")
    assert len(states) >= 3
    for number, state in enumerate(states):
        must_go_on_the_same(told, wanted, min(state + 1 + number % 4, len(wanted.events) - 1))


@pytest.mark.parametrize(("scheduler", "searcher"), PAIRS)
def test_killed_around_a_state_of_an_earlier_moment_it_decides_the_same(
    scheduler: str, searcher: str
) -> None:
    """A state is written some events after it was taken; what happened between is not lost."""
    late = 3
    told = script(scheduler, searcher, states_every=11)
    wanted = play(told)
    states = [at for at, event in enumerate(wanted.events) if event[0] == "study_state"]

    assert len(states) >= 2
    for state in states[:4]:
        data = wanted.events[state][1]
        since = wanted.events[state + 1 : state + 1 + late]
        past = [
            *wanted.events[:state],
            ("state_taken", {"mark": "1-1"}),
            *since,
            ("study_state", {**data, "taken": "1-1"}),
        ]
        tail = StudyTail()
        for kind, facts in past:
            tail.apply(kind, facts)
        assert tail.events == since, "the state counts, and only what happened before it is gone"
        must_be_what_was_left(play(told, past=past), wanted, state + 1 + len(since))


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_every_scheduler_has_something_to_decide_here(scheduler: str) -> None:
    played = play(script(scheduler, "random"))
    trials = played.trials.values()
    ends = {trial["step"] for trial in trials}
    found = {
        "stops": min(ends) < max(ends),
        "pauses": any(action == "PAUSE" for *_, action in played.decisions),
        "changes configs": any("@" in trial["tag"] for trial in trials),
    }
    wanted: dict[str, set[str]] = {
        "FIFO": set(),
        "ASHA": {"stops"},
        "ASHA without end": {"stops"},
        "median that pauses": {"pauses"},
        "resources": {"pauses"},
        "shared resources": {"pauses"},
        **{name: {"pauses", "changes configs"} for name in POPULATIONS},
    }

    seen = {what for what, is_seen in found.items() if is_seen}
    assert seen == wanted.get(scheduler, {"stops", "pauses"})


@pytest.mark.parametrize("searcher", [one for one in SEARCHERS if one not in CHANCE])
def test_every_searcher_that_learns_asks_its_model_here(searcher: str) -> None:
    """With other results it would propose something else."""

    def turned(config: Mapping[str, Any], step: int) -> dict[str, Any]:
        return {"loss": -score(config, step)["loss"]}

    one, other = (play(script("FIFO", searcher, score=way)) for way in (score, turned))

    assert one.trials[0]["config"] == other.trials[0]["config"]
    last = max(one.trials)
    assert one.trials[last]["config"] != other.trials[last]["config"]


@pytest.mark.parametrize("scheduler", POPULATIONS)
def test_who_changes_configs_goes_with_no_searcher_that_learns(scheduler: str) -> None:
    """It would learn from results of configs that are not those it has proposed."""
    for searcher in (one for one in SEARCHERS if one not in CHANCE):
        config = TuneConfig(
            metric="loss",
            mode="min",
            scheduler=SCHEDULERS[scheduler](),
            search_alg=SEARCHERS[searcher](),
        )
        spec = StudySpec(trainable=runnable(Trainable), tune_config=config, run_config=RunConfig())
        with pytest.raises(ConfigError, match="changes configs itself and cannot be combined with"):
            spec.search()


@pytest.mark.req("U-078")
@pytest.mark.parametrize("scheduler", ["PBT", "PB2"])
def test_a_population_that_is_saved_only_when_it_is_asked_is_trained_as_much(
    scheduler: str,
) -> None:
    """As a class is by itself: what was asked for and not done, or done since, is done again."""
    told = script(scheduler, "random", saves_every=0, room=6)
    wanted = play(told)

    assert any("@perturbed" in trial["tag"] for trial in wanted.trials.values())
    for cut in range(1, len(wanted.events)):
        must_go_on_the_same(told, wanted, cut)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_killed_again_and_again_it_decides_the_same(scheduler: str) -> None:
    told = script(scheduler, "random", states_every=11, saves_every=1)
    wanted = play(script(scheduler, "random", saves_every=1))

    for length in (9, 17, 29):
        must_be_the_same(play(told, [length] * 200), wanted, f"cut every {length} events")


@pytest.mark.req("U-043")
@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("saves_every", [0, 1, 2])
def test_trials_that_die_and_go_on_are_judged_as_if_they_had_not(
    scheduler: str, saves_every: int
) -> None:
    def dies(number: int, step: int, attempt: int) -> bool:
        return attempt % 2 == 1 and (number + step) % 4 == 0

    rules = Rules(budget=Budget(failures=None))
    wanted = play(script(scheduler, "random", rules=rules, saves_every=saves_every))
    found = play(script(scheduler, "random", rules=rules, saves_every=saves_every, dies=dies))

    must_be_the_same(found, wanted, "with deaths")


@pytest.mark.parametrize("scheduler", ["HyperBand", "PBT"])
def test_a_study_whose_journal_has_lost_some_records_goes_on_to_its_end(scheduler: str) -> None:
    """As one that was damaged on its disk does: what is lost is told, and done again or left."""

    def dies(number: int, step: int, attempt: int) -> bool:
        return attempt % 2 == 1 and (number + step) % 4 == 0

    rules = Rules(budget=Budget(failures=None))
    told = script(scheduler, "random", samples=6, rules=rules, dies=dies)
    first = Driver(told, [])
    with contextlib.suppress(Cut):
        first.play(70)

    for lost in range(1, len(first.events), 3):
        driver = Driver(told, first.events[:lost] + first.events[lost + 1 :])
        driver.play()
        assert len(driver.study.finished) >= 5, f"without event {lost}"


@pytest.mark.req("U-078")
@pytest.mark.parametrize("searcher", SEARCHERS)
def test_half_the_samples_and_then_the_rest_are_the_same_as_all_at_once(searcher: str) -> None:
    """As when a study is extended: 25 + 25 equals 50; with Ax, which takes its time, 4 + 4."""
    half = 4 if searcher == "ax" else 25
    whole = play(script("FIFO", searcher, samples=2 * half, steps=1, room=1))
    told = script("FIFO", searcher, samples=half, steps=1, room=1)
    extended = {"num_samples": half if searcher == "grid" else 2 * half}
    first = play(told)

    driver = Driver(told, [*first.events, ("study_extended", extended)])
    driver.play()
    configs = {one.number: one.config for one in driver.study.finished.values()}

    assert len(first.trials) < len(whole.trials)
    assert configs == {number: trial["config"] for number, trial in whole.trials.items()}
