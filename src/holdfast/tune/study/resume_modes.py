"""The modes of `tune.run(resume=…)`: whether a study resumes, and with which of its trials.

A new study never mixes with an old one of the same name: the old one is moved aside. A study
resumes with the settings it was begun with; a warning names what the call would change.
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
    """What `resume=` means.

    Attributes:
        base: How it is decided whether a study resumes: NEW or one of `BASES`.
        resumption: Which trials resume.
    """

    base: str
    resumption: Resumption = dataclasses.field(default_factory=Resumption)


def mode_of(resume: object, resume_config: ResumeConfig | None = None) -> Mode:
    """Return what `resume` and `resume_config` mean; raise `ConfigError` if they are invalid."""
    if resume is None or resume is False:
        return Mode(NEW)
    word = LOCAL if resume is True else resume
    if not isinstance(word, str):
        raise _invalid(resume)
    base, *suffixes = _OLDER.get(word.upper(), word.upper()).split("+")
    if base not in BASES or not set(suffixes) <= set(SUFFIXES):
        raise _invalid(resume)
    if resume_config is not None:
        return Mode(base, resume_config.to_resumption())
    resumes = {"ERRORED", "ERRORED_ONLY"} & set(suffixes)
    restarts = {"RESTART_ERRORED", "RESTART_ERRORED_ONLY"} & set(suffixes)
    resumption = Resumption(
        unfinished=not any(suffix.endswith("_ONLY") for suffix in suffixes),
        errored=bool(resumes),
        errored_from_scratch=bool(restarts),
    )
    return Mode(base, resumption)


def _invalid(resume: object) -> ConfigError:
    words = ", ".join(map(repr, (*BASES, *_OLDER)))
    suffixes = ", ".join(f"+{suffix}" for suffix in SUFFIXES)
    return ConfigError(
        f"resume={shown(resume)}: must be True, False, {words}, or a word with {suffixes}",
        hint="resume='AUTO' goes on with a study if there is one, and begins it otherwise",
    )


# ---------------------------------------------------------------------- deciding


def should_resume(mode: Mode, store: Store, *, uploads: bool, ask: Ask | None = None) -> bool:
    """Return whether the study in `store` resumes; raise if it must and there is none.

    `uploads` is whether it is stored at an `upload_dir`; `ask` asks the user, by default in the
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
            "resume='PROMPT' asks in the terminal, and stdin is not a terminal",
            hint="resume='AUTO' goes on without asking, resume=False begins a new study",
        )
    return input(f"holdfast: {question} [y/N] ").strip().lower() in ("y", "yes")


# ---------------------------------------------------------------------- moving an old study aside


def make_room(spec: StudySpec, store: Store) -> None:
    """Move aside what is in the folder of a new study; raise if that cannot be done.

    Raises `RunHeld` if it is a study that another process drives.
    """
    if not _is_occupied(store):
        return
    run_id = _study_at(store)
    config = spec.run_config
    parent = open_store(config.storage_path, config.storage_filesystem)
    if parent.local is None:
        raise ConfigError(
            f"there is a study at {store.url} already, and this storage cannot rename it",
            hint="resume=True goes on with it; another name begins a new one",
        )
    lease = None
    if newest_epoch(store):
        lease = take_lease(store, run=f"the study at {store.url}", waits=True)
        if _study_at(store) != run_id:  # another driver moved it and began a new one meanwhile
            raise _just_begun(store)
    for name in _new_names(spec.name):
        try:
            parent.local.move_tree(spec.name, name)
        except Conflict:
            continue
        break
    moved = child(parent, name)
    if lease is not None:  # released where the study is now, so that it can resume at once
        Lease(moved, lease.record, "", SYSTEM_CLOCK, None).release(lease.record.journal_next)
        _leave_epoch(parent.local, spec.name, lease.record)
    print(  # noqa: T201
        f"holdfast: what was at {store.url} is moved aside to {moved.url}, and a new study begins;"
        " resume=True would have continued the old one",
        file=sys.stderr,
    )


def _leave_epoch(parent: LocalStore, name: str, taken: LeaseRecord) -> None:
    """Create the folder of the new study with the last lease of the old one in it.

    So epochs of the new study are higher, and a stalled driver of the old study that wakes up
    cannot write to names that the new study uses.
    """
    prepared = f".{secrets.token_hex(8)}{TEMPORARY}"
    released = dataclasses.replace(taken, released=True, journal_next=0, beats=0)
    parent.child(prepared).put(lease_key(taken.epoch), released.to_bytes())
    try:
        parent.move_tree(prepared, name)
    except Conflict as error:
        parent.discard_tree(prepared)
        raise _just_begun(parent.child(name)) from error


def _just_begun(store: Store) -> RunHeld:
    return RunHeld(
        f"another driver has just begun a study at {store.url}",
        hint="choose another name; or wait until it is done, and run the same command again",
    )


