"""`RunConfig(resume=…)`: whether a launch starts a new run or resumes one, and the line on that.

Resuming a run when the user meant to start a new one is a costly surprise, so one line says which
it is, and from where.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from holdfast.api.config import RunConfig
from holdfast.clock import SYSTEM_CLOCK
from holdfast.control.record.identity import find_identity, run_store
from holdfast.control.record.new_names import claim
from holdfast.core.checkpoint.record import RunRecord
from holdfast.core.quantities import duration
from holdfast.core.run.machine import Ending, Over, Run
from holdfast.errors import CannotResume, RunMissing
from holdfast.storage.base import Store
from holdfast.storage.locate import open_store


def settle_name(config: RunConfig) -> RunConfig:
    """Return the config with its run's final name; raise if its resume policy forbids the run.

    A default name is claimed, so that no other run can have it. A given name is only checked, and
    nothing is written.
    """
    if "name" in config.given:
        store = run_store(config.storage_path, config.name, config.storage_filesystem)
        check_resume_policy(config, store)
        return config
    if config.resume == "must":
        raise RunMissing(
            "RunConfig(resume='must') has no name, so there is no run to resume",
            hint="give the name of the run to carry on with: RunConfig(name=…)",
        )
    storage = open_store(config.storage_path, config.storage_filesystem)
    return replace(config, name=claim(storage, config.name, kind="train", clock=SYSTEM_CLOCK))


def check_resume_policy(config: RunConfig, store: Store) -> None:
    """Raise if the policy is "must" and there is no run, or "never" and there is one."""
    resume = config.resume
    if resume == "auto":
        return
    try:
        find_identity(store)
    except RunMissing:
        if resume == "must":
            raise RunMissing(
                f"there is no run at {store.url}, and RunConfig(resume='must') starts none",
                hint="check storage_path and name; leave out resume='must' to start a new run",
            ) from None
    else:
        if resume == "never":
            raise run_exists_error(store)


def run_exists_error(store: Store) -> CannotResume:
    """Return the error for a run that exists although the policy is "never"."""
    return CannotResume(
        f"there is a run at {store.url} already, and RunConfig(resume='never') resumes none",
        hint="choose another name, or leave out resume='never' to carry on with that run",
    )


# ---------------------------------------------------------------------- messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The state of a run when it is opened.

    Attributes:
        starts: How often its training function was started before; 0 for a new run.
        ending: How it ended the last time, None if it was cut off.
        checkpoint: The folder of the checkpoint to resume from, None if there is none.
        step: The report of that checkpoint, None if it is not recorded.
        saved: When it was saved, in seconds since 1970.
    """

    starts: int = 0
    ending: Ending | None = None
    checkpoint: str | None = None
    step: int | None = None
    saved: float = 0.0


_ENDINGS = {
    Ending.SUCCEEDED: "had finished",
    Ending.FAILED: "had failed",
    Ending.STOPPED: "was stopped",
    Ending.PREEMPTED: "was preempted",
}


def standing_of(record: RunRecord, run: Run) -> Standing:
    """Return the state of a run from its record and history."""
    newest = record.newest()
    return Standing(
        starts=run.attempts,
        ending=run.phase.ending if isinstance(run.phase, Over) else None,
        checkpoint=newest.directory if newest else None,
        step=newest.step if newest else None,
        saved=newest.created if newest else 0.0,
    )


def opening_line(name: str, url: str, standing: Standing, *, policy: str, now: float) -> str:
    """Return the line that says what a launch of run `name` is about to do."""
    if standing.starts == 0 and standing.checkpoint is None:
        return f"holdfast: run {name!r} is new; it is kept at {url}"
    ending = "was interrupted" if standing.ending is None else _ENDINGS[standing.ending]
    if standing.checkpoint is None:
        effect = "begins again, because it has no checkpoint"
    else:
        step = "" if standing.step is None else f"step {standing.step}, "
        saved = f"{step}saved {duration(int(now - standing.saved))} ago"
        effect = f"carries on from {standing.checkpoint} ({saved})"
    times = "once" if standing.starts == 1 else f"{standing.starts} times"
    return (
        f"holdfast: run {name!r}, which {ending}, {effect};"
        f" started {times} before [RunConfig(resume={policy!r})]"
    )


def closing_line(name: str, ending: Ending, checkpoint: str | None) -> str:
    """Return the line that says how to resume a run that was stopped or preempted."""
    effect = f"carries on from {checkpoint}" if checkpoint else "begins again: nothing was saved"
    return f"holdfast: run {name!r} {_ENDINGS[ending]}; the same command {effect}"
