"""The record of a trainer, from which the deprecated `restore(path)` rebuilds it.

It is one sealed line of JSON, `.holdfast/trainer.json`, with the arguments of the launch, as far as
they are plain data, and where the training function is found. It holds no code, no storage path, no
credentials of a store, and no environment of workers. But `train_loop_config` is stored as given,
because `restore` must call the function with it, and a closure is stored with its variables: if
these hold a key or a token, so does the record. So on a disk only its owner can read it; in a
bucket, everyone who can read the run. Only `restore` reads it; a launch uses its own arguments.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, NotRequired, TypedDict

import msgspec

from holdfast.api.config import RunConfig, ScalingConfig
from holdfast.api.plain_data import NotPlain, to_plain
from holdfast.control.record.open_run import OpenRun
from holdfast.errors import Damaged, FormatTooNew, LeaseLost, ObjectMissing
from holdfast.storage.base import Store
from holdfast.storage.locate import closed_to_others
from holdfast.storage.records import Count, fit, known_format, seal, unseal
from holdfast.train.restore.pickled import (
    FOLDER,
    KEPT_BYTES_MAX,
    key_of,
    pickled,
    reference_to_pickle,
)
from holdfast.train.restore.references import CannotRestore, reference_to_function

log = logging.getLogger(__name__)

TRAINER_KEY = ".holdfast/trainer.json"
FORMAT = 1
_HOW_TO_RESUME = "build the trainer as before, with the same storage_path and name: it carries on"

# The call of `restore` itself gives the location and the resume policy; and the environment of
# workers often holds keys and tokens.
_NEVER_KEPT = frozenset({"name", "storage_path", "storage_filesystem", "local_dir", "resume"})
_SECRET = frozenset({"worker_runtime_env"})


class _Reference(TypedDict):
    """A reference to a function or a config, of any kind."""

    kind: str
    module: NotRequired[str | None]
    name: NotRequired[str]
    root: NotRequired[str | None]
    script: NotRequired[str]
    digest: NotRequired[Annotated[str, msgspec.Meta(pattern="^[0-9a-f]+$")]]
    size: NotRequired[Count]
    python: NotRequired[str]
    why: NotRequired[str]
    value: NotRequired[Any]


_NEEDED = {
    "import": ("module", "name", "root"),
    "main": ("module", "name", "script"),
    "pickled": ("digest", "size", "python"),
    "plain": ("value",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTrainer:
    """The contents of a trainer's record.

    Attributes:
        trainer: The class, `module:Name`.
        function: Where the training function is found; see `references`.
        config: Its config: plain data, or a reference to a pickle; None if there was none.
        run_config, scaling_config: Fields that differ from the default.
        arguments: Other arguments of the constructor.
        datasets: The names of the datasets.
        not_kept: Arguments that could not be stored and must be passed again to have an effect.
    """

    trainer: str
    function: Mapping[str, Any]
    config: Mapping[str, Any] | None = None
    run_config: Mapping[str, Any] = field(default_factory=dict)
    scaling_config: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    datasets: list[str] = field(default_factory=list)
    not_kept: list[str] = field(default_factory=list)

    def to_record(self) -> dict[str, Any]:
        return {"format": FORMAT, **dataclasses.asdict(self)}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> StoredTrainer:
        stored = fit(record, cls)
        for reference in (stored.function, stored.config):
            if reference is not None:
                kind = fit(reference, _Reference)["kind"]
                if missing := [name for name in _NEEDED.get(kind, ()) if name not in reference]:
                    raise Damaged(f"it is another record: a {kind} without {missing[0]}")
        return stored


class RecordBuilder:
    """Builds the record of a trainer, and collects the pickles that it refers to."""

    def __init__(self) -> None:
        self.pickles: dict[str, bytes] = {}
        self.not_kept: list[str] = []

    def function(self, function: Callable[..., Any] | None) -> dict[str, Any]:
        """Return a reference to a training function; None stands for the trainer's own."""
        if function is None:
            return {"kind": "none"}
        return reference_to_function(function) or self._pickled(function)

    def config(self, config: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Return a training function's config as plain data, or a reference to its pickle."""
        if config is None:
            return None
        try:
            return {"kind": "plain", "value": to_plain(config)}
        except NotPlain:
            return self._pickled(config)

    def fields(self, config: RunConfig | ScalingConfig) -> dict[str, Any]:
        """Return the fields of a config that differ from the default."""
        kind, default = type(config).__name__, type(config)()
        names = [item.name for item in dataclasses.fields(config) if item.name not in _NEVER_KEPT]
        changed = {
            name: getattr(config, name)
            for name in names
            if getattr(config, name) != getattr(default, name)
        }
        return self.values(changed, prefix=f"{kind}.", skipped=_SECRET)

    def values(
        self, given: Mapping[str, Any], *, prefix: str = "", skipped: frozenset[str] = frozenset()
    ) -> dict[str, Any]:
        """Return the values that are plain data, and add the names of others to `not_kept`."""
        plain = {}
        for name, value in given.items():
            try:
                if name in skipped:
                    raise NotPlain("it may hold secrets")
                plain[name] = to_plain(value)
            except NotPlain:
                self.not_kept.append(f"{prefix}{name}")
        return plain

    def _pickled(self, value: object) -> dict[str, Any]:
        data = pickled(value)
        if len(data) > KEPT_BYTES_MAX:
            return {
                "kind": "lost",
                "why": f"with {len(data) / 1e6:.0f} MB it was too large to store",
            }
        reference = reference_to_pickle(data)
        self.pickles[key_of(reference)] = data
        return reference


def store_trainer(run: OpenRun, make: Callable[[RecordBuilder], StoredTrainer]) -> None:
    """Write the trainer's record, if it has changed; for the holder of the run's lease.

    A failure affects only `restore`, so it is logged and the run goes on.
    """
    try:
        builder = RecordBuilder()
        line = seal(make(builder).to_record()) + b"\n"
        if _read(run.store) == line and all(
            _is_stored(run.store, key, data) for key, data in builder.pickles.items()
        ):
            return
        run.lease.check()
        private = closed_to_others(run.store)
        for key, data in builder.pickles.items():
            private.put(key, data)
        private.put(TRAINER_KEY, line)  # last: this is what makes the new pickles count
        for entry in list(run.store.entries(FOLDER)):
            if entry.key not in builder.pickles:
                run.store.delete(entry.key)
    except LeaseLost:
        raise
    except Exception as error:  # noqa: BLE001  # pickling runs the user's code
        log.warning(
            "%s could not be written, so restore(%r) will not work; the run goes on, and the same"
            " command resumes it: %s",
            TRAINER_KEY, run.store.url, error,
        )  # fmt: skip


def read_trainer(store: Store) -> StoredTrainer:
    """Return the trainer's record of the run in `store`.

    Raises `CannotRestore` if it is missing or damaged, and `FormatTooNew`.
    """
    line = _read(store)
    if line is None:
        raise CannotRestore(
            f"{store.url} has no {TRAINER_KEY}, which says how the run was launched",
            hint=_HOW_TO_RESUME,
        )
    try:
        record = unseal(line.removesuffix(b"\n"))
        if known_format(record) > FORMAT:
            raise FormatTooNew(
                f"{store.url}/{TRAINER_KEY} has format {record['format']}, this version reads up"
                f" to {FORMAT}",
                hint="use the version of Holdfast that wrote it, or a newer one",
            )
        return StoredTrainer.from_record(record)
    except Damaged as error:
        raise CannotRestore(
            f"{store.url}/{TRAINER_KEY}: {error.message}",
            hint=_HOW_TO_RESUME,
        ) from None


def _read(store: Store) -> bytes | None:
    try:
        return store.get(TRAINER_KEY).data
    except ObjectMissing:
        return None


def _is_stored(store: Store, key: str, data: bytes) -> bool:
    entry = store.stat(key)
    return entry is not None and entry.size == len(data)
