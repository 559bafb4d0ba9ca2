"""Objects as bytes in shared memory: written once, read in place.

A value is pickled with its buffers apart (numpy arrays, arrow tables, all that knows pickle's
protocol 5). They lie in the memory one after the other, and what is read back uses them where they
lie; nobody can write to them. Tensors of torch do not know how to be read-only: they lie at the
end, and each `get` has them in a mapping of its own, in which a page that is written to is copied
first. So both are read without a copy, and what one process does is never seen by another.
"""

from __future__ import annotations

import errno
import mmap
import os
import pickle
import struct
from collections.abc import Iterator
from importlib import import_module
from typing import Any, BinaryIO

import cloudpickle

from holdfast.engine.machine import memory_available
from holdfast.objects.memory import Memory

_HEADER = struct.Struct("<8sQQQ")  # magic, size of the pickle, number of buffers, where the tail is
_MAGIC = b"HFOBJ\0\0\1"
_BUFFER = struct.Struct("<QQ")  # offset and size
_ALIGNMENT = 64
_LARGE = 64 << 20  # from here on it is looked whether there is memory for it
_CHUNK = 1 << 30  # more than 2 GiB at once is not written


class _Taken:
    """What a pickler takes out of a value.

    It is no part of the pickler, which would be part of a cycle then, and would keep the value, and
    all that it is made of, until somebody collects garbage.

    Attributes:
        buffers: In the order in which they are wanted back, and whether each is a tensor's.
        refs: The references met inside the value.
    """

    def __init__(self) -> None:
        self.buffers: list[tuple[memoryview, bool]] = []
        self.refs: list[Any] = []
        self.of_tensors: dict[int, pickle.PickleBuffer] = {}

    def take(self, buffer: pickle.PickleBuffer) -> None:
        self.buffers.append((buffer.raw(), id(buffer) in self.of_tensors))


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """Pickles with buffers apart; knows how tensors and references are to be treated."""

    def __init__(self, file: BinaryIO, taken: _Taken, ref_kind: type) -> None:
        super().__init__(file, protocol=5, buffer_callback=taken.take)
        self._taken = taken
        self._ref_kind = ref_kind

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is self._ref_kind:
            self._taken.refs.append(obj)
        elif kind.__module__ == "torch" and kind.__qualname__ == "Tensor" and _lies_flat(obj):
            flat = obj.detach().reshape(-1).view(import_module("torch").uint8)
            buffer = pickle.PickleBuffer(flat.numpy())
            self._taken.of_tensors[id(buffer)] = buffer
            dtype = str(obj.dtype).removeprefix("torch.")
            return _tensor, (buffer, dtype, tuple(obj.shape), obj.requires_grad)
        return super().reducer_override(obj)


def _lies_flat(tensor: Any) -> bool:
    """Whether a tensor is its bytes, its type and its shape, and nothing more."""
    return (
        tensor.device.type == "cpu"
        and str(tensor.layout) == "torch.strided"
        and tensor.numel() > 0
        and tensor.is_contiguous()
        and tensor.is_leaf
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
        and not tensor.__dict__
        and not tensor._backward_hooks  # noqa: SLF001  # torch's own pickling looks there too
    )


def _tensor(buffer: Any, dtype: str, shape: tuple[int, ...], requires_grad: Any) -> Any:
    torch = import_module("torch")
    made = torch.frombuffer(buffer, dtype=getattr(torch, dtype)).reshape(shape)
    return made.requires_grad_() if requires_grad else made


# ---------------------------------------------------------------------- parts


def frozen(value: Any) -> pickle.PickleBuffer:
    """Return a part of a value that is to be unpickled by itself, each time it is wanted."""
    return pickle.PickleBuffer(cloudpickle.dumps(value, protocol=5))


def thawed(part: Any) -> Any:
    """Return such a part as it was, made anew."""
    return pickle.loads(part)  # noqa: S301  # from a process of ours


# ---------------------------------------------------------------------- writing


def write(value: Any, memory: Memory, ref_kind: type) -> tuple[int, list[Any]]:
    """Write a value to memory; return how many bytes it takes, and the references inside it."""
    with open(memory.handle, "wb", closefd=False) as file:
        file.write(bytes(_HEADER.size))
        taken = _Taken()
        _Pickler(file, taken, ref_kind).dump(value)
        stream_size = file.tell() - _HEADER.size
    # Tensors last, with a mapping of their own in mind: it begins at a page.
    table_at = _HEADER.size + stream_size
    end = table_at + _BUFFER.size * len(taken.buffers)
    places: dict[int, tuple[int, int]] = {}
    for index, (buffer, _) in _in_order(taken.buffers, of_tensors=False):
        places[index] = (_aligned(end, _ALIGNMENT), buffer.nbytes)
        end = sum(places[index])
    tail = end = _aligned(end, mmap.ALLOCATIONGRANULARITY)
    for index, (buffer, _) in _in_order(taken.buffers, of_tensors=True):
        places[index] = (_aligned(end, _ALIGNMENT), buffer.nbytes)
        end = sum(places[index])
    _must_have_room(end)
    os.truncate(memory.handle, end)
    table = b"".join(_BUFFER.pack(*places[index]) for index in range(len(places)))
    _write_at(memory.handle, memoryview(table), table_at)
    for index, (buffer, _) in enumerate(taken.buffers):
        _write_at(memory.handle, buffer, places[index][0])
    header = _HEADER.pack(_MAGIC, stream_size, len(places), tail)
    _write_at(memory.handle, memoryview(header), 0)
    return end, taken.refs


def _must_have_room(size: int) -> None:
    """Raise, as a full disk would, before the system ends some process for want of memory."""
    if size >= _LARGE:
        left = memory_available()
        if left is not None and size > left:
            raise OSError(errno.ENOMEM, f"it takes {size} bytes of memory, and {left} are left")


def _in_order(
    buffers: list[tuple[memoryview, bool]], *, of_tensors: bool
) -> Iterator[tuple[int, tuple[memoryview, bool]]]:
    return (one for one in enumerate(buffers) if one[1][1] is of_tensors)


def _write_at(handle: int, data: memoryview, offset: int) -> None:
    done = 0
    while done < data.nbytes:
        done += os.pwrite(handle, data[done : done + _CHUNK], offset + done)


def _aligned(offset: int, to: int) -> int:
    return -(-offset // to) * to


# ---------------------------------------------------------------------- reading


def tail_of(view: memoryview) -> int:
    """Return where tensors begin: at the end, if there are none."""
    tail: int = _HEADER.unpack_from(view)[3]
    return tail


def has_tail(view: memoryview) -> bool:
    """Whether there are tensors, which `read` needs a mapping of their own for."""
    return tail_of(view) < view.nbytes


def read(view: memoryview, own: mmap.mmap | memoryview | None) -> Any:
    """Return the value that lies in memory, using it where it lies.

    Args:
        view: A mapping of all of it, for reading.
        own: A mapping of its tail, that may be written to; None if there is none.
    """
    magic, stream_size, count, tail = _HEADER.unpack_from(view)
    assert magic == _MAGIC, "its label said that it is ours"
    tensors = view[:0] if own is None else memoryview(own)
    table_at = _HEADER.size + stream_size
    buffers = []
    for offset, size in _BUFFER.iter_unpack(view[table_at : table_at + _BUFFER.size * count]):
        if offset < tail:
            buffers.append(view[offset : offset + size])
        else:
            buffers.append(tensors[offset - tail : offset - tail + size])
    stream = view[_HEADER.size : table_at]
    return pickle.loads(stream, buffers=buffers)  # noqa: S301  # from a process of ours
