"""A place without a system around it: what one writes by hand for plain torch.

Checkpoints are files on disk, put in place by a rename; metrics go nowhere.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist


class Place:
    """What `torchrun` and its like leave to their users."""

    def __init__(self, rank: int, folder: str) -> None:
        self.rank = rank
        self._kept = f"{folder}/kept"
        self._number = 0

    def report(self, metrics: Mapping[str, Any], folder: str | None = None) -> None:
        """Keep the files of a folder: written, synced, renamed; nothing is digested."""
        if folder is not None:
            copied = f"{self._kept}.new"
            shutil.rmtree(copied, ignore_errors=True)
            os.mkdir(copied)
            for name in os.listdir(folder):
                _copy(f"{folder}/{name}", f"{copied}/{name}")
            _sync(copied)
            shutil.rmtree(self._kept, ignore_errors=True)
            os.rename(copied, self._kept)
            _sync(os.path.dirname(self._kept))
        dist.barrier()

    def report_later(self, metrics: Mapping[str, Any], folder: str) -> Callable[[], object]:
        raise NotImplementedError("plain torch has torch.distributed.checkpoint for that")

    def keep(self, metrics: Mapping[str, Any], folder: str | None) -> None:
        """Put the files of a folder in the place of those before: synced, renamed, no copy made."""
        if folder is not None:
            os.makedirs(self._kept, exist_ok=True)
            for name in os.listdir(folder):
                with open(f"{folder}/{name}", "rb") as file:
                    os.fsync(file.fileno())
                os.replace(f"{folder}/{name}", f"{self._kept}/{name}")
            _sync(self._kept)
            os.rmdir(folder)
        dist.barrier()

    def newest(self) -> str | None:
        return self._kept if os.path.isdir(self._kept) else None


def write_synced(state: Mapping[str, torch.Tensor], folder: str) -> None:
    """Write the bytes of all tensors into one file, and sync it and its folder."""
    with open(f"{folder}/model.bin", "wb", buffering=0) as file:
        for tensor in state.values():
            view = tensor.numpy().data.cast("B")
            while len(view):
                view = view[file.write(view) :]
        os.fsync(file.fileno())
    _sync(folder)


def begin_saving(state: Mapping[str, torch.Tensor], folder: str) -> Callable[[], object]:
    """Save with torch's own asynchronous checkpoints; return what waits until they are synced."""
    import torch.distributed.checkpoint as dcp  # late: it takes long, and only this needs it

    saved: Any = dcp.async_save(dict(state), checkpoint_id=folder)
    wait: Callable[[], object] = saved.result
    return wait


def _copy(source: str, target: str) -> None:
    shutil.copyfile(source, target)
    with open(target, "rb") as file:
        os.fsync(file.fileno())


def _sync(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)