def _is_occupied(store: Store) -> bool:
    """Whether a folder holds more than the remains of a driver that died before its study began."""
    if has_study(store):
        return True
    return any(not entry.key.startswith(f"{_PRIVATE}/") for entry in store.entries())


def _study_at(store: Store) -> str | None:
    """Return the id of the study in `store`, None if there is none; raise if it is another run."""
    try:
        identity = find_identity(store)[0]
    except RunMissing:
        return None
    if identity.kind != "tune":
        raise ConfigError(
            f"there is a training run at {store.url}, and a study does not replace it",
            hint="choose another name, or another storage_path",
        )
    return identity.run_id


def _new_names(name: str) -> Iterator[str]:
    aside = f"{name}-moved-aside-{time.strftime('%Y-%m-%d_%H-%M-%S')}"
    yield aside
    yield from (f"{aside}-{number}" for number in itertools.count(2))


# ---------------------------------------------------------------------- resuming


def resumed_spec(given: StudySpec, store: Store) -> StudySpec:
    """Return the study in `store` as it was begun; warn of what `given` would change."""
    study = read_study(store)
    trainable = given.trainable
    if trainable.name != study.trainable:
        raise CannotRestoreStudy(
            f"the study at {store.url} runs {study.trainable!r}, and the trainable given is"
            f" {trainable.name!r}",
            hint="give the trainable that the study was begun with, or another name",
        )
    config = given.run_config
    same_keys = keys_of(dict(given.param_space)) == study.keys
    spec = restored_spec(
        study,
        (config.storage_path, given.name),
        config.storage_filesystem,
        trainable,
        given.param_space if same_keys else None,
    )
    spec = with_given(spec, study, given.tune_config, config)
    if changes := list(_changes(spec, given, study)):
        warn_user(
            f"the study {given.name!r} goes on as it was begun; ignored: {'; '.join(changes)}"
        )
    per_trial = {name: getattr(given, name) for name in PER_TRIAL if name not in study.per_trial}
    if given.restore_path is not None and _plain_path(given) == _plain_path(spec):
        per_trial["restore_path"] = given.restore_path  # it may hold credentials of its store
    run_config = dataclasses.replace(spec.run_config, storage_path=config.storage_path)
    return dataclasses.replace(spec, run_config=run_config, loggers=given.loggers, **per_trial)


def _changes(spec: StudySpec, given: StudySpec, study: StoredStudy) -> Iterator[str]:
    """Yield settings in `given` that are neither the default nor the recorded ones in `spec`."""
    if given.param_space:
        yield from _changes_of_space(given, study)
    configs: list[tuple[str, Any, Any, Any]] = [
        ("TuneConfig", TuneConfig(), spec.tune_config, given.tune_config),
        ("", FailureConfig(), spec.run_config.failure_config, given.run_config.failure_config),
        (
            "",
            CheckpointConfig(checkpoint_at_end=False),
            spec.run_config.checkpoint_config,
            given.run_config.checkpoint_config,
        ),
    ]
    for kind, default, old, new in configs:
        for field in dataclasses.fields(default):
            if f"{kind}.{field.name}" not in study.not_kept:
                values = (getattr(config, field.name) for config in (default, old, new))
                yield from _change(field.name, *values)
    run_configs = (type(given.run_config)(), spec.run_config, given.run_config)
    for name in ("stop", "log_to_file"):
        if f"RunConfig.{name}" not in study.not_kept:
            yield from _change(name, *(getattr(config, name) for config in run_configs))
    for name in PER_TRIAL:
        if name in study.per_trial:
            default = () if name == "export_formats" else None
            value_of = _plain_path if name == "restore_path" else operator.attrgetter(name)
            yield from _change(name, default, value_of(spec), value_of(given))


def _changes_of_space(given: StudySpec, study: StoredStudy) -> Iterator[str]:
    data = dataclasses.replace(given, stored=None).search().space_data
    old, new = (space if isinstance(space, dict) else {"": space} for space in (study.space, data))
    for key in sorted({*old, *new}):
        if key not in new:
            yield f"config has no {key!r}, which it had"
        elif key not in old:
            yield f"config[{key!r}], which it did not have"
        elif old[key] != new[key]:
            yield f"config[{key!r}]={shown(given.param_space.get(key, new[key]))}"


def _plain_path(spec: StudySpec) -> str | None:
    return None if spec.restore_path is None else without_credentials(spec.restore_path)


def _change(name: str, default: Any, old: Any, new: Any) -> Iterator[str]:
    if not _is_same(new, default) and not _is_same(new, old):
        yield f"{_ARGUMENTS.get(name, name)}={shown(new)}, it is {shown(old)}"


_ARGUMENTS = {"resources": "resources_per_trial", "restore_path": "restore"}  # of tune.run


def _is_same(first: object, second: object) -> bool:
    try:
        return bool(to_plain(first) == to_plain(second))
    except NotPlain:
        return first is second
