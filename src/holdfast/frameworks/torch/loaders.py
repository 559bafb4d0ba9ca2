"""`prepare_data_loader`: gives each rank its part of a data loader, on its own device."""

from __future__ import annotations

import contextlib
import copy
import logging
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
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

log = logging.getLogger(__name__)

SPLIT_ALREADY = (DistributedSampler, ResumableSampler)


def prepare_data_loader(
    data_loader: DataLoader[Any],
    add_dist_sampler: bool = True,  # noqa: FBT001, FBT002  # as users know it
    move_to_device: bool = True,  # noqa: FBT001, FBT002
    auto_transfer: bool = True,  # noqa: FBT001, FBT002
) -> DataLoader[Any]:
    """Return a copy of the loader that gives each rank its part, on its device.

    With several ranks, a `DistributedSampler` replaces sequential and shuffled order; call
    `loader.sampler.set_epoch(epoch)` at the start of every epoch, or all epochs have the same
    order. Any other sampler, or batch sampler, still chooses, and its choices are split among the
    ranks; its own `set_epoch`, if it has one, is called too. The rest of the loader is unchanged. A
    loader is not split if its sampler splits already (it has `num_replicas` and `rank`), or if its
    dataset is iterable. A loader's processes draw different random numbers on each rank.

    Args:
        data_loader: It is not changed.
        add_dist_sampler: Whether each rank gets only its part.
        move_to_device: Whether to move batches to this worker's device.
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
    rank = devices.rank()
    if ranks > 1 and add_dist_sampler:
        if isinstance(data_loader.dataset, IterableDataset):
            _log_iterable(data_loader.dataset, ranks, rank)
        elif not _is_split(data_loader):
            data_loader = _split(data_loader, ranks, rank)
    if ranks > 1 and data_loader.num_workers > 0:
        data_loader = _seeded(data_loader, rank)
    device = devices.get_device()
    if move_to_device and device.type != "cpu":
        return DeviceLoader(data_loader, device, overlaps=auto_transfer)
    return data_loader


def _is_split(loader: DataLoader[Any]) -> bool:
    """Whether a sampler of the loader chooses for one rank already."""
    return any(
        isinstance(sampler, SPLIT_ALREADY)
        or (hasattr(sampler, "num_replicas") and hasattr(sampler, "rank"))
        for sampler in (*_chain(loader.sampler), *_chain(loader.batch_sampler))
    )


def _chain(sampler: object) -> Iterator[Any]:
    """Yield a sampler and those it draws from, as a batch sampler does."""
    for _ in range(8):  # more than any real chain; one that contains itself must end, too
        if sampler is None:
            return
        yield sampler
        inner = getattr(sampler, "batch_sampler", None)
        sampler = inner if inner is not None else getattr(sampler, "sampler", None)


def _log_iterable(dataset: object, ranks: int, rank: int) -> None:
    if rank == 0:
        log.warning(
            "%s is iterable, so each of the %d ranks gets all of its samples, unless it splits them"
            " itself: if it does, pass add_dist_sampler=False; else use a map-style dataset,"
            " or holdfast.data",
            type(dataset).__name__,
            ranks,
        )


def _split(loader: DataLoader[Any], ranks: int, rank: int) -> DataLoader[Any]:
    """Return a copy of the loader that differs only in its sampler.

    A copy, because only the loader's own class knows all its constructor arguments.
    """
    mine = copy.copy(loader)
    changed = vars(mine)  # bypasses the loader's check that its sampler is never replaced
    changed["_iterator"] = None
    if _batches_itself(loader):
        sampler = _sampler_of(loader, ranks, rank)
        changed["sampler"] = sampler
        if loader.batch_size is not None:
            changed["batch_sampler"] = BatchSampler(sampler, loader.batch_size, loader.drop_last)
    else:
        # Both, because scripts set the epoch by `loader.sampler`.
        changed["sampler"] = changed["batch_sampler"] = SplitSampler(
            loader.batch_sampler, ranks, rank
        )
    return mine


def _seeded(loader: DataLoader[Any], rank: int) -> DataLoader[Any]:
    """Return a copy of the loader whose processes are seeded by their rank."""
    mine = copy.copy(loader)
    vars(mine)["_iterator"] = None
    mine.worker_init_fn = RankSeeding(loader.worker_init_fn, rank)
    return mine


def _batches_itself(loader: DataLoader[Any]) -> bool:
    """Whether the loader batches what its sampler gives, or passes on single samples."""
    return loader.batch_size is not None or loader.batch_sampler is None


def _sampler_of(loader: DataLoader[Any], ranks: int, rank: int) -> DistributedSampler[Any]:
    if isinstance(loader.sampler, SequentialSampler):
        return DistributedSampler(loader.dataset, ranks, rank, shuffle=False)
    if _is_plain_shuffle(loader.sampler, loader.dataset):
        return DistributedSampler(loader.dataset, ranks, rank, shuffle=True)
    return SplitSampler(loader.sampler, ranks, rank)


def _is_plain_shuffle(sampler: object, dataset: Any) -> bool:
    """Whether a sampler gives every sample exactly once, in random order."""
    if not isinstance(sampler, RandomSampler) or sampler.replacement:
        return False
    return len(sampler) == len(dataset)


class SplitSampler(DistributedSampler[Any]):
    """Splits the choices of another sampler among the ranks.

    All ranks seed the generators of torch, Python and numpy alike when they ask it, by a seed that
    `set_epoch` changes, so that they see the same choices. A sampler that still chooses differently
    each time is refused. If the choices cannot be split evenly, some are given twice.
    """

    def __init__(self, sampler: Iterable[Any] | None, ranks: int, rank: int) -> None:
        if not isinstance(sampler, Sized) or not isinstance(sampler, Iterable):
            raise ConfigError(
                f"the loader's sampler {shown(sampler)} has no length, so its choices cannot be"
                f" split among {ranks} ranks",
                hint="give it a __len__, or let it choose for one rank and pass"
                " add_dist_sampler=False",
            )
        super().__init__(_Choices(sampler), ranks, rank, shuffle=False)
        self._choices: Iterable[Any] = sampler
        self._is_unproven: bool = _may_ignore_seeds(sampler)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of this sampler and of those it draws from."""
        super().set_epoch(epoch)
        for sampler in _chain(self._choices):
            if callable(getattr(sampler, "set_epoch", None)):
                sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        chosen = self._chosen()
        if self._is_unproven:
            self._must_choose_alike(chosen)
            self._is_unproven = False
        missing = -len(chosen) % self.num_replicas
        while missing and chosen:
            added = chosen[:missing]
            chosen, missing = chosen + added, missing - len(added)
        return iter(chosen[self.rank :: self.num_replicas])

    def _chosen(self) -> list[Any]:
        with seeded_generators(self.seed + self.epoch), contextlib.ExitStack() as stack:
            for sampler in _chain(self._choices):
                stack.enter_context(_generator_of(sampler, self.seed + self.epoch))
            return list(self._choices)

    def _must_choose_alike(self, chosen: list[Any]) -> None:
        if list(map(_plain, self._chosen())) != list(map(_plain, chosen)):
            names = " of ".join(type(sampler).__name__ for sampler in _chain(self._choices))
            raise ConfigError(
                f"the sampler {names} chooses differently each time, so that the"
                f" {self.num_replicas} ranks would not agree on which rank gets which sample",
                hint="give it a set_epoch(epoch) that determines its choices, as DistributedSampler"
                " has; or draw from the global generator of torch, Python or numpy, which all ranks"
                " seed alike for it",
            )


