"""The only pickles on storage: functions and configs that have no other form.

A lambda, a closure or a notebook function cannot be imported, and not every object is plain data.
They are stored for the deprecated `restore(path)`, which gets nothing but the path; only that call
reads them, after checking their digest. A file's name holds its digest, so that a new file never
replaces one that a record still names.

A checkpoint in a pickle is stored by its location, without credentials; those of the run open it.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from types import ModuleType
from typing import Any

import cloudpickle

from holdfast.api.plain_data import NotPlain, opened_as, reference_to
from holdfast.checkpoint import Checkpoint
from holdfast.errors import ConfigError, Damaged, ObjectMissing
from holdfast.storage.base import Store
from holdfast.storage.digest import digest_bytes
from holdfast.storage.locate import location_of

FOLDER = ".holdfast/pickled"
KEPT_BYTES_MAX = 100 << 20
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def pickled(value: object) -> bytes:
    """Return `value` as bytes that any process of the same Python version can read."""
    buffer = io.BytesIO()
    _StoragePickler(buffer).dump(value)
    return buffer.getvalue()


class _StoragePickler(cloudpickle.Pickler):  # type: ignore[misc]  # which has no types
    """Pickles checkpoints by their location, without secrets."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Checkpoint) and type(value).__init__ is Checkpoint.__init__:
            with contextlib.suppress(NotPlain):  # on a filesystem object of the user's
                return checkpoint_at, (type(value), reference_to(value))
        return super().reducer_override(value)


_run_location: ContextVar[str | None] = ContextVar("location of the restored run", default=None)


def checkpoint_at(kind: type[Checkpoint], location: str) -> Checkpoint:
    """Rebuild a checkpoint; stored pickles name this function."""
    return kind(opened_as(location, _run_location.get()))


@contextlib.contextmanager
def _opening_checkpoints_as(store: Store) -> Iterator[None]:
    """Open checkpoints in the bucket of a run with the run's own options."""
    try:
        location = location_of(store)
    except ConfigError:  # a store that cannot be described has no options either
        location = store.url
    token = _run_location.set(location)
    try:
        yield
    finally:
        _run_location.reset(token)


def reference_to_pickle(data: bytes) -> dict[str, Any]:
    """Return a record's reference to these bytes, which are stored at `key_of` it."""
    digest = digest_bytes(data)
    return {"kind": "pickled", "digest": digest, "size": len(data), "python": PYTHON}


def key_of(reference: Mapping[str, Any]) -> str:
    """Return the key of the bytes that a record refers to."""
    return f"{FOLDER}/{reference['digest']}.pkl"


def problem_with(store: Store, reference: Mapping[str, Any]) -> str | None:
    """Return why the bytes that a record refers to cannot be used, None if they can."""
    if reference["python"] != PYTHON:
        # Functions are pickled as bytecode, which differs between versions of Python.
        return f"it was pickled by Python {reference['python']}, and this is {PYTHON}"
    try:
        _read(store, reference)
    except (ObjectMissing, Damaged) as error:
        return error.message
    return None


def unpickled(store: Store, reference: Mapping[str, Any]) -> Any:
    """Return the stored value. Unpickling runs its own code, which may raise anything."""
    data = _read(store, reference)
    with _opening_checkpoints_as(store):
        return cloudpickle.loads(data)


def pickle_by_value(module: ModuleType) -> None:
    """Pickle what a module defines by value, because other processes cannot import it."""
    cloudpickle.register_pickle_by_value(module)


def _read(store: Store, reference: Mapping[str, Any]) -> bytes:
    key = key_of(reference)
    data = store.get(key).data
    if len(data) != reference["size"] or digest_bytes(data) != reference["digest"]:
        raise Damaged(f"{store.url}/{key} is damaged: its size or digest is wrong")
    return data
