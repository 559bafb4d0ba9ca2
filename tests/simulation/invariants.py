"""What must be true of every run, whatever goes wrong; each a function that raises `Violation`.

They see what really happened and nothing of what the code under test believes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.core.run.machine import Ending
from holdfast.core.run.outcomes import Died, Evicted, Finished
from holdfast.errors import HoldfastError, LeaseLost, RanksDisagree, RunHeld, StoreError
from tests.simulation.stage import Killed

if TYPE_CHECKING:
    from tests.simulation.truth import Group, Launch, Saved, Truth
    from tests.simulation.workers import SimWorker


class Violation(BaseException):
    """An invariant does not hold; no Exception, so that no code under test survives it."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant, self.what = invariant, what


def _must(holds: object, invariant: str, what: str) -> None:
    if not holds:
        raise Violation(invariant, what)


# ---------------------------------------------------------------------- groups


def one_group_at_a_time(truth: Truth, group: Group, alive: list[SimWorker]) -> None:
    """A group is started only when no other worker of the run can write any more.

    But for those of a driver that was replaced and does not know it: they can write, but nothing
    they write will count.
    """
    mine = group.launch
    others = [
        worker
        for worker in alive
        if worker.group is not None and not truth.is_replaced(worker.group.launch)
    ]
    _must(
        not others or truth.is_replaced(mine),
        "one group at a time",
        f"{group} starts while {', '.join(map(str, others))} runs",
    )


def attempts_are_never_reused(truth: Truth, group: Group) -> None:
    """Attempts are numbered upwards."""
    before = [other.attempt for other in truth.groups if other.launch.epoch <= group.launch.epoch]
    _must(
        group.attempt > max(before, default=0),
        "attempts are never reused",
        f"{group} starts after {before}",
    )


def charges(truth: Truth, group: Group) -> tuple[int, int]:
    """Return how many failures a lost group counts as: at least, and at most."""
    lost = [one for one in group.exits.values() if not isinstance(one, Finished | Evicted)]
    if group.is_done:
        return 0, 0
    if not (lost or group.hanging or group.was_out_of_step):
        # Ranks that are out of step may be stopped before they hear of it.
        return 0, int(group.may_be_out_of_step)
    if group.may_move:
        with_node = [isinstance(one, Died) and one.node in truth.leaving for one in lost]
        is_expected = all(with_node) and not group.hanging and truth.is_prompt
        return (0, 0) if is_expected else (0, 1)
    return 1, 1


def a_retry_follows_a_loss_within_the_budget(truth: Truth, group: Group) -> None:
    """Another attempt is made only after a loss, and only while the budget lasts."""
    launch, setting = group.launch, truth.story.setting
    for before in launch.groups[-1:]:
        _must(
            before.gone is not None and not before.is_done,
            "a retry follows a loss",
            f"{group} follows attempt {before.attempt}, which was not lost: {before.exits}",
        )
    least = sum(charges(truth, one)[0] for one in launch.groups)
    _must(
        setting.failures is None or least <= setting.failures,
        "budgets are right",
        f"{group} starts after {least} failures; {setting.failures} are absorbed",
    )
    _must(
        setting.starts is None or launch.refusals <= setting.starts,
        "budgets are right",
        f"{group} starts after {launch.refusals} groups that did not; {setting.starts} may not",
    )


def a_healthy_group_is_left_alone(truth: Truth, group: Group) -> None:
    """A group is stopped only if something is wrong with it, or it has to move."""
    launch = group.launch
    is_ill = any(not isinstance(one, Finished) for one in group.exits.values())
    is_ill = is_ill or bool(group.hanging) or group.may_be_out_of_step
    is_ending = launch.is_asked_to_stop or launch.is_leaving or truth.is_replaced(launch)
    _must(
        is_ill or is_ending or group.may_move,
        "a healthy group is left alone",
        f"{group} is stopped, and nothing is wrong with it",
    )


