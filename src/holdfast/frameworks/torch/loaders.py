"""Data loaders made ready for a worker: each rank takes its part, on its own device."""

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
    """Return a loader like this one that gives each rank its part, on its device.

    Among several ranks, a `DistributedSampler` takes the place of the loader's own order, shuffled
    if that was; call `loader.sampler.set_epoch(epoch)` at the beginning of every epoch, or all have
    the same order. A sampler of another kind, or one of batches, keeps its say, and its choices are
    dealt out to the ranks; its own `set_epoch`, if it has one, is called too. Everything else about
    the loader stays. A loader whose sampler splits already (it has `num_replicas` and `rank`), or
    whose dataset is iterable and so has no order to split, stays whole. The processes of a loader
    draw other random numbers on each rank.

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
        return MovingLoader(data_loader, device, overlaps=auto_transfer)
    return data_loader


def _is_split(loader: DataLoader[Any]) -> bool:
    """Whether a sampler chooses for one rank already."""
    samplers = [one for part in (loader.sampler, loader.batch_sampler) for one in _chain(part)]
    return any(
        isinstance(one, SPLIT_ALREADY) or (hasattr(one, "num_replicas") and hasattr(one, "rank"))
        for one in samplers
    )


def _chain(sampler: object) -> Iterator[Any]:
    """Yield a sampler, and those that it draws from, as one of batches does."""
    for _ in range(8):  # none has more below it, but one may have itself
        if sampler is None:
            return
        yield sampler
        below = getattr(sampler, "batch_sampler", None)
        sampler = below if below is not None else getattr(sampler, "sampler", None)


def _log_iterable(dataset: object, ranks: int, rank: int) -> None:
    if rank == 0:
        log.warning(
            "%s is iterable, so each of the %d ranks gets all of its samples, unless it splits them"
            " itself: if it does, say so with add_dist_sampler=False; else use a map-style dataset,"
            " or holdfast.data",
            type(dataset).__name__,
            ranks,
        )


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
        # Both: what sets the epoch of a loader does it by `loader.sampler`.
        changed["sampler"] = changed["batch_sampler"] = DealtSampler(
            loader.batch_sampler, ranks, rank
        )
    return mine


def _seeded(loader: DataLoader[Any], rank: int) -> DataLoader[Any]:
    """Return a copy of the loader whose processes have random numbers of their rank."""
    mine = copy.copy(loader)
    vars(mine)["_iterator"] = None
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

    All ranks ask it with the generators of torch, Python and numpy at the same seed, which
    `set_epoch` changes, so that they see the same choices. One that chooses by something else, so
    that ranks could not agree, is refused. Where choices do not go round, some are given twice.
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
        self._must_be_tried: bool = _may_choose_by_chance(sampler)

    def set_epoch(self, epoch: int) -> None:
        """Have another epoch's choices next: this sampler's, and those of any it draws from."""
        super().set_epoch(epoch)
        for sampler in _chain(self._choices):
            if callable(getattr(sampler, "set_epoch", None)):
                sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        chosen = self._chosen()
        if self._must_be_tried:
            self._must_choose_the_same_as(chosen)
            self._must_be_tried = False
        missing = -len(chosen) % self.num_replicas
        while missing and chosen:
            added = chosen[:missing]
            chosen, missing = chosen + added, missing - len(added)
        return iter(chosen[self.rank :: self.num_replicas])

    def _chosen(self) -> list[Any]:
        with drawing_alike(self.seed + self.epoch), contextlib.ExitStack() as stack:
            for sampler in _chain(self._choices):
                stack.enter_context(_generator_of(sampler, self.seed + self.epoch))
            return list(self._choices)

    def _must_choose_the_same_as(self, chosen: list[Any]) -> None:
        if list(map(_plain, self._chosen())) != list(map(_plain, chosen)):
            names = " of ".join(type(one).__name__ for one in _chain(self._choices))
            raise ConfigError(
                f"the sampler {names} chooses otherwise each time it is asked, so that the"
                f" {self.num_replicas} ranks would not agree on who gets which sample",
                hint="give it a set_epoch(epoch) from which its choices follow, as"
                " DistributedSampler has; or draw from torch's, Python's or numpy's own generator,"
                " which all ranks seed alike for it",
            )


def _may_choose_by_chance(sampler: object) -> bool:
    """Whether a sampler of the user's might choose by something that no seed or epoch reaches."""
    chain = list(_chain(sampler))
    if any(hasattr(one, "set_epoch") for one in chain):
        return False
    return any(
        not isinstance(one, Sequence) and not type(one).__module__.startswith("torch.")
        for one in chain
    )


def _plain(choice: Any) -> Any:
    return choice.tolist() if hasattr(choice, "tolist") else choice


@contextlib.contextmanager
def drawing_alike(seed: int) -> Iterator[None]:
    """Have all generators of this process at a seed for a while, and then where they were."""
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
    """Have a sampler draw from a generator at a seed, in place of one of its own."""
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
