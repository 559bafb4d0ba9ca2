"""Stored manifests: one sealed record per committed checkpoint, put once, never rewritten."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from holdfast.core.checkpoint.manifest import Manifest
from holdfast.errors import Damaged, FormatTooNew, ObjectMissing
from holdfast.storage.base import IF_ABSENT, Store
from holdfast.storage.digest import ALGORITHM
from holdfast.storage.records import seal, unseal

PRIVATE = ".holdfast"
MANIFESTS = f"{PRIVATE}/manifests"


def manifest_key(directory: str) -> str:
    """Return the key of the manifest of the checkpoint in `directory`."""
    return f"{MANIFESTS}/{directory}.json"


def put_manifest(store: Store, manifest: Manifest) -> None:
    """Commit a checkpoint: it exists once this has returned; `Conflict` if it existed before."""
    store.put(manifest_key(manifest.directory), seal(manifest.to_record()) + b"\n", IF_ABSENT)


def get_manifest(store: Store, directory: str) -> Manifest:
    """Return the manifest of the checkpoint in `directory`.

    Raises `ObjectMissing` if it was never committed, `Damaged` if the manifest is not whole.
    """
    key = manifest_key(directory)
    data = store.get(key).data
    try:
        manifest = Manifest.from_record(unseal(data.removesuffix(b"\n")))
    except Damaged as error:
        raise Damaged(f"{store.url}/{key}: {error.message}") from error
    if manifest.algorithm != ALGORITHM:
        raise FormatTooNew(
            f"{store.url}/{key} has digests of kind {manifest.algorithm}, this version reads only"
            f" {ALGORITHM}",
            hint="use the version of Holdfast that wrote it, or a newer one",
        )
    if manifest.directory != directory:
        raise Damaged(f"{store.url}/{key} is the manifest of {manifest.directory!r}")
    return manifest


def has_manifest(store: Store, directory: str) -> bool:
    """Whether there is a committed checkpoint in `directory`."""
    return store.stat(manifest_key(directory)) is not None


def manifest_directories(store: Store) -> list[str]:
    """Return the folders of all committed checkpoints, sorted."""
    cut = len(MANIFESTS) + 1
    return [
        entry.key[cut : -len(".json")]
        for entry in store.entries(MANIFESTS)
        if entry.key.endswith(".json")
    ]


def read_manifests(
    store: Store, except_for: Collection[str] = ()
) -> Iterator[tuple[str, Manifest | Damaged]]:
    """Yield the folder of each committed checkpoint with its manifest, or its damage."""
    for directory in manifest_directories(store):
        if directory in except_for:
            continue
        try:
            yield directory, get_manifest(store, directory)
        except Damaged as error:
            yield directory, error
        except ObjectMissing:
            continue  # removed between the listing and the read
