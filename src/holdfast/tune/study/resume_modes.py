"""`tune.run(resume=…)`: whether a study goes on, with which of its trials, or makes room for a new.

A new study never mixes with an old one of its name: that one is moved aside. A study that goes on
does so as it was begun: of what the call says differently, nothing counts, and that is said.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from holdfast.api.config import CheckpointConfig, FailureConfig
from holdfast.api.deprecated import warn_user
from holdfast.api.plain_data import NotPlain, to_plain
from holdfast.clock import SYSTEM_CLOCK
from holdfast.control.record.identity import find_identity
from holdfast.control.study.plan import Resumption
from holdfast.core.names import shown
from holdfast.errors import ConfigError, Conflict, RunHeld, RunMissing
from holdfast.journal.lease import Lease, LeaseRecord, lease_key, newest_epoch, take_lease
from holdfast.storage.base import Store
from holdfast.storage.local.store import TEMPORARY, LocalStore
from holdfast.storage.locate import child, open_store
from holdfast.storage.uris import without_credentials
from holdfast.tune.search.objects import keys_of
from holdfast.tune.study.spec import StudySpec, restored_spec, with_given
from holdfast.tune.study.stored_spec import (
    PER_TRIAL,
    CannotRestoreStudy,
    StoredStudy,
    has_study,
    read_study,
)
from holdfast.tune.tune_config import ResumeConfig, TuneConfig

Ask = Callable[[str], bool]

NEW, LOCAL, REMOTE, PROMPT, AUTO = "NEW", "LOCAL", "REMOTE", "PROMPT", "AUTO"
BASES = (LOCAL, REMOTE, PROMPT, AUTO)
SUFFIXES = ("ERRORED", "RESTART_ERRORED", "ERRORED_ONLY", "RESTART_ERRORED_ONLY")
_OLDER = {"ERRORED_ONLY": "LOCAL+RESTART_ERRORED_ONLY"}
_PRIVATE = ".holdfast"


@dataclass(frozen=True)
class Mode:
    """What `resume=` means: how it is decided whether a study goes on, and with which trials."""

    base: str
    how: Resumption = dataclasses.field(default_factory=Resumption)


def mode_of(resume: object, resume_config: ResumeConfig | None = None) -> Mode:
    """Return what `resume` and `resume_config` mean; raise if they mean nothing."""
    if resume is None or resume is False:
        return Mode(NEW)
    said = LOCAL if resume is True else resume
    if not isinstance(said, str):
        raise _unknown(resume)
    text = _OLDER.get(said.upper(), said.upper())
    base, *suffixes = text.split("+")
    if base not in BASES or not set(suffixes) <= set(SUFFIXES):
        raise _unknown(resume)
    if resume_config is not None:
        return Mode(base, resume_config.to_resumption())
    resumes = {"ERRORED", "ERRORED_ONLY"} & set(suffixes)
    restarts = {"RESTART_ERRORED", "RESTART_ERRORED_ONLY"} & set(suffixes)
    how = Resumption(
        unfinished=not any(one.endswith("_ONLY") for one in suffixes),
        errored=bool(resumes),
        errored_from_scratch=bool(restarts),
    )
    return Mode(base, how)


def _unknown(resume: object) -> ConfigError:
    known = ", ".join(map(repr, ("LOCAL", "REMOTE", "PROMPT", "AUTO", *_OLDER)))
    more = ", ".join(f"+{one}" for one in SUFFIXES)
    return ConfigError(
        f"resume={shown(resume)}: it is True, False, {known}, or one of these with {more}",
        hint="resume='AUTO' goes on with a study if there is one, and else begins it",
    )


# ---------------------------------------------------------------------- deciding


def goes_on(mode: Mode, store: Store, *, uploads: bool, ask: Ask | None = None) -> bool:
    """Return whether the study in `store` goes on; raise if it was to, and there is none.

    `uploads` is whether it is kept at an `upload_dir`; `ask` asks the user, by default in the
    terminal.
    """
    if mode.base == NEW:
        return False
    if mode.base == REMOTE and not uploads:
        raise ConfigError(
            "resume='REMOTE' without upload_dir: there is no other place to go on from",
            hint="resume='LOCAL', or upload_dir='s3://…'",
        )
    if not has_study(store):
        if mode.base == AUTO:
            return False
        raise CannotRestoreStudy(
            f"there is no study at {store.url} to go on with",
            hint="check name, and local_dir or storage_path; resume='AUTO' begins a study if there"
            " is none",
        )
    if mode.base == PROMPT:
        return (ask or _ask_terminal)(f"go on with the study at {store.url}?")
    return True


def _ask_terminal(question: str) -> bool:
    if not sys.stdin or not sys.stdin.isatty():
        raise ConfigError(
            "resume='PROMPT' asks in the terminal, and there is none to answer",
            hint="resume='AUTO' goes on without asking, resume=False begins a new study",
        )
    return input(f"holdfast: {question} [y/N] ").strip().lower() in ("y", "yes")


# ---------------------------------------------------------------------- making room


def make_room(spec: StudySpec, store: Store) -> None:
    """Move aside what is where a new study is to be; raise if that cannot be done.

    A study that another driver is at is left alone, and its `RunHeld` raised.
    """
    if not _is_taken(store):
        return
    run_id = _study_at(store)
    config = spec.run_config
    parent = open_store(config.storage_path, config.storage_filesystem)
    if parent.local is None:
        raise ConfigError(
            f"there is a study at {store.url} already, and nothing can be renamed there",
            hint="resume=True goes on with it; another name begins a new one",
        )
    lease = None
    if newest_epoch(store):
        lease = take_lease(store, run=f"the study at {store.url}", waits=True)
        if _study_at(store) != run_id:  # it was moved, and a new one begun, in this moment
            raise _just_begun(store)
    for name in _new_names(spec.name):
        try:
            parent.local.move_tree(spec.name, name)
        except Conflict:
            continue
        break
    moved = child(parent, name)
    if lease is not None:  # where it is now: whoever goes on with it need not wait
        Lease(moved, lease.record, "", SYSTEM_CLOCK, None).release(lease.record.journal_next)
        _leave_epoch(parent.local, spec.name, lease.record)
    print(  # noqa: T201
        f"holdfast: what was at {store.url} is moved aside to {moved.url}, and a new study begins;"
        " resume=True would have gone on with it",
        file=sys.stderr,
    )


def _leave_epoch(parent: LocalStore, name: str, taken: LeaseRecord) -> None:
    """Have the new study begin behind the last epoch of the one that was in its place.

    So nothing that a driver of that one may still write, when it wakes, has the name of anything
    that is written now. The folder comes into being with it.
    """
    prepared = f".{secrets.token_hex(8)}{TEMPORARY}"
    aside = parent.child(prepared)
    released = dataclasses.replace(taken, released=True, journal_next=0, beats=0)
    aside.put(lease_key(taken.epoch), released.to_bytes())
    try:
        parent.move_tree(prepared, name)
    except Conflict as error:
        parent.discard_tree(prepared)
        raise _just_begun(parent.child(name)) from error


def _just_begun(store: Store) -> RunHeld:
    return RunHeld(
        f"another driver has just begun a study at {store.url}",
        hint="another name; or wait until it is done, and give the same command again",
    )


def _is_taken(store: Store) -> bool:
    """Whether there is more than what a driver leaves that died before its study began."""
    if has_study(store):
        return True
    return any(not entry.key.startswith(f"{_PRIVATE}/") for entry in store.entries())


def _study_at(store: Store) -> str | None:
    """Return which study is there, None if the files are somebody else's; raise if it is a run."""
    try:
        found = find_identity(store)[0]
    except RunMissing:
        return None
    if found.kind != "tune":
        raise ConfigError(
            f"there is a training run at {store.url}, which no study takes the place of",
            hint="another name, or another storage_path",
        )
    return found.run_id


