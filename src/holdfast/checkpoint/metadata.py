"""Metadata of a checkpoint: a small JSON object that belongs to it.

Before a checkpoint is committed, it is one of its files, `.metadata.json`, and is committed with
them. After that the files do not change; later metadata is stored beside the manifest and takes
precedence.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from holdfast.checkpoint.manifests import PRIVATE
from holdfast.checkpoint.verification import manifest_of
from holdfast.core.names import shown
from holdfast.errors import ConfigError, Damaged, ObjectMissing
from holdfast.storage.base import Store
from holdfast.storage.digest import digest_bytes
from holdfast.storage.records import seal, unseal

FILE_NAME = ".metadata.json"


class NoMetadata(ConfigError, TypeError):
    """The given metadata is not a dictionary of JSON data."""


def metadata_key(directory: str) -> str:
    """Return the key of the metadata of a committed checkpoint, in the run's store."""
    return f"{PRIVATE}/metadata/{directory}.json"


def read_metadata(files: Store, home: tuple[Store, str] | None) -> dict[str, Any]:
    """Return the metadata of the checkpoint whose files are in `files`.

    `home` is the run it was committed to and its folder there, None if it was not.
    """
    if home is not None:
        run, directory = home
        try:
            later: dict[str, Any] = unseal(run.get(metadata_key(directory)).data)["metadata"]
            return later
        except ObjectMissing:
            pass  # not changed since the commit: the committed file counts
        except Damaged as error:
            raise Damaged(f"{run.url}/{metadata_key(directory)}: {error.message}") from None
    try:
        text = files.get(FILE_NAME).data if home is None else _committed(files, *home)
    except ObjectMissing:
        return {}
    try:
        metadata = json.loads(text)
    except ValueError as error:
        raise Damaged(f"{files.url}/{FILE_NAME} is not JSON: {error}") from None
    if not isinstance(metadata, dict):
        raise Damaged(f"{files.url}/{FILE_NAME} is not a JSON object")
    return metadata


def _committed(files: Store, run: Store, directory: str) -> bytes:
    """Return the committed file; raise `ObjectMissing` if there is none."""
    saved = {entry.path: entry for entry in manifest_of(run, directory).files}.get(FILE_NAME)
    if saved is None:
        raise ObjectMissing(f"{directory} was committed without metadata", key=FILE_NAME)
    try:
        text = files.get(FILE_NAME).data
    except ObjectMissing:
        raise Damaged(f"{files.url}/{FILE_NAME} is missing") from None
    if digest_bytes(text) != saved.digest:
        raise Damaged(f"{files.url}/{FILE_NAME} does not match its digest")
    return text


def as_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the metadata; raise if it is not a dictionary."""
    if not isinstance(metadata, Mapping):
        raise NoMetadata(
            f"metadata={shown(metadata)} is not a dictionary", hint='set_metadata({"name": value})'
        )
    return dict(metadata)


def write_metadata(
    files: Store, home: tuple[Store, str] | None, metadata: Mapping[str, Any]
) -> None:
    """Replace the metadata of the checkpoint whose files are in `files`."""
    metadata = as_metadata(metadata)
    try:
        text = json.dumps(metadata)
    except (TypeError, ValueError) as error:
        raise NoMetadata(
            f"metadata must be expressible as JSON: {error}",
            hint="use only numbers, strings, lists and dictionaries in it",
        ) from None
    if home is None:
        files.put(FILE_NAME, text.encode())
    else:
        run, directory = home
        run.put(metadata_key(directory), seal({"metadata": metadata}))
