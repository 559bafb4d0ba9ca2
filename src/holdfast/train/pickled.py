"""The one kind of pickle that rests on storage: a function, or a config, that has no other form.

A lambda, a closure or a cell of a notebook cannot be imported again, and not every object is plain
data. They are kept for the deprecated `restore(path)`, which may be given nothing else; nothing but
that call reads them, and only after their digest was found right. A file's name holds its digest,
so that a new one never takes the place of one that a record still names.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import cloudpickle

from holdfast.errors import Damaged, ObjectMissing
from holdfast.storage.base import Store
from holdfast.storage.digest import digest_bytes

FOLDER = ".holdfast/pickled"
KEPT_BYTES_MAX = 100 << 20
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def pickled(value: object) -> bytes:
    """Return `value` as bytes that any process of this version of Python can read."""
    packed: bytes = cloudpickle.dumps(value)
    return packed


def reference_to_pickle(data: bytes) -> dict[str, Any]:
    """Return what a record says of these bytes; `keep` puts them where it says."""
    digest = digest_bytes(data)
    return {"kind": "pickled", "digest": digest, "size": len(data), "python": PYTHON}


def key_of(reference: Mapping[str, Any]) -> str:
    """Return where the bytes are that a record refers to."""
    return f"{FOLDER}/{reference['digest']}.pkl"


def problem_with(store: Store, reference: Mapping[str, Any]) -> str | None:
    """Return why the bytes that a record refers to cannot be used, None if they can."""
    if reference["python"] != PYTHON:
        # Code of functions is kept as this Python's instructions; another's may do anything.
        return f"it was pickled by Python {reference['python']}, and this is {PYTHON}"
    try:
        _read(store, reference)
    except (ObjectMissing, Damaged) as error:
        return error.message
    return None


def unpickled(store: Store, reference: Mapping[str, Any]) -> Any:
    """Return what was kept. Its own code runs while it is made again, and may raise anything."""
    return cloudpickle.loads(_read(store, reference))


def by_value(module: ModuleType) -> None:
    """Send what a module defines along with whatever uses it: nobody else could import it."""
    cloudpickle.register_pickle_by_value(module)


def _read(store: Store, reference: Mapping[str, Any]) -> bytes:
    key = key_of(reference)
    data = store.get(key).data
    if len(data) != reference["size"] or digest_bytes(data) != reference["digest"]:
        raise Damaged(f"{store.url}/{key} is not as it was written")
    return data
