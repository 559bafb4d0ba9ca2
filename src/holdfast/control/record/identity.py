"""The identity of a run: creates and reads the object that makes a folder a run."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypedDict

from holdfast.checkpoint.manifests import read_manifests
from holdfast.clock import Clock
from holdfast.core.checkpoint.manifest import Manifest
from holdfast.core.names import broken_name_rule, shown
from holdfast.errors import (
    CannotResume,
    ConfigError,
    Conflict,
    Damaged,
    FormatTooNew,
    ObjectMissing,
    RunMissing,
)
from holdfast.journal.segments import runs_in_journal
from holdfast.storage.base import IF_ABSENT, Store
from holdfast.storage.locate import child, open_store
from holdfast.storage.records import fit, known_format, seal, unseal

FORMAT = 1
STUDY_KEY = ".holdfast/study.json"  # the settings of a study
RUN_KEY = ".holdfast/run.json"
_KINDS = {"train": "training run", "tune": "study"}


class _IdentityFields(TypedDict):
    """The members of a stored identity."""

    run: str
    name: str
    kind: str
    created: float


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """What identifies a run; it stays the same when its folder is moved or copied."""

    run_id: str
    name: str
    kind: str
    created: float

    def to_record(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "run": self.run_id,
            "name": self.name,
            "kind": self.kind,
            "created": self.created,
        }


def run_store(
    storage_path: str | os.PathLike[str], name: str, filesystem: object | None = None
) -> Store:
    """Return the store of the run `name` at `storage_path`; nothing is touched yet."""
    if rule := broken_name_rule(name):
        raise ConfigError(
            f"a run cannot be named {shown(name)}: {rule}",
            hint="letters, digits and - _ . = are always fine",
        )
    return child(open_store(storage_path, filesystem), name)


def read_identity(store: Store) -> RunIdentity:
    """Return the identity of the run in `store`; raise `RunMissing` if there is none."""
    try:
        data = store.get(RUN_KEY).data
    except ObjectMissing:
        raise _no_run(store) from None
    try:
        record = unseal(data.removesuffix(b"\n"))
        if known_format(record) > FORMAT:
            raise FormatTooNew(
                f"{store.url} has run format {record['format']}, this version reads up to {FORMAT}",
                hint="use the version of Holdfast that wrote it, or a newer one",
            )
        fields = fit(record, _IdentityFields)
    except Damaged as error:
        raise Damaged(
            f"{store.url}/{RUN_KEY}: {error.message}",
            hint="put the file back from a copy; checkpoints and journal are not affected",
        ) from None
    return RunIdentity(fields["run"], fields["name"], fields["kind"], fields["created"])


def find_identity(store: Store) -> tuple[RunIdentity, str | None]:
    """Return the identity of the run in `store`, and what is wrong with `run.json`, if anything.

    Every segment of the journal and every manifest names its run too, so a lost or damaged
    `run.json` costs nothing but the name. Raises `RunMissing` if there is no trace of a run.
    """
    identity: RunIdentity | None = None
    absence: RunMissing | None = None
    problem = "it belongs to another run"
    try:
        identity = read_identity(store)
    except RunMissing as missing:
        absence, problem = missing, "it is missing"
    except Damaged as damage:
        problem = damage.message
    named = None
    for run_id in _witnesses(store):
        if identity is not None and identity.run_id == run_id:
            return identity, None
        named = named or run_id
    if named is not None:
        name = os.path.basename(store.url.rstrip("/"))
        kind = "train" if store.stat(STUDY_KEY) is None else "tune"
        return RunIdentity(named, name, kind, 0.0), problem
    if identity is not None:
        return identity, None
    raise absence or Damaged(problem, hint="put the file back from a copy; nothing else names it")


def must_be_kind(store: Store, identity: RunIdentity, kind: str | None) -> None:
    """Raise if a run is not of this kind, None for any."""
    if kind is not None and identity.kind != kind:
        actual, wanted = (_KINDS.get(name, name) for name in (identity.kind, kind))
        raise CannotResume(
            f"there is a {actual} at {store.url}, and it is not a {wanted}",
            hint="choose another name, or another storage_path",
        )


def _witnesses(store: Store) -> Iterator[str]:
    """Yield the id of the run that each record names, those of the journal first."""
    yield from runs_in_journal(store)
    for _, manifest in read_manifests(store):
        if isinstance(manifest, Manifest):
            yield manifest.run_id


def create_identity(store: Store, *, name: str, kind: str, clock: Clock) -> RunIdentity:
    """Make `store` a new run."""
    identity = claim_identity(store, name=name, kind=kind, clock=clock)
    # If another driver was faster, the lease decides between them.
    return read_identity(store) if identity is None else identity


def claim_identity(store: Store, *, name: str, kind: str, clock: Clock) -> RunIdentity | None:
    """Make `store` a new run; None, and no change, if it is one already."""
    identity = RunIdentity(secrets.token_hex(8), name, kind, clock.now())
    line = seal(identity.to_record()) + b"\n"
    try:
        store.put(RUN_KEY, line, IF_ABSENT)
    except Conflict:
        # It may be ours: if the answer to a put is lost, the put is retried.
        return identity if store.get(RUN_KEY).data == line else None
    return identity


def restore_identity(store: Store, identity: RunIdentity) -> None:
    """Write `run.json` again; only for the holder of the lease."""
    store.put(RUN_KEY, seal(identity.to_record()) + b"\n")


def _no_run(store: Store) -> RunMissing:
    runs = [folder for folder in store.folders() if store.stat(f"{folder}/{RUN_KEY}")]
    if runs:
        return RunMissing(
            f"{store.url} is not a run but holds {len(runs)}: {', '.join(runs[:5])}"
            + ("…" if len(runs) > 5 else ""),
            hint=f"name one of them, such as {store.url}/{runs[0]}",
        )
    if (run := _run_around(store)) is not None:
        return RunMissing(f"{store.url} is not a run but inside one", hint=f"name {run}")
    return RunMissing(
        f"there is no run at {store.url}",
        hint="check the path; a run's directory is {storage_path}/{name}",
    )


def _run_around(store: Store) -> str | None:
    """Return the run that a local folder lies in, None if it lies in none."""
    folder = "" if store.local is None else store.local.root
    for _ in range(3):
        folder = os.path.dirname(folder)
        if folder and os.path.exists(os.path.join(folder, RUN_KEY)):
            return folder
    return None
