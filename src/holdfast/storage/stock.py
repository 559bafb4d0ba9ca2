"""Taking stock of a folder that is in a store already: what it holds, digested and made durable."""

from __future__ import annotations

from holdfast.core.checkpoint.manifest import FileEntry
from holdfast.errors import ConfigError
from holdfast.storage.base import Entry, Store
from holdfast.storage.digest import Digester
from holdfast.storage.local.errors import explained
from holdfast.storage.local.store import LocalStore
from holdfast.storage.parallel import each
from holdfast.storage.transfer import THREADS_LOCAL, THREADS_REMOTE, survey


def take_stock(
    store: Store, prefix: str, *, staged: bool = False
) -> tuple[tuple[FileEntry, ...], tuple[str, ...]]:
    """Return the files below `prefix` with their digests, and its empty folders.

    Whoever put them there may not have cared: on a local disk their bytes and names are durable on
    return; with `staged` only the bytes are, and whoever moves them to where they belong makes the
    names so.
    """
    if store.local is not None:
        return _local_stock(store.local, prefix, staged=staged)
    found = list(store.entries(prefix))
    if not found:
        raise ConfigError(f"there are no files at {store.url}/{prefix}")
    files = each(lambda entry: _streamed(store, prefix, entry), found, THREADS_REMOTE)
    return tuple(sorted(files, key=lambda entry: entry.path)), ()


def _local_stock(
    store: LocalStore, prefix: str, *, staged: bool
) -> tuple[tuple[FileEntry, ...], tuple[str, ...]]:
    found, folders = survey(store.path(prefix))
    names = sorted(file.name for file in found)
    files = each(lambda name: _synced(store, prefix, name), names, THREADS_LOCAL)
    if staged:
        return tuple(files), tuple(folders)
    parents = {"", *folders}
    for name in names:
        while "/" in name:
            name = name.rpartition("/")[0]  # noqa: PLW2901  # climbing to the top
            parents.add(name)
    deepest_first = sorted(parents, key=len, reverse=True)
    keys = [f"{prefix}/{folder}".rstrip("/") for folder in deepest_first]
    above = prefix
    while above:  # its own name, too, was given by whoever put it there
        above = above.rpartition("/")[0]
        keys.append(above)
    store.sync_folders(keys)
    return tuple(files), tuple(folders)


def _synced(store: LocalStore, prefix: str, name: str) -> FileEntry:
    key = f"{prefix}/{name}"
    path = store.path(key)
    with explained("sync", path, key):
        handle = store.disk.open(path)
        try:
            store.disk.sync(handle)
        finally:
            store.disk.close(handle)
    return _streamed(store, prefix, Entry(key, 0, 0.0))


def _streamed(store: Store, prefix: str, entry: Entry) -> FileEntry:
    digester = Digester()
    for chunk in store.stream(entry.key):
        digester.update(chunk)
    name = entry.key.removeprefix(f"{prefix}/")
    return FileEntry(name, digester.size, digester.hexdigest())