def a_live_driver_keeps_its_run(truth: Truth, launch: Launch) -> None:
    """Nobody takes a run from a driver that could renew its lease."""
    if truth.store_troubles:
        return
    since = truth.stage.now - truth.story.setting.lease_s
    live = [
        one
        for one in truth.launches
        if 0 < one.epoch < launch.epoch and not one.is_over and one.thaws < since
    ]
    _must(
        not live,
        "a live driver keeps its run",
        f"{launch.process} takes it from {', '.join(str(one.process) for one in live)}",
    )


# ---------------------------------------------------------------------- checkpoints


def a_checkpoint_waits_for_all_parts(truth: Truth, group: Group, step: int, rank: int) -> None:
    """No rank saves a part of a checkpoint that was acknowledged without it."""
    done = [(saved.attempt, saved.step) for saved in truth.acknowledged.values()]
    _must(
        (group.attempt, step) not in done,
        "a checkpoint waits for all parts",
        f"rank {rank} saves report {step} of attempt {group.attempt}, which is committed",
    )


def what_can_be_saved_is(truth: Truth, group: Group, error: Exception) -> None:
    """A checkpoint is refused only if the store fails, or a rank does not do its part."""
    is_prevented = group.may_be_out_of_step
    if not isinstance(error, RanksDisagree):
        # Ranks that are out of step may also wait for each other, one here and one there.
        is_prevented |= bool(truth.store_troubles or group.may_not_save or group.hanging)
    _must(
        is_prevented or truth.is_replaced(group.launch),
        "what can be saved is",
        f"{group} is told {error}",
    )


def what_is_acknowledged_is_at_rest(truth: Truth, group: Group, step: int, directory: str) -> None:
    """When a worker is told, the checkpoint is committed with exactly what the ranks saved."""
    name = "what is acknowledged is at rest"
    manifest = truth.manifest(directory)
    if manifest is None:
        raise Violation(name, f"{directory} has no manifest")
    _must(
        (manifest.attempt, manifest.step) == (group.attempt, step),
        name,
        f"{directory} is of attempt {manifest.attempt}, step {manifest.step}; attempt"
        f" {group.attempt} was told that it is its step {step}",
    )
    keys = {entry.path: f"{directory}/{entry.path}" for entry in manifest.files}
    there = {path: truth.store.get(key).data for path, key in keys.items()}
    wanted = truth.contents(group.attempt, step)
    _must(there == wanted, name, f"{directory} holds {there}, saved were {wanted}")


def a_checkpoint_is_of_one_step(truth: Truth, group: Group, index: int, directory: str) -> None:
    """The parts of a checkpoint are all of the same step, whatever the ranks have reported."""
    parts = [json.loads(data) for data in truth.contents(group.attempt, index).values()]
    steps = sorted({part["step"] for part in parts})
    _must(len(steps) <= 1, "a checkpoint is of one step", f"{directory} mixes the steps {steps}")


def a_replaced_driver_acknowledges_nothing_lost(truth: Truth, saved: Saved) -> None:
    """What a replaced driver acknowledges, its successor has seen."""
    for group in truth.groups:
        if group.launch.epoch > saved.epoch and group.resumed:
            numbers = [truth.number_of(one) for one in group.resumed.values()]
            _must(
                min(numbers) >= saved.number,
                "nothing acknowledged is lost",
                f"epoch {saved.epoch} acknowledges {saved.directory} after {group} of epoch"
                f" {group.launch.epoch} began with checkpoint {min(numbers)}",
            )


def nothing_acknowledged_is_lost(truth: Truth, group: Group, directory: str | None) -> None:
    """Every attempt begins with a checkpoint at least as new as any that was acknowledged."""
    newest = truth.newest()
    if newest is None or truth.is_replaced(group.launch):
        return
    _must(
        truth.number_of(directory) >= newest.number,
        "nothing acknowledged is lost",
        f"{group} begins with {directory}; {newest.directory} was acknowledged",
    )


