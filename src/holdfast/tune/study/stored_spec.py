"""The stored specification of a study, `.holdfast/study.json`, which `Tuner.restore` reads.

One sealed line of JSON. It holds the configs and the search space as far as they are plain data:
schedulers, searchers and stoppers as the calls that made them. No code, no storage path, no
credentials of a store. But values are stored as given: a token in the search space, or in an
argument of a searcher, is in here and in the files of each trial. On a disk only the owner can read
this file. What is not plain must be given again on restore; an error names what is missing.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from holdfast.api.config import CheckpointConfig, FailureConfig, RunConfig, budget_of
from holdfast.api.plain_data import CannotBeMade, NotPlain, from_plain, to_plain
from holdfast.api.recorded_names import Trust
from holdfast.control.record.identity import STUDY_KEY
from holdfast.core.study.rules import Rules
from holdfast.errors import CannotResume, Damaged, FormatTooNew, ObjectMissing
from holdfast.storage.base import Store
from holdfast.storage.locate import closed_to_others, open_store
from holdfast.storage.records import fit, known_format, seal, unseal
from holdfast.storage.uris import without_credentials
from holdfast.tune.tune_config import TuneConfig

T = TypeVar("T")
FORMAT = 1
_NAMES_MAX = 3

PER_TRIAL = ("resources", "restore_path", "export_formats")  # of a `StudySpec`
_CONFIGS = ("TuneConfig.", "RunConfig.")
_NEVER_KEPT = frozenset({"name", "storage_path", "storage_filesystem", "local_dir", "resume"})
_NOT_NEEDED = frozenset({"callbacks", "progress_reporter", "worker_runtime_env"})


class CannotRestoreStudy(CannotResume, ValueError):
    """A study cannot be restored from its folder alone."""

    code = "HF308"


class StudyMissing(CannotRestoreStudy, FileNotFoundError):
    """There is no study at the path."""

    def __new__(cls, message: str = "", **_: Any) -> Self:
        """Return an instance allocated as an OSError, whose layout differs from Exception's."""
        return FileNotFoundError.__new__(cls, message)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredStudy:
    """The content of study.json.

    Attributes:
        trainable: Its name.
        keys: The paths of all values of the search space.
        space: The search space as data.
        tune_config, run_config: Fields that differ from their defaults.
        per_trial: Settings of `tune.run` for every trial, as far as they are plain.
        not_kept: Fields that could not be stored and must be given again.
        saves_at_end: Whether trials are saved when they are stopped; None in records that are older
            than this field.
        planned: How many trials there will be, None if that is not known.
    """

    trainable: str
    keys: list[str]
    space: Any
    tune_config: Mapping[str, Any] = field(default_factory=dict)
    run_config: Mapping[str, Any] = field(default_factory=dict)
    per_trial: Mapping[str, Any] = field(default_factory=dict)
    not_kept: list[str] = field(default_factory=list)
    saves_at_end: bool | None = None
    planned: int | None = None

    def write(self, store: Store) -> None:
        """Write it to the folder of the study."""
        line = seal({"format": FORMAT, **dataclasses.asdict(self)}) + b"\n"
        closed_to_others(store).put(STUDY_KEY, line)


def stored_study(
    trainable: str,
    keys: list[str],
    space: Any,
    tune_config: TuneConfig,
    run_config: RunConfig,
    per_trial: Mapping[str, Any],
    *,
    saves_at_end: bool,
    planned: int | None,
) -> StoredStudy:
    """Return the record of a study."""
    not_kept: list[str] = []
    return StoredStudy(
        trainable=trainable,
        keys=keys,
        space=space,
        tune_config=_fields(tune_config, frozenset(), not_kept),
        run_config=_fields(run_config, _NEVER_KEPT | _NOT_NEEDED, not_kept),
        per_trial=_plain_only(per_trial),
        not_kept=not_kept,
        saves_at_end=saves_at_end,
        planned=planned,
    )


def _plain_only(values: Mapping[str, Any]) -> dict[str, Any]:
    plain = {}
    for name, value in values.items():
        is_path = name == "restore_path" and value is not None
        with contextlib.suppress(NotPlain):  # the script gives it again
            plain[name] = to_plain(without_credentials(value) if is_path else value)
    return plain


def _fields(
    config: TuneConfig | RunConfig, skipped: frozenset[str], not_kept: list[str]
) -> dict[str, Any]:
    default = type(config)()
    plain = {}
    for setting in dataclasses.fields(config):
        value = getattr(config, setting.name)
        if setting.name == "verbose" and value is not None:
            value = int(value)  # it may be an enum
        if setting.name in skipped or value == getattr(default, setting.name):
            continue
        try:
            plain[setting.name] = to_plain(value)
        except NotPlain:
            not_kept.append(f"{type(config).__name__}.{setting.name}")
    return plain


