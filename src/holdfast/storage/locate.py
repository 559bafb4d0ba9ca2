"""Opens the store at a path or URI, and turns stores into plain data and back."""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from holdfast import settings
from holdfast.core.names import shown
from holdfast.errors import ConfigError
from holdfast.storage import uris
from holdfast.storage.base import Store
from holdfast.storage.local.store import LocalStore
from holdfast.storage.memory import MemoryStore
from holdfast.storage.prefix import PrefixStore, child
from holdfast.storage.retry import Retrying, RetryPolicy
from holdfast.storage.uris import Uri

START_S = 12.0  # for a first answer, so that a command ends within 15 s
_POLICY_FIELDS = tuple(policy_field.name for policy_field in fields(RetryPolicy))

__all__ = [
    "child",
    "closed_to_others",
    "describe",
    "describe_child",
    "location_of",
    "open_store",
    "reopen",
]


def open_store(
    path: str | os.PathLike[str],
    filesystem: object | None = None,
    *,
    options: Mapping[str, str] | None = None,
    retry: RetryPolicy | None = None,
) -> Store:
    """Return the store at `path`, with retries of transient faults; nothing is accessed yet.

    Args:
        path: A folder (relative ones and `~` too), or a URI: `file://`, `s3://bucket/folder`,
            `gs://`, `az://`, `abfs[s]://`, `memory://name`. The query of a URI may hold endpoint,
            region and credentials (`?endpoint_override=…&region=…&access_key=…`), by pyarrow's
            names; the rest comes from the environment.
        filesystem: A filesystem of fsspec or pyarrow.fs that `path` belongs to.
        options: Further parameters of the query, which are never shown.
        retry: How long transient faults are retried. By default, remote storage has 12 s
            (`HOLDFAST_STORAGE_TIMEOUT_S`) to answer, and any time once a run has begun.

    Raises:
        ConfigError: The path is none of these.
    """
    text = os.fspath(path)
    if not isinstance(text, str):
        raise ConfigError(f"the storage path {shown(path)} must be text, not bytes")
    uri = uris.split(text)
    if filesystem is not None:
        store = _on_filesystem(text, uri, filesystem)
        return Retrying(store, retry if store.local is not None else retry or remote_policy())
    if uri is None:
        return Retrying(LocalStore(uris.from_home(text)), retry)
    match uri.scheme:
        case "file":
            return Retrying(LocalStore(_file_path(uri)), retry)
        case "memory":
            return Retrying(MemoryStore(uri.authority, uri.path), retry)
        case "s3" | "gs" | "gcs" | "az" | "abfs" | "abfss":
            return Retrying(_object_store(uri, options or {}), retry or remote_policy())
        case _:
            raise uris.unknown_scheme(uri)


def remote_policy() -> RetryPolicy:
    """Return the policy for remote storage: a short limit at first, none once a run has begun."""
    given = settings.storage_timeout_s()
    if given is None:
        return RetryPolicy(deadline_s=None, start_s=START_S)
    try:
        start_s = float(given)
    except ValueError:
        start_s = -1.0
    if not 0 < start_s < float("inf"):
        raise ConfigError(
            f"HOLDFAST_STORAGE_TIMEOUT_S={given}: must be a number of seconds above zero",
            hint=f"leave it out for {START_S:g} s",
        )
    return RetryPolicy(deadline_s=None, start_s=start_s)


def closed_to_others(store: Store) -> Store:
    """Return the same store; on a disk, only this user can read what it writes."""
    local = store.local
    if local is None:
        return store  # the bucket controls access
    closed = local.closed_to_others()
    return store.around(closed) if isinstance(store, Retrying) else closed


def describe(store: Store) -> dict[str, Any]:
    """Return plain data from which `reopen` makes the same store in another process.

    It holds the secrets given with the path: send it to a process, but never store it. It also
    holds the user's filesystem object if that shows the local disk under other paths.
    """
    match store:
        case Retrying():
            policy = {name: getattr(store.policy, name) for name in _POLICY_FIELDS}
            return {**describe(store.store), "retry": policy}
        case LocalStore(view=view) if view is not None:
            path = view.path_of(store.root)
            return {"path": path, "filesystem": view.filesystem, "is_durable": store.is_durable}
        case LocalStore():
            return {"path": store.root, "is_durable": store.is_durable}
        case MemoryStore() if store.url != MemoryStore().url:
            return {"path": store.url}
        case PrefixStore():
            return {**describe(store.store), "below": store.prefix}
        case _:
            describe_store = getattr(store, "describe", None)
            if describe_store is None:
                raise ConfigError(f"{store.url} cannot be opened again from plain data")
            described: dict[str, Any] = describe_store()
            return described


def location_of(store: Store) -> str:
    """Return a path or URI from which `open_store` makes the same store, without a filesystem.

    It holds the secrets given with the path: send it to a process, but never store it.
    """
    query = urllib.parse.urlencode(describe(store).get("options") or {})
    return f"{store.url}?{query}" if query else store.url


def describe_child(described: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the description of the folder `key` of a described store."""
    above = described.get("below")
    return {**described, "below": f"{above}/{key}" if above else key}


def reopen(described: Mapping[str, Any]) -> Store:
    """Return the store that `describe` described."""
    retry = RetryPolicy(**described["retry"]) if "retry" in described else None
    filesystem = described.get("filesystem")
    if "fsspec" in described:
        from fsspec import AbstractFileSystem

        filesystem = AbstractFileSystem.from_dict(dict(described["fsspec"]))
    store = open_store(described["path"], filesystem, options=described.get("options"), retry=retry)
    if described.get("is_durable") and store.local is not None:
        store.local.trust()
    return child(store, described.get("below", ""))


def _on_filesystem(path: str, uri: Uri | None, filesystem: object) -> Store:
    from holdfast.storage.foreign.store import adopt

    if uri is not None:
        raise ConfigError(
            f"the storage path is a {uri.scheme}:// URI and storage_filesystem is given too:"
            " the path must belong to that filesystem",
            hint="leave out storage_filesystem, or the scheme",
        )
    return adopt(filesystem, path)


def _file_path(uri: Uri) -> str:
    if uri.authority not in ("", "localhost"):
        raise ConfigError(
            f"the storage path file://{uri.authority}/… names another machine, or lacks a slash",
            hint="file:///folder/of/this/machine has three",
        )
    return "/" + urllib.parse.unquote(uri.path)


def _object_store(uri: Uri, options: Mapping[str, str]) -> Store:
    from holdfast.storage.bucket.options import bucket_of
    from holdfast.storage.bucket.store import ObjectStore

    return ObjectStore(bucket_of(uri, {**uri.options, **options}), uri.path)
