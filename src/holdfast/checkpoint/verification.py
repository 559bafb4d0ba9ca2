"""Verifies checkpoints before their files are used.

Damage is evidence about the content: a wrong size or digest, a missing file, a missing or damaged
manifest. A checkpoint that cannot be read is not damaged, and raises `StoreError`.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.checkpoint.manifests import get_manifest
from holdfast.core.checkpoint.manifest import Manifest
from holdfast.errors import Damaged, ObjectMissing
from holdfast.storage.base import Store
from holdfast.storage.digest import digest_bytes
from holdfast.storage.parallel import Watch
from holdfast.storage.records import seal
from holdfast.storage.verify import damage_of

MISSING = "the manifest is missing"
_whole: set[tuple[str, str]] = set()  # the checkpoints this process has verified: url and identity


class Verified(NamedTuple):
    """The result of reading a checkpoint.

    Attributes:
        manifest: What was saved, None if that is unknown.
        problems: One line per damaged file; [] if the checkpoint is whole.
    """

    manifest: Manifest | None
    problems: list[str]


def verify_checkpoint(store: Store, directory: str, watch: Watch | None = None) -> Verified:
    """Read every byte of the checkpoint in `directory` of a run, and return the damage.

    Raises `StoreError` if it cannot be read: it may be whole.
    """
    try:
        manifest = get_manifest(store, directory)
    except ObjectMissing:
        return Verified(None, [MISSING])
    except Damaged as error:
        return Verified(None, [error.message])
    problems = damage_of(store, directory, manifest.files, watch)
    if not problems:
        _whole.add((store.url, identity_of(manifest)))
    return Verified(manifest, problems)


def must_be_whole(store: Store, directory: str) -> None:
    """Raise `Damaged` unless the checkpoint is as it was saved; it is read once per process."""
    if (store.url, identity_of(manifest_of(store, directory))) not in _whole:
        problems = verify_checkpoint(store, directory).problems
        if problems:
            manifest_of(store, directory)  # raises if it was removed meanwhile
            raise Damaged(
                f"checkpoint {directory} of {store.url} is damaged: {'; '.join(problems[:3])}",
                hint=f"holdfast verify {store.url} says which checkpoints are whole",
            )


def manifest_of(store: Store, directory: str) -> Manifest:
    """Return the manifest; raise `Damaged` if it is missing or damaged."""
    try:
        return get_manifest(store, directory)
    except ObjectMissing:
        raise Damaged(
            f"{directory} of {store.url} is no longer a checkpoint: {MISSING}",
            hint=f"it was removed by retention, or its manifest was deleted; holdfast verify"
            f" {store.url} says which checkpoints are whole",
        ) from None


def identity_of(manifest: Manifest) -> str:
    """Return a digest of the manifest, which identifies the checkpoint and its contents."""
    return digest_bytes(seal(manifest.to_record()))
