"""The one door to a checkpoint: nobody gets its files before they are known to be what was saved.

Damage is evidence about the content: a size, a digest, a file or manifest that is missing, a
manifest that is not whole. What could not be read is not damaged, and raises `StoreError`.
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
_whole: set[tuple[str, str]] = set()  # what this process has read: where it is and its identity


class Verified(NamedTuple):
    """What was found when a checkpoint was read.

    Attributes:
        manifest: What was saved, None if that cannot be told.
        problems: What is damaged, one line each; [] if the checkpoint is whole.
    """

    manifest: Manifest | None
    problems: list[str]


def verify_checkpoint(store: Store, directory: str, watch: Watch | None = None) -> Verified:
    """Read every byte of the checkpoint in `directory` of a run, and say what is damaged.

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
    """Raise `Damaged` unless the checkpoint is what was saved; it is read once per process."""
    if (store.url, identity_of(manifest_of(store, directory))) not in _whole:
        problems = verify_checkpoint(store, directory).problems
        if problems:
            manifest_of(store, directory)  # raises if it was retired while it was read
            raise Damaged(
                f"checkpoint {directory} of {store.url} is damaged: {'; '.join(problems[:3])}",
                hint=f"holdfast verify {store.url} says which checkpoints are whole",
            )


def manifest_of(store: Store, directory: str) -> Manifest:
    """Return what was saved; raise `Damaged` if that cannot be told."""
    try:
        return get_manifest(store, directory)
    except ObjectMissing:
        raise Damaged(
            f"{directory} of {store.url} is no checkpoint any more: {MISSING}",
            hint=f"it was retired, or somebody deleted that; holdfast verify {store.url} says which"
            " checkpoints are whole",
        ) from None


def identity_of(manifest: Manifest) -> str:
    """Return what tells this checkpoint from every other one, and from itself with other files."""
    return digest_bytes(seal(manifest.to_record()))