def _may_ignore_seeds(sampler: object) -> bool:
    """Whether a user's sampler might choose by something that no seed or epoch determines."""
    chain = list(_chain(sampler))
    if any(hasattr(link, "set_epoch") for link in chain):
        return False
    return any(
        not isinstance(link, Sequence) and not type(link).__module__.startswith("torch.")
        for link in chain
    )


def _plain(choice: Any) -> Any:
    return choice.tolist() if hasattr(choice, "tolist") else choice


@contextlib.contextmanager
def seeded_generators(seed: int) -> Iterator[None]:
    """Seed all generators of this process, and restore their states afterwards."""
    numpy = sys.modules.get("numpy")
    python_state = random.getstate()
    numpy_state = None if numpy is None else numpy.random.get_state()
    with torch.random.fork_rng(devices=[]):
        try:
            torch.manual_seed(seed)
            random.seed(seed)
            if numpy is not None:
                numpy.random.seed(seed % 2**32)
            yield
        finally:
            random.setstate(python_state)
            if numpy is not None:
                numpy.random.set_state(numpy_state)


@contextlib.contextmanager
def _generator_of(sampler: Any, seed: int) -> Iterator[None]:
    """Replace a sampler's own generator, if it has one, by a seeded one for a while."""
    own = getattr(sampler, "generator", None)
    if not isinstance(own, torch.Generator):
        yield
        return
    sampler.generator = torch.Generator().manual_seed(seed)
    try:
        yield
    finally:
        sampler.generator = own


