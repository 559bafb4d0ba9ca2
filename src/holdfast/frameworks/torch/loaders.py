"""Data loaders made ready for a worker: each rank takes its part, on its own device."""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

from holdfast.api.checks import this_is
from holdfast.core.names import shown
from holdfast.errors import ConfigError
from holdfast.frameworks.torch import devices
from holdfast.frameworks.torch.sampler import ResumableSampler

SPLIT_ALREADY = (DistributedSampler, ResumableSampler)


def prepare_data_loader(
    data_loader: DataLoader[Any],
    add_dist_sampler: bool = True,  # noqa: FBT001, FBT002  # as users know it
    move_to_device: bool = True,  # noqa: FBT001, FBT002
    auto_transfer: bool = True,  # noqa: FBT001, FBT002
) -> DataLoader[Any]:
    """Return a loader like this one that gives each rank its part, on its device.

    Among several ranks, a `DistributedSampler` takes the place of the loader's own order, shuffled
    if that was; call `loader.sampler.set_epoch(epoch)` at the beginning of every epoch, or all have
    the same order. A sampler of another kind keeps its say, and its choices are dealt out to the
    ranks. Everything else about the loader stays. A loader whose sampler splits already, or whose
    dataset is iterable and so has no order to split, stays whole.

    Args:
        data_loader: It is not changed.
        add_dist_sampler: Whether each rank is to get its part only.
        move_to_device: Whether batches are to be on this worker's device.
        auto_transfer: Whether to move the next batch to a GPU while this one is computed; that
            needs `pin_memory=True`.
    """
    if not isinstance(data_loader, DataLoader):
        raise ConfigError(
            f"data_loader={shown(data_loader)} is not a torch.utils.data.DataLoader,"
            f" {this_is(data_loader)}",
            hint="DataLoader(dataset, batch_size=…)",
        )
    ranks = devices.world_size("prepare_data_loader")
    if ranks > 1 and add_dist_sampler and not _is_whole(data_loader):
        data_loader = _split(data_loader, ranks, devices.rank())
    device = devices.get_device()
    if move_to_device and device.type != "cpu":
        return MovingLoader(data_loader, device, overlaps=auto_transfer)
    return data_loader


def _is_whole(loader: DataLoader[Any]) -> bool:
    """Whether there is nothing to split, or it is split already."""
    if isinstance(loader.dataset, IterableDataset):
        return True
    below = getattr(loader.batch_sampler, "sampler", None)
    return any(isinstance(one, SPLIT_ALREADY) for one in (loader.sampler, below))


def _split(loader: DataLoader[Any], ranks: int, rank: int) -> DataLoader[Any]:
    """Return a copy of the loader that differs in what it takes, and in nothing else.

    A copy, because only the loader's own class knows all that it was made with.
    """
    mine = copy.copy(loader)
    changed = vars(mine)  # a loader lets nobody set its sampler; this one has not been used yet
    changed["_iterator"] = None
    if _batches_itself(loader):
        sampler = _sampler_of(loader, ranks, rank)
        changed["sampler"] = sampler
        if loader.batch_size is not None:
            changed["batch_sampler"] = BatchSampler(sampler, loader.batch_size, loader.drop_last)
    else:
        changed["batch_sampler"] = DealtSampler(loader.batch_sampler, ranks, rank)
    if loader.num_workers > 0:
        mine.worker_init_fn = SeedOfRank(loader.worker_init_fn, rank)
    return mine


def _batches_itself(loader: DataLoader[Any]) -> bool:
    """Whether the loader makes batches, or none, of what its sampler gives."""
    return loader.batch_size is not None or loader.batch_sampler is None


def _sampler_of(loader: DataLoader[Any], ranks: int, rank: int) -> DistributedSampler[Any]:
    if isinstance(loader.sampler, SequentialSampler):
        return DistributedSampler(loader.dataset, ranks, rank, shuffle=False)
    if _is_plain_shuffle(loader.sampler, loader.dataset):
        return DistributedSampler(loader.dataset, ranks, rank, shuffle=True)
    return DealtSampler(loader.sampler, ranks, rank)


def _is_plain_shuffle(sampler: object, dataset: Any) -> bool:
    """Whether a sampler gives every sample once; it may also draw some again, or leave some out."""
    if not isinstance(sampler, RandomSampler) or sampler.replacement:
        return False
    return len(sampler) == len(dataset)


