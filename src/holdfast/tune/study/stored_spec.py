"""What is kept of a study so that `Tuner.restore` needs nothing but its folder and the trainable.

One sealed line of JSON, `.holdfast/study.json`. It holds the configs and the search space as far as
they are plain data: schedulers, searchers and stoppers as the calls that made them. No code, no
storage path, nothing of what opens a store. But values are kept as they were given: a token in the
search space, or in an argument of a searcher, is in here and in the files of each trial. On a disk
nobody else can read this one. What is not plain must be given again, and is named when missed.
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
from holdfast.storage.locate import closed_to_others
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
    """There is no study where the path leads."""

    def __new__(cls, message: str = "", **more: Any) -> Self:
        """Return one made as an OSError is, which alone knows how large it must be."""
        del more
        return FileNotFoundError.__new__(cls, message)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredStudy:
    """A study as its record says it.

    Attributes:
        trainable: Its name.
        keys: The paths of all values of the search space.
        space: The search space as data.
        tune_config, run_config: Fields that are not as they are by themselves.
        per_trial: What `tune.run` was told of every trial, as far as it is plain.
        not_kept: What could not be kept and must be given again.
        saves_at_end: Whether trials save themselves when they are stopped, which their class says;
            None in a record of before that was kept.
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
        """Put it to rest."""
        line = seal({"format": FORMAT, **dataclasses.asdict(self)}) + b"\n"
        closed_to_others(store).put(STUDY_KEY, line)


def stored(
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
    """Return what is to be kept of a study."""
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
    kept = {}
    for name, given in values.items():
        is_place = name == "restore_path" and given is not None
        value = without_credentials(given) if is_place else given
        with contextlib.suppress(NotPlain):  # it comes again with the script
            kept[name] = to_plain(value)
    return kept


def _fields(
    config: TuneConfig | RunConfig, skipped: frozenset[str], not_kept: list[str]
) -> dict[str, Any]:
    usual = type(config)()
    kept = {}
    for one in dataclasses.fields(config):
        value = getattr(config, one.name)
        if one.name == "verbose" and value is not None:
            value = int(value)  # some have names for these numbers
        if one.name in skipped or value == getattr(usual, one.name):
            continue
        try:
            kept[one.name] = to_plain(value)
        except NotPlain:
            not_kept.append(f"{type(config).__name__}.{one.name}")
    return kept


def read_study(store: Store) -> StoredStudy:
    """Return what is kept of the study in `store`; raise `StudyMissing` if nothing is."""
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
        if odd := [what for what in study.not_kept if not what.startswith(_CONFIGS)]:
            raise Damaged(f"not_kept names {odd[0]!r:.80}, which is no field of a config")
        return study
    except Damaged as error:
        raise CannotRestoreStudy(
            f"{store.url}/{STUDY_KEY}: {error.message}",
            hint="build the Tuner as before with RunConfig(resume='auto'): it carries on",
        ) from None


def has_study(store: Store) -> bool:
    """Whether a study was begun in `store`."""
    return store.stat(STUDY_KEY) is not None


def _right_level(store: Store) -> str:
    """Return which folder may have been meant: one below, or the one above."""
    below = [name for name in store.folders() if store.stat(f"{name}/{STUDY_KEY}") is not None]
    if below:
        more = f", or one of {len(below) - _NAMES_MAX} more" if len(below) > _NAMES_MAX else ""
        named = " or ".join(f"{store.url}/{name}" for name in below[:_NAMES_MAX])
        return f"give the folder of the study itself: {named}{more}"
    parent = store.url.rstrip("/").rpartition("/")[0]
    if parent and store.local is not None:
        from holdfast.storage.locate import open_store

        if has_study(open_store(parent)):
            return f"this is the folder of a trial; give that of the study: {parent}"
    return "give the folder {storage_path}/{name} of a study that was begun"


def rules_of(
    failures: FailureConfig, metric: str | None, *, saves_at_end: bool, exports_at_end: bool
) -> Rules:
    """Return what is said about losses and ends, in the words of the layers below.

    For who drives a study and for who looks on: the same journal must mean the same for both.
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
    """Return the rules that a study is driven by, from its record alone; raise `CannotBeMade`."""
    failures = kept_config(study.run_config, "failure_config", FailureConfig)
    checkpoints = kept_config(study.run_config, "checkpoint_config", CheckpointConfig)
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


def kept_config(fields: Mapping[str, Any], name: str, kind: type[T]) -> T:
    """Return a config of ours that a record holds, or the usual one; raise `CannotBeMade`."""
    if name not in fields:
        return kind()
    config = from_plain(fields[name], trust=Trust.LOOKING)
    if type(config) is not kind:
        raise CannotBeMade(f"{name} is not a {kind.__name__}")
    return config


def configs_of(
    study: StoredStudy, trust: Trust = Trust.RESTORING, only: Collection[str] | None = None
) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    """Return the fields of both configs that were kept, as they were, and what cannot be made.

    That is by its name, `TuneConfig.scheduler`, with the reason. `only` leaves out other fields.
    """
    tune, run, refused = dict[str, Any](), dict[str, Any](), dict[str, str]()
    for kind, kept, made in (
        ("TuneConfig", study.tune_config, tune),
        ("RunConfig", study.run_config, run),
    ):
        for name, value in kept.items():
            if only is not None and name not in only:
                continue
            try:
                made[name] = from_plain(value, trust=trust)
            except CannotBeMade as error:
                refused[f"{kind}.{name}"] = str(error)
    return tune, run, refused
