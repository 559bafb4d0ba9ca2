"""`RunConfig(resume=…)`: whether a launch may begin a run, or carry on with one."""

from __future__ import annotations

from dataclasses import replace

from holdfast.api.config import RunConfig
from holdfast.clock import SYSTEM_CLOCK
from holdfast.control.record.identity import find_identity, run_store
from holdfast.control.record.new_names import claim
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
