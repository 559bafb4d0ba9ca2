"""What is kept of a trainer so that the deprecated `restore(path)` needs nothing but the path.

One sealed line of JSON, `.holdfast/trainer.json`. It holds what the launch was given, as far as it
is plain data, and where the training function is found. It has no code, no storage path, nothing of
what opens a store, and no environment of workers. But `train_loop_config` is kept as it was given,
because `restore` must call the function with it, and a closure is kept with all it holds: if these
hold a key or a token, so does the record. On a disk nobody else can read it therefore; in a bucket,
whoever can read the run can. The run itself never reads it: a launch means what it says.
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

# Where a run is and how it is entered is said by whoever restores it; and what workers find in
# their environment is where keys and tokens are.
_NEVER_KEPT = frozenset({"name", "storage_path", "storage_filesystem", "local_dir", "resume"})
_SECRET = frozenset({"worker_runtime_env"})


class _Reference(TypedDict):
    """What a record says of a function or a config, of whatever kind."""

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
    """A trainer as its record says it.

    Attributes:
        trainer: The class, `module:Name`.
        function: Where the training function is found; see `references`.
        config: What it is called with: plain data, or where the pickle is; None if nothing was.
        run_config, scaling_config: Fields that are not as they are by themselves.
        arguments: What else the constructor was given.
        datasets: The names of the datasets.
        not_kept: What could not be kept and must be given again to have an effect.
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


class Keeper:
    """Puts together the record of a trainer, and the pickles that it refers to."""

    def __init__(self) -> None:
        self.pickles: dict[str, bytes] = {}
        self.not_kept: list[str] = []

    def function(self, function: Callable[..., Any] | None) -> dict[str, Any]:
        """Return where a training function is found again; None is one of the trainer's own."""
        if function is None:
            return {"kind": "none"}
        return reference_to_function(function) or self._pickled(function)

    def config(self, config: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Return a training function's config as plain data, or where its pickle is."""
        if config is None:
            return None
        try:
            return {"kind": "plain", "value": to_plain(config)}
        except NotPlain:
            return self._pickled(config)

    def fields(self, config: RunConfig | ScalingConfig) -> dict[str, Any]:
        """Return the fields of a config that were set."""
        kind, plain = type(config).__name__, type(config)()
        changed = {
            one.name: getattr(config, one.name)
            for one in dataclasses.fields(config)
            if one.name not in _NEVER_KEPT and getattr(config, one.name) != getattr(plain, one.name)
        }
        return self.values(changed, prefix=f"{kind}.", skipped=_SECRET)

    def values(
        self, given: Mapping[str, Any], *, prefix: str = "", skipped: frozenset[str] = frozenset()
    ) -> dict[str, Any]:
        """Return what is plain of some values, and note what is not."""
        kept = {}
        for name, value in given.items():
            try:
                if name in skipped:
                    raise NotPlain("it may hold secrets")
                kept[name] = to_plain(value)
            except NotPlain:
                self.not_kept.append(f"{prefix}{name}")
        return kept

    def _pickled(self, value: object) -> dict[str, Any]:
        data = pickled(value)
        if len(data) > KEPT_BYTES_MAX:
            return {
                "kind": "lost",
                "why": f"with {len(data) / 1e6:.0f} MB it was too large to keep",
            }
        reference = reference_to_pickle(data)
        self.pickles[key_of(reference)] = data
        return reference


def keep_trainer(run: OpenRun, make: Callable[[Keeper], StoredTrainer]) -> None:
    """Bring the record of the trainer up to date; for the holder of the run.

    A failure costs nothing but `restore`, so it is told and the run goes on.
    """
    try:
        keeper = Keeper()
        line = seal(make(keeper).to_record()) + b"\n"
        if _read(run.store) == line and all(
            _is_there(run.store, *one) for one in keeper.pickles.items()
        ):
            return
        run.lease.check()
        closed = closed_to_others(run.store)
        for key, data in keeper.pickles.items():
            closed.put(key, data)
        closed.put(TRAINER_KEY, line)  # from here on the new ones count, and not before
        for entry in list(run.store.entries(FOLDER)):
            if entry.key not in keeper.pickles:
                run.store.delete(entry.key)
    except LeaseLost:
        raise
    except Exception as error:  # noqa: BLE001  # pickling runs the user's code
        log.warning(
            "%s could not be written, so that restore(%r) will not work; the run goes on,"
            " and the same command carries on with it: %s",
            TRAINER_KEY, run.store.url, error,
        )  # fmt: skip


def read_trainer(store: Store) -> StoredTrainer:
    """Return what is kept of the trainer of the run in `store`.

    Raises `CannotRestore` if nothing is, or it is damaged, and `FormatTooNew`.
    """
    line = _read(store)
    if line is None:
        raise CannotRestore(
            f"{store.url} has no {TRAINER_KEY}, which says how the run was launched",
            hint="build the trainer as before, with the same storage_path and name: it carries on",
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
            hint="build the trainer as before, with the same storage_path and name: it carries on",
        ) from None


def _read(store: Store) -> bytes | None:
    try:
        return store.get(TRAINER_KEY).data
    except ObjectMissing:
        return None


def _is_there(store: Store, key: str, data: bytes) -> bool:
    entry = store.stat(key)
    return entry is not None and entry.size == len(data)
