"""The one kind of pickle that rests on storage: a function, or a config, that has no other form.

A lambda, a closure or a cell of a notebook cannot be imported again, and not every object is plain
data. They are kept for the deprecated `restore(path)`, which may be given nothing else; nothing but
that call reads them, and only after their digest was found right. A file's name holds its digest,
so that a new one never takes the place of one that a record still names.

A checkpoint in it is kept by where it is, without what opens its store: that of the run opens it.
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
    """Return `value` as bytes that any process of this version of Python can read."""
    buffer = io.BytesIO()
    _AtRest(buffer).dump(value)
    return buffer.getvalue()


class _AtRest(cloudpickle.Pickler):  # type: ignore[misc]  # which has no types
    """Pickles what is to rest on storage: a checkpoint in it takes no secret along."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Checkpoint) and type(value).__init__ is Checkpoint.__init__:
            with contextlib.suppress(NotPlain):  # it is on a filesystem object of the user's
                return checkpoint_at, (type(value), reference_to(value))
        return super().reducer_override(value)


_beside: ContextVar[str | None] = ContextVar("what opens the run that is restored", default=None)


def checkpoint_at(kind: type[Checkpoint], location: str) -> Checkpoint:
    """Return a checkpoint again; pickles at rest name this function."""
    return kind(opened_as(location, _beside.get()))


@contextlib.contextmanager
def _opened_as(store: Store) -> Iterator[None]:
    """Have checkpoints in the store of a run opened as the run itself is."""
    try:
        beside = location_of(store)
    except ConfigError:  # a store that cannot be described has no options either
        beside = store.url
    token = _beside.set(beside)
    try:
        yield
    finally:
        _beside.reset(token)


def reference_to_pickle(data: bytes) -> dict[str, Any]:
    """Return what a record says of these bytes; they belong at `key_of` it."""
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
    data = _read(store, reference)
    with _opened_as(store):
        return cloudpickle.loads(data)


def by_value(module: ModuleType) -> None:
    """Send what a module defines along with whatever uses it: nobody else could import it."""
    cloudpickle.register_pickle_by_value(module)


def _read(store: Store, reference: Mapping[str, Any]) -> bytes:
    key = key_of(reference)
    data = store.get(key).data
    if len(data) != reference["size"] or digest_bytes(data) != reference["digest"]:
        raise Damaged(f"{store.url}/{key} is not as it was written")
    return data