def read_study(store: Store) -> StoredStudy:
    """Return the record of the study in `store`; raise `StudyMissing` if there is none."""
    try:
        line = store.get(STUDY_KEY).data
    except ObjectMissing:
        raise StudyMissing(
            f"{store.url} is not the folder of a study: there is no {STUDY_KEY} in it",
            hint=_right_level(store),
        ) from None
    try:
        record = unseal(line.removesuffix(b"\n"))
        if known_format(record) > FORMAT:
            raise FormatTooNew(
                f"{store.url}/{STUDY_KEY} has format {record['format']}, this version reads up to"
                f" {FORMAT}",
                hint="use the version of Holdfast that wrote it, or a newer one",
            )
        study = fit(record, StoredStudy)
        if strange := [name for name in study.not_kept if not name.startswith(_CONFIGS)]:
            raise Damaged(f"not_kept names {strange[0]!r:.80}, which is no field of a config")
        return study
    except Damaged as error:
        raise CannotRestoreStudy(
            f"{store.url}/{STUDY_KEY}: {error.message}",
            hint="build the Tuner as before with RunConfig(resume='auto'), which resumes the study",
        ) from None


def has_study(store: Store) -> bool:
    """Whether a study was begun in `store`."""
    return store.stat(STUDY_KEY) is not None


def _right_level(store: Store) -> str:
    """Return a hint at the folder that may have been meant: one inside, or the parent."""
    studies = [name for name in store.folders() if store.stat(f"{name}/{STUDY_KEY}") is not None]
    if studies:
        rest = f", or one of {len(studies) - _NAMES_MAX} more" if len(studies) > _NAMES_MAX else ""
        paths = " or ".join(f"{store.url}/{name}" for name in studies[:_NAMES_MAX])
        return f"give the folder of the study itself: {paths}{rest}"
    parent = store.url.rstrip("/").rpartition("/")[0]
    if parent and store.local is not None and has_study(open_store(parent)):
        return f"this is the folder of a trial; give that of the study: {parent}"
    return "give the folder {storage_path}/{name} of a study that was begun"


def rules_of(
    failures: FailureConfig, metric: str | None, *, saves_at_end: bool, exports_at_end: bool
) -> Rules:
    """Return the rules for failures and ends of trials.

    Shared by drivers and readers of a study: the same journal must mean the same to both.
    """
    return Rules(
        budget=budget_of(failures),
        backoff_max_s=failures.backoff_max_s,
        fail_fast=bool(failures.fail_fast),
        saves_at_end=saves_at_end,
        exports_at_end=exports_at_end,
        metric=metric,
    )


def rules_of_stored(study: StoredStudy) -> Rules:
    """Return the rules of a study from its record alone; raise `CannotBeMade` if they are odd."""
    failures = recorded_config(study.run_config, "failure_config", FailureConfig)
    checkpoints = recorded_config(study.run_config, "checkpoint_config", CheckpointConfig)
    metric = study.tune_config.get("metric")
    saves = study.saves_at_end
    return rules_of(
        failures,
        metric if isinstance(metric, str) else None,
        saves_at_end=bool(checkpoints.checkpoint_at_end) if saves is None else saves,
        exports_at_end=bool(
            from_plain(study.per_trial.get("export_formats", ()), trust=Trust.LOOKING)
        ),
    )


def recorded_config(fields: Mapping[str, Any], name: str, kind: type[T]) -> T:
    """Return a config from a record, or the default one; raise `CannotBeMade` for anything else."""
    if name not in fields:
        return kind()
    config = from_plain(fields[name], trust=Trust.LOOKING)
    if type(config) is not kind:
        raise CannotBeMade(f"{name} is not a {kind.__name__}")
    return config


def configs_of(
    study: StoredStudy, trust: Trust = Trust.RESTORING, only: Collection[str] | None = None
) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    """Return the recorded fields of the `TuneConfig` and the `RunConfig`, and what was refused.

    The last maps names such as `TuneConfig.scheduler` to reasons. `only` leaves out other fields.
    """
    tune, run, refused = dict[str, Any](), dict[str, Any](), dict[str, str]()
    for kind, recorded, rebuilt in (
        ("TuneConfig", study.tune_config, tune),
        ("RunConfig", study.run_config, run),
    ):
        for name, value in recorded.items():
            if only is not None and name not in only:
                continue
            try:
                rebuilt[name] = from_plain(value, trust=trust)
            except CannotBeMade as error:
                refused[f"{kind}.{name}"] = str(error)
    return tune, run, refused