class DealtSampler(DistributedSampler[Any]):
    """Deals out to the ranks what another sampler chooses.

    All ranks ask it with torch's generator at the same seed, which `set_epoch` changes, so that
    they see the same choices. Where these do not go round, some are given twice.
    """

    def __init__(self, sampler: Iterable[Any] | None, ranks: int, rank: int) -> None:
        if not isinstance(sampler, Sized) or not isinstance(sampler, Iterable):
            raise ConfigError(
                f"the loader's sampler {shown(sampler)} has no length, so its choices cannot be"
                f" dealt out to {ranks} ranks",
                hint="give it a __len__, or let it choose for one rank and pass"
                " add_dist_sampler=False",
            )
        super().__init__(_Choices(sampler), ranks, rank, shuffle=False)
        self._choices: Iterable[Any] = sampler

    def __iter__(self) -> Iterator[Any]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed + self.epoch)
            chosen = list(self._choices)
        missing = -len(chosen) % self.num_replicas
        while missing and chosen:
            added = chosen[:missing]
            chosen, missing = chosen + added, missing - len(added)
        return iter(chosen[self.rank :: self.num_replicas])


class _Choices(torch.utils.data.Dataset[Any]):
    """How many choices there are, for a class that asks a dataset."""

    def __init__(self, sampler: Sized) -> None:
        self._sampler = sampler

    def __len__(self) -> int:
        return len(self._sampler)


class SeedOfRank:
    """Seeds each process of a loader by its rank too, and then does what the user wanted there.

    Ranks that have called `torch.manual_seed` alike would otherwise all get the same random
    augmentations from their loaders' processes.
    """

    def __init__(self, then: Callable[[int], None] | None, rank: int) -> None:
        self._then, self._rank = then, rank

    def __call__(self, worker: int) -> None:
        generator = torch.Generator().manual_seed(torch.initial_seed())
        seeds = torch.randint(2**31, (self._rank + 1,), generator=generator).tolist()
        torch.manual_seed(seeds[-1])
        random.seed(seeds[-1])
        if (numpy := sys.modules.get("numpy")) is not None:
            numpy.random.seed(seeds[-1])
        if self._then is not None:
            self._then(worker)


class MovingLoader(DataLoader[Any]):
    """A loader whose batches are moved to a device.

    Args:
        loader: Where they come from; all that it has, this one has.
        overlaps: Whether the next batch is moved while this one is computed.
    """

    _loader: DataLoader[Any]
    _device: torch.device
    _overlaps: bool

    def __init__(self, loader: DataLoader[Any], device: torch.device, *, overlaps: bool) -> None:
        vars(self).update(vars(loader), _loader=loader, _device=device, _overlaps=overlaps)

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        if self._overlaps and self._device.type == "cuda":
            return self._overlapped()
        return (moved(batch, self._device) for batch in self._loader)

    def _overlapped(self) -> Iterator[Any]:
        """Yield each batch while the next one is on its way, in a stream of its own."""
        aside = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        ready: list[Any] = []
        for batch in self._loader:
            with torch.cuda.stream(aside):
                ready.append(moved(batch, self._device, non_blocking=True))
            if len(ready) > 1:
                yield self._arrived(ready.pop(0), aside)
        for batch in ready:
            yield self._arrived(batch, aside)

    def _arrived(self, batch: Any, aside: torch.cuda.Stream) -> Any:
        here = torch.cuda.current_stream(self._device)
        here.wait_stream(aside)
        for tensor in _tensors(batch):
            tensor.record_stream(here)  # else its memory could be used again too early
        return batch


def moved(item: Any, device: torch.device, *, non_blocking: bool = False) -> Any:
    """Return `item` with every tensor in it on `device`; what cannot be moved stays as it is."""
    if isinstance(item, torch.Tensor):
        return item.to(device, non_blocking=non_blocking)
    if callable(getattr(item, "to", None)):
        return item.to(device)
    if isinstance(item, Mapping):
        pairs = {key: moved(one, device, non_blocking=non_blocking) for key, one in item.items()}
        return pairs if type(item) is dict else _same_kind(item, pairs)
    if isinstance(item, list | tuple):
        parts = [moved(one, device, non_blocking=non_blocking) for one in item]
        return type(item)(*parts) if hasattr(item, "_fields") else type(item)(parts)
    return item


def _same_kind(item: Mapping[Any, Any], pairs: dict[Any, Any]) -> Mapping[Any, Any]:
    """Return a mapping of the same class with other values, a plain one if there is no way."""
    changed = copy.copy(item)
    if not hasattr(changed, "update"):
        return pairs
    changed.update(pairs)
    return changed


def _tensors(item: Any) -> Iterator[torch.Tensor]:
    if isinstance(item, torch.Tensor):
        yield item
    elif isinstance(item, Mapping):
        for one in item.values():
            yield from _tensors(one)
    elif isinstance(item, list | tuple):
        for one in item:
            yield from _tensors(one)