class _Choices(torch.utils.data.Dataset[Any]):
    """A dataset with the length of a sampler, which `DistributedSampler` asks for."""

    def __init__(self, sampler: Sized) -> None:
        self._sampler = sampler

    def __len__(self) -> int:
        return len(self._sampler)


class RankSeeding:
    """Seeds each process of a loader by its rank too, and then calls the user's own function.

    Otherwise ranks that call `torch.manual_seed` alike would all get the same random augmentations
    from their loaders' processes.
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


class DeviceLoader(DataLoader[Any]):
    """A loader whose batches are moved to a device.

    Args:
        loader: Where they come from; this loader has all its attributes.
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
        """Yield each batch while the next one is copied, in a stream of its own."""
        copying = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        pending: list[Any] = []
        for batch in self._loader:
            with torch.cuda.stream(copying):
                pending.append(moved(batch, self._device, non_blocking=True))
            if len(pending) > 1:
                yield self._copied(pending.pop(0), copying)
        for batch in pending:
            yield self._copied(batch, copying)

    def _copied(self, batch: Any, copying: torch.cuda.Stream) -> Any:
        computing = torch.cuda.current_stream(self._device)
        computing.wait_stream(copying)
        for tensor in _tensors(batch):
            tensor.record_stream(computing)  # else its memory could be reused too early
        return batch


def moved(item: Any, device: torch.device, *, non_blocking: bool = False) -> Any:
    """Return `item` with every tensor in it on `device`; what cannot be moved stays as it is."""
    if isinstance(item, torch.Tensor):
        return item.to(device, non_blocking=non_blocking)
    if callable(getattr(item, "to", None)):
        return item.to(device)
    if isinstance(item, Mapping):
        pairs = {key: moved(part, device, non_blocking=non_blocking) for key, part in item.items()}
        return pairs if type(item) is dict else _same_kind(item, pairs)
    if isinstance(item, list | tuple):
        parts = [moved(part, device, non_blocking=non_blocking) for part in item]
        return type(item)(*parts) if hasattr(item, "_fields") else type(item)(parts)
    return item


def _same_kind(item: Mapping[Any, Any], pairs: dict[Any, Any]) -> Mapping[Any, Any]:
    """Return a mapping of the same class with these pairs, or a plain one if it has no `update`."""
    changed = copy.copy(item)
    if not hasattr(changed, "update"):
        return pairs
    changed.update(pairs)
    return changed


def _tensors(item: Any) -> Iterator[torch.Tensor]:
    if isinstance(item, torch.Tensor):
        yield item
    elif isinstance(item, Mapping | list | tuple):
        for part in item.values() if isinstance(item, Mapping) else item:
            yield from _tensors(part)
