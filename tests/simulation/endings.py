"""What must be true of a run when it is over; looked at through a store without faults."""

from __future__ import annotations

from holdfast.checkpoint.manifests import manifest_key
from holdfast.control.metrics.reader import read_metric_rows
from holdfast.control.metrics.writer import BATCH_S
from holdfast.control.record.litter import find_litter, sweep
from holdfast.control.record.open_run import OpenRun, OpenTrainingRun
from holdfast.control.run.plan import Outcome
from holdfast.core.run.history import RunHistory
from holdfast.core.run.machine import Ending
from holdfast.core.run.outcomes import Finished
from holdfast.core.run.validation import ValidationLedger
from holdfast.storage.base import Store
from tests.simulation.clock import SimClock
from tests.simulation.invariants import Violation
from tests.simulation.truth import Launch, Truth

# What a run keeps beside its checkpoints, and what the program has put there by itself.
_OWN = ("run.json", "lease/", "journal/", "metrics/", "quarantine/")
_KEPT_BESIDE = (*(f".holdfast/{name}" for name in _OWN), "placed/")
ROW_IS_AT_REST_AFTER_S = BATCH_S + 1.0


def check(truth: Truth, store: Store) -> None:
    """Raise `Violation` if something is not as it must be; leaves the run swept and closed."""
    final = [one for one in _that_succeeded(truth) if not truth.is_replaced(one)]
    clock = SimClock(truth.stage)
    with OpenTrainingRun.open(store, clock=clock, beats=False) as run:
        the_record_is_as_it_was(truth, run, run.history, final)
        success_means_done(truth)
        a_run_without_faults_is_not_held_up(truth)
        the_newest_checkpoint_stays(truth, run)
        only_what_is_damaged_is_set_aside(truth, run)
        every_validation_has_its_verdict(run.validations, final)
        every_step_has_its_row(truth, run)
        nothing_is_left_over(truth, run)


def _must(holds: object, invariant: str, what: str) -> None:
    if not holds:
        raise Violation(invariant, what)


def the_record_is_as_it_was(
    truth: Truth, run: OpenRun, history: RunHistory, final: list[Launch]
) -> None:
    """A journal read again says what the last driver believed."""
    name = "the record is as it was"
    phase = history.run.phase
    for launch in final:
        result = launch.result
        assert isinstance(result, Outcome)
        _must(phase == result.over, name, f"the journal says {phase}, it was {result.over}")
    attempts = max((group.attempt for group in truth.groups), default=0)
    _must(history.run.attempts >= attempts, name, f"{history.run.attempts} of {attempts} attempts")
    _must(not run.journal.damages, name, f"the journal is damaged: {run.journal.damages}")


def _that_succeeded(truth: Truth) -> list[Launch]:
    return [
        one
        for one in truth.launches
        if isinstance(one.result, Outcome) and one.result.over.ending is Ending.SUCCEEDED
    ]


def success_means_done(truth: Truth) -> None:
    """A run that succeeded has made all its steps, unless its program left early by itself."""
    name = "success means done"
    for launch in _that_succeeded(truth):
        assert isinstance(launch.result, Outcome)
        exits = launch.result.over.exits
        _must(all(isinstance(one, Finished) for one in exits), name, f"{exits}")
        last = launch.groups[-1]
        _must(last.is_done, name, f"{launch.process} takes {last} for done: {last.exits}")
        newest = launch.result.newest
        step = 0 if newest is None else newest.step or 0
        _must(
            step == truth.story.program.steps
            or truth.may_miss_its_end
            or truth.story.has_extra_reports,
            name,
            f"{launch.process} is done after step {step} of {truth.story.program.steps}",
        )


