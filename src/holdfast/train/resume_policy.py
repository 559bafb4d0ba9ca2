"""`RunConfig(resume=…)`: whether a launch begins a run or carries on with one, and says so.

A run that carries on although its user meant to begin a new one is the costliest surprise there is,
so one line says which it is, and from where.
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


def allowed(config: RunConfig) -> RunConfig:
    """Return a config whose run may begin or carry on as it says; raise if it may not.

    A name that was not given is claimed, and is as good as given afterwards: nobody else's run is
    there. Otherwise this only looks, and what is there stays as it is.
    """
    if "name" in config.given:
        store = run_store(config.storage_path, config.name, config.storage_filesystem)
        must_be_allowed(config, store)
        return config
    if config.resume == "must":
        raise RunMissing(
            "RunConfig(resume='must') has no name, without which every run is a new one",
            hint="give the name of the run to carry on with: RunConfig(name=…)",
        )
    storage = open_store(config.storage_path, config.storage_filesystem)
    return replace(config, name=claim(storage, config.name, kind="train", clock=SYSTEM_CLOCK))


def must_be_allowed(config: RunConfig, store: Store) -> None:
    """Raise if there is no run and there must be one, or there is one and there must not."""
    resume = config.resume
    if resume == "auto":
        return
    try:
        find_identity(store)
    except RunMissing:
        if resume == "must":
            raise RunMissing(
                f"there is no run at {store.url}, and RunConfig(resume='must') begins none",
                hint="check storage_path and name; leave out resume='must' to begin a new run",
            ) from None
    else:
        if resume == "never":
            raise exists_already(store)


def exists_already(store: Store) -> CannotResume:
    """Return the error for a run where there must be none."""
    return CannotResume(
        f"there is a run at {store.url} already, and RunConfig(resume='never') carries on with"
        " none",
        hint="choose another name, or leave out resume='never' to carry on with that run",
    )


# ---------------------------------------------------------------------- said to people


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What there is of a run when it is opened.

    Attributes:
        starts: How often its training function was started before; 0 for a new run.
        ending: How it came out the last time, None if it was cut off.
        checkpoint: The folder it carries on from, None if it has no checkpoint.
        step: Which report that was, None if it is not recorded.
        saved: When, in seconds since 1970.
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
    """Return what a run's record and history amount to when it is launched."""
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
    how = "was interrupted" if standing.ending is None else _ENDINGS[standing.ending]
    if standing.checkpoint is None:
        does = "begins again, because it has no checkpoint"
    else:
        step = "" if standing.step is None else f"step {standing.step}, "
        saved = f"{step}saved {duration(int(now - standing.saved))} ago"
        does = f"carries on from {standing.checkpoint} ({saved})"
    times = "once" if standing.starts == 1 else f"{standing.starts} times"
    return (
        f"holdfast: run {name!r}, which {how}, {does};"
        f" started {times} before [RunConfig(resume={policy!r})]"
    )


def closing_line(name: str, ending: Ending, checkpoint: str | None) -> str:
    """Return the line that says how to carry on with a run that ended before it was done."""
    does = f"carries on from {checkpoint}" if checkpoint else "begins again: nothing was saved"
    return f"holdfast: run {name!r} {_ENDINGS[ending]}; the same command {does}"