def _new_names(name: str) -> Iterator[str]:
    aside = f"{name}-moved-aside-{time.strftime('%Y-%m-%d_%H-%M-%S')}"
    yield aside
    yield from (f"{aside}-{number}" for number in itertools.count(2))


# ---------------------------------------------------------------------- going on


def begun(given: StudySpec, store: Store) -> StudySpec:
    """Return the study in `store` as it was begun; what `given` says differently is told."""
    study = read_study(store)
    run = given.trainable
    if run.name != study.trainable:
        raise CannotRestoreStudy(
            f"the study at {store.url} runs {study.trainable!r}, and the trainable given is"
            f" {run.name!r}",
            hint="give the trainable that the study was begun with, or another name",
        )
    config = given.run_config
    same_keys = keys_of(dict(given.param_space)) == study.keys
    kept = restored_spec(
        study,
        (config.storage_path, given.name),
        config.storage_filesystem,
        run,
        given.param_space if same_keys else None,
    )
    kept = with_given(kept, study, given.tune_config, config)
    if changes := list(_changes(kept, given, study)):
        warn_user(
            f"the study {given.name!r} goes on as it was begun; ignored: {'; '.join(changes)}"
        )
    again = {name: getattr(given, name) for name in PER_TRIAL if name not in study.per_trial}
    if given.restore_path is not None and _place(given) == _place(kept):
        again["restore_path"] = given.restore_path  # it may say how its store is opened
    here = dataclasses.replace(kept.run_config, storage_path=config.storage_path)
    return dataclasses.replace(kept, run_config=here, loggers=given.loggers, **again)