def a_run_without_faults_is_not_held_up(truth: Truth) -> None:
    """Where nothing goes wrong there is one attempt, and it takes as long as its steps."""
    if truth.story.faults:
        return
    name = "a run without faults is not held up"
    _must(len(truth.groups) == 1, name, f"it took {len(truth.groups)} attempts")
    program, setting = truth.story.program, truth.story.setting
    step_s = 1.5 * program.step_s + 10 * setting.message_s + 40 * setting.store_s
    validated_s = 15.0 if program.validates else 0.0
    most_s = 10.0 + program.steps * (step_s + validated_s)
    took_s = truth.launches[0].ended
    _must(took_s <= most_s, name, f"it took {took_s:.1f} s, and {most_s:.1f} s are plenty")


def the_newest_checkpoint_stays(truth: Truth, run: OpenRun) -> None:
    """Retention keeps as many as it should, and the newest among them."""
    name = "the newest checkpoint stays"
    run.retain(truth.story.setting.retention)
    usable = run.record.usable()
    newest = truth.newest()
    if newest is not None:
        best = max((one.number for one in usable), default=-1)
        _must(best >= newest.number, name, f"{newest.directory} is gone, left is {best}")
    for one in usable:
        manifest = truth.manifest(one.directory)
        _must(manifest is not None, name, f"{one.directory} has no manifest")
    keep = truth.story.setting.retention.keep
    if keep is not None:  # and the newest, whatever its score
        pinned = [one for one in usable if one.pins]
        _must(
            len(usable) <= keep + 1 + len(pinned), name, f"{len(usable)} are kept, of {keep} wanted"
        )


def only_what_is_damaged_is_set_aside(truth: Truth, run: OpenRun) -> None:
    """No checkpoint is quarantined that the story has not damaged."""
    healthy = [one for one in run.record.quarantined() if one.directory not in truth.damaged]
    _must(not healthy, "only what is damaged is set aside", f"{healthy}")


def every_validation_has_its_verdict(ledger: ValidationLedger, final: list[Launch]) -> None:
    """When a run is done, no checkpoint waits to be validated."""
    waiting = list(ledger.pending) if final else []
    _must(not waiting, "every validation has its verdict", f"{waiting} wait")


def every_step_has_its_row(truth: Truth, run: OpenRun) -> None:
    """Metrics have every step once, but for rows that a killed driver had heard just before."""
    name = "every step has its row"
    history = read_metric_rows(run.store, run.record.kept.values())
    _must(not history.damages, name, f"{history.damages}")
    steps = [row.step for row in history.rows]
    _must(steps == sorted(set(steps)), name, f"{steps}")
    newest = max((one.step or 0 for one in run.record.usable()), default=0)
    missing = set(range(1, newest + 1)) - set(steps)
    unexcused = [step for step in sorted(missing) if not _may_be_missing(truth, step)]
    _must(not unexcused, name, f"steps {unexcused} have none, up to {newest}")


def _may_be_missing(truth: Truth, step: int) -> bool:
    return bool(truth.store_troubles) or any(
        launch.was_killed and when >= min(launch.ended, launch.froze) - ROW_IS_AT_REST_AFTER_S
        for when, launch in truth.heard.get(step, ())
    )


def nothing_is_left_over(truth: Truth, run: OpenRun) -> None:
    """What is at rest is the run, or what a sweep removes.

    But for what a worker that was frozen writes to a folder whose name is the user's, after it was
    swept: nobody can tell that from a file of the user's own.
    """
    name = "nothing is left over"
    sweep(run)
    left = find_litter(run.store, run.identity.run_id, run.record)
    _must(not left, name, f"after a sweep there is still {left}")
    _must(not run.record.begun, name, f"{run.record.begun} are not concluded")
    froze = any(launch.thaws > 0 for launch in truth.launches)
    beside = (*_KEPT_BESIDE, "named/") if froze else _KEPT_BESIDE
    known = tuple(f"{kept.directory}/" for kept in run.record.kept.values())
    manifests = {manifest_key(directory[:-1]) for directory in known}
    for entry in run.store.entries():
        is_known = entry.key.startswith((*beside, *known)) or entry.key in manifests
        _must(is_known, name, f"{entry.key} belongs to nothing")