def a_list_holds_the_newest(truth: Truth, group: Group, directories: list[str]) -> None:
    """Who asks which checkpoints there are is told of the newest acknowledged one, or later."""
    newest = truth.newest()
    if newest is not None and not truth.damaged and not truth.is_replaced(group.launch):
        _must(
            max(map(truth.number_of, directories), default=-1) >= newest.number,
            "a list holds the newest",
            f"{newest.directory} is not among {directories}",
        )


def a_resumed_checkpoint_is_as_it_was_saved(
    truth: Truth, directory: str | None, step: int, files: Mapping[str, bytes]
) -> None:
    """A worker begins with exactly what was saved, and counts on from there."""
    name = "a resumed checkpoint is as it was saved"
    if directory is None:
        _must(step == 0, name, f"a worker begins after step {step} without a checkpoint")
        return
    manifest = truth.manifest(directory)
    if manifest is None:
        raise Violation(name, f"{directory} was resumed and has no manifest")
    assert manifest.step is not None
    if not truth.story.has_extra_reports:
        _must(manifest.step == step, name, f"{directory} is of step {manifest.step}, not {step}")
    wanted = truth.contents(manifest.attempt, manifest.step)
    _must(files == wanted, name, f"{directory} gives {files}, saved were {wanted}")


def all_ranks_resume_alike(_: Truth, group: Group) -> None:
    """The ranks of a group begin with the same checkpoint."""
    _must(
        len(set(group.resumed.values())) == 1,
        "all ranks resume alike",
        f"{group} begins with {group.resumed}",
    )


def observers_hear_every_step_once(
    truth: Truth, before: int, step: int, directory: str | None
) -> None:
    """Observers are told of one step after the other, with a checkpoint that is at rest."""
    name = "observers hear every step once"
    _must(step == before + 1, name, f"step {step} is told after step {before}")
    if directory is not None:
        manifest = truth.manifest(directory)
        is_there = manifest is not None and manifest.step == step
        _must(is_there, name, f"{directory} is told of with step {step}: {manifest}")


# ---------------------------------------------------------------------- how a launch comes out


def a_launch_ends_for_a_reason(truth: Truth, launch: Launch) -> None:
    """A driver gives up only when the budget is used up, and fails only with the store."""
    result = launch.result
    if isinstance(result, BaseException):
        _a_driver_fails_only_with_the_store(truth, launch, result)
    elif result is not None and result.over.ending is Ending.FAILED:
        _a_run_gives_up_only_without_budget(truth, launch)
    elif result is not None and result.over.ending is Ending.PREEMPTED:
        _must(launch.is_leaving, "a launch ends for a reason", f"{launch.process} was preempted")
    elif result is not None and result.over.ending is Ending.STOPPED:
        asked = launch.is_asked_to_stop
        _must(asked, "a launch ends for a reason", f"nobody stopped {launch.process}")


def _a_driver_fails_only_with_the_store(truth: Truth, launch: Launch, error: BaseException) -> None:
    is_known = (
        isinstance(error, Killed | RunHeld)
        or (isinstance(error, LeaseLost) and truth.is_replaced(launch))
        or (isinstance(error, StoreError) and truth.store_troubles > launch.troubles_before)
    )
    if not is_known:
        if not isinstance(error, HoldfastError):
            raise error
        raise Violation("a driver fails only with the store", repr(error)) from error


def _a_run_gives_up_only_without_budget(truth: Truth, launch: Launch) -> None:
    setting = truth.story.setting
    most = sum(charges(truth, one)[1] for one in launch.groups)
    moves = sum(one.may_move and not one.is_done for one in launch.groups)
    is_used_up = (
        (setting.failures is not None and most > setting.failures)
        or (setting.starts is not None and launch.refusals > setting.starts)
        or (setting.preemptions is not None and moves > setting.preemptions)
    )
    _must(
        is_used_up,
        "budgets are right",
        f"{launch.process} gives up after {most} failures of {setting.failures}, {moves} moves of"
        f" {setting.preemptions}, {launch.refusals} refusals of {setting.starts}",
    )
