"""The simulation finds bugs: each of these is planted, and must be found by the right promise."""

# ruff: noqa: SLF001  # bugs are where one does not look

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from holdfast.control.record import checkpoints
from holdfast.control.run import controller as run_controller
from holdfast.control.run.controller import RunController
from holdfast.control.run.group import Group, OutOfStep
from holdfast.control.run.relocation import Relocation
from holdfast.control.run.reports import Gathered, Gathering
from holdfast.control.run.watchdog import Watchdog
from holdfast.core.checkpoint.manifest import Manifest
from holdfast.core.checkpoint.record import RunRecord
from holdfast.core.run import machine
from holdfast.core.run.budget import Budget, failures_in
from holdfast.core.run.history import KIND, RunHistory, data_of
from holdfast.core.run.machine import Event, advance
from holdfast.core.run.rank_agreement import RankAgreement
from holdfast.engine.base import Ended, Said
from holdfast.journal.lease import Lease
from holdfast.wire import Committed
from holdfast.worker.reporting import Reporter
from tests.simulation.run import simulate

Plant = Callable[[pytest.MonkeyPatch], None]
SEEDS_MAX = 250


def acknowledges_before_it_commits(plant: pytest.MonkeyPatch) -> None:
    commit = Group._commit

    def eager(group: Group, gathered: Gathered) -> Manifest | str:
        assert gathered.slot is not None
        for rank in gathered.savers:
            group._tell(rank, Committed(gathered.index, gathered.slot.directory))
        return commit(group, gathered)

    plant.setattr(Group, "_commit", eager)


def believes_without_writing_down(plant: pytest.MonkeyPatch) -> None:
    def happen(controller: RunController, event: Event) -> None:
        actions = advance(controller._open_run.history.run, event).actions
        controller._open_run.history.apply(KIND, data_of(event))
        for action in actions:
            controller._perform(action)

    plant.setattr(RunController, "_happen", happen)


def starts_before_the_last_group_is_gone(plant: pytest.MonkeyPatch) -> None:
    note_end = Group.note_end

    def hasty(group: Group, ended: Ended) -> None:
        note_end(group, ended)
        if group.errors:
            group.running.clear()

    plant.setattr(Group, "note_end", hasty)


def hears_groups_that_are_over(plant: pytest.MonkeyPatch) -> None:
    hear = RunController._hear

    def credulous(controller: RunController, said: Said) -> None:
        attempt = controller._attempt
        if attempt is not None and said.rank in attempt.group.running:
            hear(controller, replace(said, group=attempt.number))

    plant.setattr(RunController, "_hear", credulous)


def charges_preemptions(plant: pytest.MonkeyPatch) -> None:
    def allows(budget: Budget, losses: Any, blamed: Any) -> bool:
        used = failures_in(losses) + losses.get("preemption", 0)
        return budget.failures is None or used <= budget.failures

    plant.setattr(Budget, "allows", allows)


def never_resets_the_budget(plant: pytest.MonkeyPatch) -> None:
    started = machine._driver_started

    def grudging(run: Any, *facts: Any) -> Any:
        step = started(run, *facts)
        return replace(step, run=replace(step.run, losses=run.losses))

    plant.setattr(machine, "_driver_started", grudging)


def deletes_the_newest(plant: pytest.MonkeyPatch) -> None:
    def newest(_: Any, candidates: Any) -> list[int]:
        numbers = sorted(one.number for one in candidates)
        return numbers[-1:] if len(numbers) > 1 else []

    plant.setattr(checkpoints, "dispensable", newest)


def commits_without_all_parts(plant: pytest.MonkeyPatch) -> None:
    def missing(gathering: Gathering, index: int) -> list[int]:
        return [] if gathering._open[index].parts else [0]

    plant.setattr(Gathering, "missing", missing)


def believes_that_ranks_are_in_step(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(RankAgreement, "disagreement", lambda *_: None)


def lets_a_function_ignore_ranks_out_of_step(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(OutOfStep, "as_known", lambda _, ended: ended)


def resumes_from_the_one_before(plant: pytest.MonkeyPatch) -> None:
    usable = RunRecord.usable
    plant.setattr(RunRecord, "usable", lambda record: usable(record)[1:] or usable(record))


def waits_for_the_late_for_ever(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(Group, "is_too_late", lambda *_: False)


def never_finds_a_hang(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(Watchdog, "look", lambda *_: None)


def forgets_what_is_to_be_uploaded(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(Reporter, "drain", lambda _: None)


def takes_bailing_out_for_success(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(Relocation, "ends_run", lambda *_: False)


def forgets_the_budget_in_a_snapshot(plant: pytest.MonkeyPatch) -> None:
    to_events = RunHistory.to_events

    def forgetful(history: RunHistory) -> list[tuple[str, dict[str, Any]]]:
        [(kind, data)] = to_events(history)
        return [(kind, {**data, "limits": [0, 0, 0]})]

    plant.setattr(RunHistory, "to_events", forgetful)


def writes_after_it_was_replaced(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(Lease, "check", lambda _: None)


def looks_without_a_pause(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(run_controller, "TICK_S", 0.0)
    plant.setattr(RunController, "_patience_s", lambda _: 0.0)


@pytest.mark.parametrize(
    ("bug", "promise", "seed"),
    [
        (acknowledges_before_it_commits, "what is acknowledged is at rest", 0),
        (believes_without_writing_down, "attempts are never reused", 0),
        (starts_before_the_last_group_is_gone, "one group at a time", 0),
        (hears_groups_that_are_over, "what can be saved is", 12),
        (charges_preemptions, "budgets are right", 9),
        (never_resets_the_budget, "budgets are right", 111),
        (deletes_the_newest, "a list holds the newest", 0),
        (commits_without_all_parts, "a checkpoint waits for all parts", 22),
        (believes_that_ranks_are_in_step, "a checkpoint is of one step", 0),
        (lets_a_function_ignore_ranks_out_of_step, "success means done", 0),
        (resumes_from_the_one_before, "nothing acknowledged is lost", 0),
        (waits_for_the_late_for_ever, "the time is up", 3),
        (never_finds_a_hang, "the time is up", 12),
        (forgets_what_is_to_be_uploaded, "success means done", 2),
        (takes_bailing_out_for_success, "success means done", 97),
        (forgets_the_budget_in_a_snapshot, "the record is as it was", 30),
        (writes_after_it_was_replaced, "nothing acknowledged is lost", 68),
        (looks_without_a_pause, "a driver that waits sleeps", 2),
    ],
)
def test_a_planted_bug_is_found(
    bug: Plant, promise: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seed is the first that finds it; where the code has changed, one of the next ones is."""
    bug(monkeypatch)

    problems: list[str] = []
    for tried in range(seed, seed + SEEDS_MAX):
        problem = simulate(tried).problem
        if problem is not None:
            problems.append(problem)
            if problem.startswith(promise):
                return
    pytest.fail(f"nobody says {promise!r}, but {sorted(set(problems))[:5]}")
