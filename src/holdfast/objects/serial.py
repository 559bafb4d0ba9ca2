"""Objects as bytes in shared memory: written once, read in place.

A value is pickled with its buffers out of band (numpy arrays, arrow tables, everything that
supports pickle's protocol 5). They are stored one after the other, and values that are read back
use them in place, read-only. Torch tensors cannot be read-only: they are stored at the end, in the
tail, and each `get` maps it copy-on-write. So both are read without a copy, and no process sees
what another one writes.
"""

from __future__ import annotations

import errno
import mmap
import os
import pickle
import struct
from importlib import import_module
from typing import Any, BinaryIO

import cloudpickle

from holdfast.engine.machine import memory_available
from holdfast.objects.memory import Memory

_HEADER = struct.Struct("<8sQQQ")  # magic, size of the pickle, number of buffers, where the tail is
_MAGIC = b"HFOBJ\0\0\1"
_BUFFER = struct.Struct("<QQ")  # offset and size
_ALIGNMENT = 64
_LARGE = 64 << 20  # from this size on, the free memory is checked first
_CHUNK = 1 << 30  # the kernel writes at most 2 GiB at once


class _OutOfBand:
    """What a pickler takes out of a value.

    Not part of the pickler: the callback would make that a reference cycle, which would keep the
    value alive until the next garbage collection.

    Attributes:
        buffers: In the order of unpickling, each with whether it belongs to a tensor.
        refs: The references inside the value.
    """

    def __init__(self) -> None:
        self.buffers: list[tuple[memoryview, bool]] = []
        self.refs: list[Any] = []
        self.of_tensors: dict[int, pickle.PickleBuffer] = {}

    def take(self, buffer: pickle.PickleBuffer) -> None:
        self.buffers.append((buffer.raw(), id(buffer) in self.of_tensors))


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """Pickles with buffers out of band, and treats tensors and references specially."""

    def __init__(self, file: BinaryIO, taken: _OutOfBand, ref_kind: type) -> None:
        super().__init__(file, protocol=5, buffer_callback=taken.take)
        self._taken = taken
        self._ref_kind = ref_kind

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is self._ref_kind:
            self._taken.refs.append(obj)
        elif kind.__module__ == "torch" and kind.__qualname__ == "Tensor" and _is_plain(obj):
            flat = obj.detach().reshape(-1).view(import_module("torch").uint8)
            buffer = pickle.PickleBuffer(flat.numpy())
            self._taken.of_tensors[id(buffer)] = buffer
            dtype = str(obj.dtype).removeprefix("torch.")
            return _tensor, (buffer, dtype, tuple(obj.shape), obj.requires_grad)
        return super().reducer_override(obj)


def _is_plain(tensor: Any) -> bool:
    """Whether a tensor is fully described by its bytes, type and shape."""
    return (
        tensor.device.type == "cpu"
        and str(tensor.layout) == "torch.strided"
        and tensor.numel() > 0
        and tensor.is_contiguous()
        and tensor.is_leaf
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
        and not tensor.__dict__
        and not tensor._backward_hooks  # noqa: SLF001  # as torch's own pickling does
    )


def _tensor(buffer: Any, dtype: str, shape: tuple[int, ...], requires_grad: Any) -> Any:
    torch = import_module("torch")
    tensor = torch.frombuffer(buffer, dtype=getattr(torch, dtype)).reshape(shape)
    return tensor.requires_grad_() if requires_grad else tensor


# ---------------------------------------------------------------------- parts


def pickled_part(value: Any) -> pickle.PickleBuffer:
    """Return a part of a value that is unpickled on its own, each time it is needed."""
    return pickle.PickleBuffer(cloudpickle.dumps(value, protocol=5))


def unpickled_part(part: Any) -> Any:
    """Return a new copy of such a part."""
    return pickle.loads(part)  # noqa: S301  # from a process of ours


# ---------------------------------------------------------------------- writing


def write(value: Any, memory: Memory, ref_kind: type) -> tuple[int, list[Any]]:
    """Write a value to memory; return how many bytes it takes, and the references inside it."""
    with open(memory.handle, "wb", closefd=False) as file:
        file.write(bytes(_HEADER.size))
        taken = _OutOfBand()
        _Pickler(file, taken, ref_kind).dump(value)
        stream_size = file.tell() - _HEADER.size
    # Tensors come last and begin at a page, because they are mapped separately.
    table_at = _HEADER.size + stream_size
    end = table_at + _BUFFER.size * len(taken.buffers)
    places: dict[int, tuple[int, int]] = {}
    end = _place_buffers(taken.buffers, places, end, of_tensors=False)
    tail = _aligned(end, mmap.ALLOCATIONGRANULARITY)
    end = _place_buffers(taken.buffers, places, tail, of_tensors=True)
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
    """Raise, like a full disk, before the kernel kills a process for lack of memory."""
    if size >= _LARGE:
        left = memory_available()
        if left is not None and size > left:
            raise OSError(errno.ENOMEM, f"it takes {size} bytes of memory, and {left} are left")


def _place_buffers(
    buffers: list[tuple[memoryview, bool]],
    places: dict[int, tuple[int, int]],
    end: int,
    *,
    of_tensors: bool,
) -> int:
    """Add offset and size of the buffers of one kind to `places`; return where the last ends."""
    for index, (buffer, is_tensor) in enumerate(buffers):
        if is_tensor is of_tensors:
            places[index] = (_aligned(end, _ALIGNMENT), buffer.nbytes)
            end = sum(places[index])
    return end


def _write_at(handle: int, data: memoryview, offset: int) -> None:
    done = 0
    while done < data.nbytes:
        done += os.pwrite(handle, data[done : done + _CHUNK], offset + done)


def _aligned(offset: int, to: int) -> int:
    return -(-offset // to) * to


# ---------------------------------------------------------------------- reading


def tail_of(view: memoryview) -> int:
    """Return where tensors begin; the end if there are none."""
    tail: int = _HEADER.unpack_from(view)[3]
    return tail


def has_tail(view: memoryview) -> bool:
    """Whether there are tensors, for which `read` needs a separate mapping."""
    return tail_of(view) < view.nbytes


def read(view: memoryview, own: mmap.mmap | memoryview | None) -> Any:
    """Return the value in memory, whose buffers are used in place.

    Args:
        view: A read-only mapping of all of it.
        own: A writable mapping of its tail; None if there is none.
    """
    magic, stream_size, count, tail = _HEADER.unpack_from(view)
    assert magic == _MAGIC, "the label was checked when it was opened"
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
