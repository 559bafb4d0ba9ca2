"""`put`, `get` and the `ObjectRef` that connects them."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload
from weakref import WeakValueDictionary

from holdfast.core.names import shown
from holdfast.errors import ConfigError, HoldfastError, StoreFull
from holdfast.journal.owner import Owner, this_process
from holdfast.objects import serial
from holdfast.objects.memory import Memory, ObjectLost, new_memory, open_memory

LARGE_BYTES = 1 << 20  # a value of this size is sent by reference
_TOO_MANY = (errno.EMFILE, errno.ENFILE)


class _Object:
    """An object as this process sees it, shared by all its references here.

    Attributes:
        memory: Held by the owner until this is garbage; by others if the value contains tensors.
        inside: References inside the value, which live as long as it does.
    """

    def __init__(self, token: str, owner: Owner, address: str, size: int) -> None:
        self.token, self.owner, self.address, self.size = token, owner, address, size
        self.memory: Memory | None = None
        self.inside: list[ObjectRef] = []
        self._view: memoryview | None = None

    def read(self) -> Any:
        """Return the value; thread-safe, because at worst each thread makes its own mapping."""
        try:
            view, memory = self._mapped()
            tail = memory.to_change(serial.tail_of(view)) if memory is not None else None
        except OSError as error:
            raise (_too_many(error) if error.errno in _TOO_MANY else error) from None
        return serial.read(view, tail)

    def read_private(self) -> Any:
        """Return the value in a writable mapping; written pages become private."""
        try:
            memory = self.memory or self._opened()
            whole = memoryview(memory.to_change(0))
        except OSError as error:
            raise (_too_many(error) if error.errno in _TOO_MANY else error) from None
        return serial.read(whole, whole[serial.tail_of(whole) :])

    def _mapped(self) -> tuple[memoryview, Memory | None]:
        """Return a read-only view of all the memory; and the memory, if it contains tensors."""
        view, memory = self._view, self.memory
        if memory is None and (view is None or serial.has_tail(view)):
            memory = self._opened()
        if view is None:
            assert memory is not None
            view = self._view = memoryview(memory.to_read())
        if not serial.has_tail(view):
            return view, None
        self.memory = memory
        return view, memory

    def problem(self) -> HoldfastError | None:
        """Return why the value cannot be read, None if it can."""
        if self.memory is not None:
            return None
        try:
            self._mapped()
        except ObjectLost as error:
            return error
        return None

    def _opened(self) -> Memory:
        try:
            return open_memory(self.address, self.token)
        except ObjectLost as error:
            raise self._lost() from error

    def _lost(self) -> ObjectLost:
        name, here = f"object {self.token[:8]}", this_process()
        if self.owner.place != here.place:
            return ObjectLost(
                f"{name} was put on {self.owner}, and this is {here}: objects are shared by the"
                " processes of one machine, or one container",
                hint="put it here, or load it from storage",
            )
        if self.owner.is_proven_dead():
            return ObjectLost(
                f"{name} is gone with the process that put it, {self.owner}",
                hint="put it again, and use the new reference",
            )
        if self.owner.user != here.user:
            return ObjectLost(
                f"{name} belongs to a process of {self.owner.user}, {self.owner}, and this one"
                f" runs as {here.user}",
                hint="put it as the user who reads it",
            )
        return ObjectLost(
            f"{name} was freed: the process that put it, {self.owner}, has no reference to it any"
            " more",
            hint="in that process, keep the ObjectRef that put returned while others use it",
        )


_objects: WeakValueDictionary[str, _Object] = WeakValueDictionary()


class ObjectRef:
    """A reference to an object that was put: small, hashable, valid in every process.

    The object is freed when the last reference in the process that put it is garbage. Two
    references are equal if they refer to the same object.
    """

    __slots__ = ("__weakref__", "_object")

    def __init__(self, shared: _Object) -> None:
        self._object = shared

    @property
    def id(self) -> str:
        """The unique id of the object."""
        return self._object.token

    @property
    def size_bytes(self) -> int:
        """The memory that the object takes, once for all processes."""
        return self._object.size

    def hex(self) -> str:
        """Return the id."""
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectRef) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"ObjectRef({self.id})"

    def __reduce__(self) -> tuple[object, ...]:
        obj = self._object
        return _unpickled, (obj.token, obj.owner, obj.address, obj.size)


def _unpickled(token: str, owner: Owner, address: str, size: int) -> ObjectRef:
    obj = _objects.get(token)
    if obj is None:
        obj = _objects[token] = _Object(token, owner, address, size)
    return ObjectRef(obj)


def put(value: Any) -> ObjectRef:
    """Store a value where all processes of this machine can read it, and return a reference.

    It is serialised once, now; later changes of `value` have no effect. Arrays in it are read in
    place, and cannot be written to. It exists until this process ends, or drops its last reference.

    Raises:
        ConfigError: The value cannot be pickled, or is a reference already.
        StoreFull: There is no memory, or no open file, left for it.
    """
    if isinstance(value, ObjectRef):
        raise ConfigError(f"{value!r} is already a reference: put takes a value")
    token = secrets.token_hex(16)
    try:
        owner, memory = this_process(), new_memory(token)
        size, inside = serial.write(value, memory, ObjectRef)
        memory.seal()
    except OSError as error:
        if error.errno in _TOO_MANY:
            raise _too_many(error) from error
        if error.errno in (errno.ENOSPC, errno.ENOMEM, errno.EFBIG):
            raise StoreFull(
                f"there is no memory left for {_type_of(value)}: {error.strerror}",
                hint="put less, or free objects that are not needed: del the references to them",
            ) from error
        raise _cannot_put(value, error) from error
    except Exception as error:  # any object's own pickling may raise anything
        raise _cannot_put(value, error) from error
    obj = _objects[token] = _Object(token, owner, memory.address, size)
    obj.memory, obj.inside = memory, inside
    return ObjectRef(obj)


@overload
def get(refs: ObjectRef, *, timeout: float | None = None) -> Any: ...


@overload
def get(refs: Sequence[ObjectRef], *, timeout: float | None = None) -> list[Any]: ...


def get(refs: ObjectRef | Sequence[ObjectRef], *, timeout: float | None = None) -> Any:
    """Return the value of a reference; of a list of references, the list of values.

    Arrays in it are read-only views of memory that all processes share; torch tensors may be
    written to, which other processes do not see. Everything else is a new copy in each call.

    Args:
        refs: One reference, or a list of them.
        timeout: Has no effect: an object is available at once, or not at all.

    Raises:
        ObjectLost: The process that put it has ended, or has no reference to it any more.
    """
    del timeout
    if isinstance(refs, ObjectRef):
        return refs._object.read()  # noqa: SLF001  # same module
    if not isinstance(refs, list | tuple):
        raise ConfigError(
            f"{shown(refs)} is neither an ObjectRef nor a list of them",
            hint="ref = holdfast.put(value); holdfast.get(ref)",
        )
    for place, ref in enumerate(refs):
        if not isinstance(ref, ObjectRef):
            raise ConfigError(f"item {place} of the list is not an ObjectRef: {shown(ref)}")
    return [ref._object.read() for ref in refs]  # noqa: SLF001


def get_private(ref: ObjectRef) -> Any:
    """Return the value of a reference with writable arrays; other processes see no change."""
    return ref._object.read_private()  # noqa: SLF001


def problem_with(ref: ObjectRef) -> HoldfastError | None:
    """Return the error that `get` would raise for a lost object, None if it exists."""
    return ref._object.problem()  # noqa: SLF001


def _too_many(error: OSError) -> StoreFull:
    return StoreFull(
        f"objects need open files, and this process has reached its limit: {error.strerror}",
        hint="put many small values as one list, or raise the limit (ulimit -n)",
    )


def _cannot_put(value: Any, error: Exception) -> ConfigError:
    return ConfigError(
        f"{_type_of(value)} cannot be put: {type(error).__name__}: {error}",
        hint="put its parts (arrays, numbers, texts), and build it again where it is used",
    )


def _type_of(value: object) -> str:
    return f"an object of type {type(value).__name__}"


def _forget_after_fork() -> None:
    """In a fork, close the parent's memory, so that the parent alone keeps its objects alive."""
    for obj in list(_objects.values()):
        memory, obj.memory = obj.memory, None
        if memory is not None:
            memory.forget()


@dataclass(frozen=True, slots=True)
class Shared:
    """Replaces a large argument on its way to a worker; user code gets the value."""

    ref: ObjectRef


def share_if_large(value: Any) -> Any:
    """Return a `Shared` in place of a large value, and other values as they are.

    A value that cannot be put is returned too: sending it reports why.
    """
    if isinstance(value, ObjectRef | Shared | str | int | float | bool | None):
        return value
    try:
        ref = put(value)
    except ConfigError:
        return value
    return Shared(ref) if ref.size_bytes >= LARGE_BYTES else value


def unshared(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with each `Shared` replaced by its value."""
    return {
        name: get(value.ref) if isinstance(value, Shared) else value
        for name, value in values.items()
    }


os.register_at_fork(after_in_child=_forget_after_fork)
