"""`RunConfig(resume=…)`: whether a launch may begin a run, or carry on with one."""

from __future__ import annotations

from holdfast.api.config import RunConfig
from holdfast.control.identity import find_identity
from holdfast.errors import CannotResume, RunMissing
from holdfast.storage.base import Store


def must_be_allowed(config: RunConfig, store: Store) -> None:
    """Raise if there is no run and there must be one, or there is one and there must not.

    Only looks: what is there stays as it is.
    """
    resume = config.resume
    if resume == "auto":
        return
    if resume == "must" and "name" not in config.given:
        raise RunMissing(
            "RunConfig(resume='must') has no name, without which every config is a run of its own",
            hint="give the name of the run to carry on with: RunConfig(name=…)",
        )
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
