"""Ranks without processes, by torch's fake process group, and a dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.data import Dataset

Ranks = Callable[[int, int], None]


class Numbers(Dataset[int]):
    """A dataset whose samples are their own numbers."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> int:
        return index


@pytest.fixture
def be_rank() -> Iterator[Ranks]:
    """Make this process a rank of a fake group, any number of times."""

    def be(rank: int, ranks: int) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)

    yield be
    if dist.is_initialized():
        dist.destroy_process_group()