def _changes(kept: StudySpec, given: StudySpec, study: StoredStudy) -> Iterator[str]:
    """Yield what is given and is not as it was; what is not given is no change."""
    if given.param_space:
        yield from _changes_of_space(given, study)
    usual_run = type(given.run_config)()
    usual: list[tuple[str, Any, Any, Any]] = [
        ("TuneConfig", TuneConfig(), kept.tune_config, given.tune_config),
        ("", FailureConfig(), kept.run_config.failure_config, given.run_config.failure_config),
        (
            "",
            CheckpointConfig(checkpoint_at_end=False),
            kept.run_config.checkpoint_config,
            given.run_config.checkpoint_config,
        ),
    ]
    for kind, default, old, new in usual:
        for field in dataclasses.fields(default):
            if f"{kind}.{field.name}" not in study.not_kept:
                values = (getattr(one, field.name) for one in (default, old, new))
                yield from _change(field.name, *values)
    for name in ("stop", "log_to_file"):
        if f"RunConfig.{name}" not in study.not_kept:
            values = (getattr(one, name) for one in (usual_run, kept.run_config, given.run_config))
            yield from _change(name, *values)
    for name in PER_TRIAL:
        if name in study.per_trial:
            default = () if name == "export_formats" else None
            value_of = _place if name == "restore_path" else operator.attrgetter(name)
            yield from _change(name, default, value_of(kept), value_of(given))


def _changes_of_space(given: StudySpec, study: StoredStudy) -> Iterator[str]:
    space = dataclasses.replace(given, stored=None).search().space_data
    old, new = (one if isinstance(one, dict) else {"": one} for one in (study.space, space))
    for key in sorted({*old, *new}):
        if key not in new:
            yield f"config has no {key!r}, and it had"
        elif key not in old:
            yield f"config[{key!r}], which it did not have"
        elif old[key] != new[key]:
            yield f"config[{key!r}]={shown(given.param_space.get(key, new[key]))}"


def _place(spec: StudySpec) -> str | None:
    return None if spec.restore_path is None else without_credentials(spec.restore_path)


def _change(name: str, default: Any, old: Any, new: Any) -> Iterator[str]:
    if not _is_same(new, default) and not _is_same(new, old):
        yield f"{_SAID_AS.get(name, name)}={shown(new)}, it is {shown(old)}"


_SAID_AS = {"resources": "resources_per_trial", "restore_path": "restore"}


def _is_same(one: object, other: object) -> bool:
    try:
        return bool(to_plain(one) == to_plain(other))
    except NotPlain:
        return one is other
