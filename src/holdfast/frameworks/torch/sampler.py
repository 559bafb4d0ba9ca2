"""A sampler that resumes in the middle of an epoch, with any number of ranks."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Mapping, Sized
from typing import Any, Literal

import torch
from torch.utils.data import Sampler

from holdfast.api.checks import is_whole, this_is
from holdfast.core.names import shown
from holdfast.errors import ConfigError
from holdfast.frameworks.torch import devices

_FIELDS = ("epoch", "consumed", "size", "seed", "shuffle")
_STATE_HINT = "pass what state_dict() returned"


class ResumableSampler(Sampler[int]):
    """Gives each rank its part of every epoch, and counts what has been trained on.

    An epoch is one order of all samples, the same for all ranks; they take from it in turn. So what
    they have trained on together is always a prefix of that order, and its length is all there is
    to save: with any number of ranks for the rest, each sample comes once. ::

        sampler = ResumableSampler(dataset, seed=17)
        loader = DataLoader(dataset, batch_size=32, sampler=sampler)
        # resuming: sampler.load_state_dict(saved)
        for epoch in range(sampler.epoch, epochs):
            sampler.set_epoch(epoch)  # starts over only if the epoch changes
            for batch in loader:
                ...
                sampler.advance(32)
                # saving: sampler.state_dict()

    The loop counts, because a loader with processes of its own asks for samples long before they
    are trained on.

    Args:
        dataset: Only its length is used.
        num_replicas: How many ranks there are; by default those of the process group.
        rank: Which of them this is.
        shuffle: Whether each epoch has a random order of its own, or the order of the dataset.
        seed: The seed of that order; the same on all ranks.
        tail: What to do with the last samples of an epoch if there are fewer than ranks. All ranks
            must make equally many steps, so "repeat" gives the first samples of the epoch to the
            ranks that would have none, and "drop" leaves the last ones out. With "uneven", every
            sample comes exactly once, and some ranks get one more than others.
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,  # noqa: FBT001, FBT002  # as DistributedSampler has it
        seed: int = 0,
        *,
        tail: Literal["repeat", "drop", "uneven"] = "repeat",
    ) -> None:
        self.epoch = 0
        self.consumed = 0
        if num_replicas is None:
            num_replicas = devices.world_size("ResumableSampler")
        self.num_replicas = num_replicas
        self.rank = devices.rank() if rank is None else rank
        self._size, self._shuffle, self._seed, self._tail = len(dataset), shuffle, seed, tail
        self._has_begun = self._was_counted = self._gave_all = False
        self._passes = self._counted_at_a_time = 0
        self._check_arguments()

    def _check_arguments(self) -> None:
        if not is_whole(self.num_replicas) or self.num_replicas < 1:
            raise ConfigError(
                f"num_replicas={shown(self.num_replicas)}: there is at least one rank"
            )
        if not is_whole(self.rank) or not 0 <= self.rank < self.num_replicas:
            raise ConfigError(
                f"rank={shown(self.rank)}: the {self.num_replicas} ranks are counted from 0"
            )
        if not is_whole(self._seed):
            raise ConfigError(f"seed={shown(self._seed)}: not a whole number")
        if self._tail not in ("repeat", "drop", "uneven"):
            raise ConfigError(f"tail={shown(self._tail)}: must be 'repeat', 'drop' or 'uneven'")

    def __iter__(self) -> Iterator[int]:
        if self._is_over():
            self.set_epoch(self.epoch + 1)  # the loop did not call it
        self._has_begun, self._was_counted, self._gave_all = True, False, False
        self._passes += 1
        return self._indices(self._rest()[self.rank :: self.num_replicas], self._passes)

    def _indices(self, mine: list[int], number: int) -> Iterator[int]:
        yield from mine
        self._gave_all = number == self._passes

    def _is_over(self) -> bool:
        """Whether a pass has reached the end of the epoch, as far as can be known.

        Then less is left than `advance` counts at a time: a last batch that `drop_last` left out,
        or the sample that this rank has less than others. That all samples were given proves
        nothing by itself, because a loader's processes ask for them early.
        """
        if not self._has_begun:
            return False
        left = len(range(self.rank, self._end() - self.consumed, self.num_replicas))
        return self.consumed >= self._end() or (
            self._gave_all and (not self._was_counted or left < self._counted_at_a_time)
        )

    def __len__(self) -> int:
        """The number of samples that a whole epoch has for this rank.

        A loop that resumes in the middle of an epoch gets fewer.
        """
        if self._tail == "uneven":
            return len(range(self.rank, self._size, self.num_replicas))
        each, rest = divmod(self._size, self.num_replicas)
        return each + (1 if rest and self._tail == "repeat" else 0)

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch; if it is the current one, keep the position."""
        if not is_whole(epoch) or epoch < 0:
            raise ConfigError(
                f"epoch={shown(epoch)}: epochs are counted from 0",
                hint="for epoch in range(sampler.epoch, epochs): sampler.set_epoch(epoch)",
            )
        self._gave_all = False
        if epoch != self.epoch:
            self.epoch, self.consumed, self._has_begun = int(epoch), 0, False

    def advance(self, samples: int) -> None:
        """Count `samples` that this rank has trained on, and as many for every other rank.

        The count stops at the end of the epoch, so a smaller last batch may count as a whole one.
        """
        if not is_whole(samples) or samples < 0:
            raise ConfigError(
                f"samples={shown(samples)}: not a number of samples",
                hint="pass the size of a batch on one rank",
            )
        self._was_counted, self._counted_at_a_time = True, samples
        self.consumed = min(self._end(), self.consumed + samples * self.num_replicas)

    def state_dict(self) -> dict[str, int | bool]:
        """Return the state from which another sampler resumes; the same on every rank."""
        if self._has_begun and not self._was_counted and self._end() > self.consumed:
            warnings.warn(
                "the position of a ResumableSampler is saved, but no sample of this pass was"
                " counted; call sampler.advance(batch_size) after each batch",
                stacklevel=2,
            )
        return {
            "epoch": self.epoch,
            "consumed": self.consumed,
            "size": self._size,
            "seed": self._seed,
            "shuffle": self._shuffle,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from where `state_dict` was called, in the same order of samples."""
        if any(name not in state for name in _FIELDS):
            raise ConfigError(
                f"state={shown(state)} is not the state of a ResumableSampler, {this_is(state)}",
                hint=_STATE_HINT,
            )
        if state["size"] != self._size:
            raise ConfigError(
                f"the state is of a dataset with {state['size']} samples, and this one has"
                f" {self._size}: the samples trained on cannot be determined",
                hint="resume with the same dataset, or start an epoch without the state",
            )
        self._check_state(state)
        self.epoch, self.consumed = int(state["epoch"]), int(state["consumed"])
        self._seed, self._shuffle = int(state["seed"]), state["shuffle"]
        self._has_begun = self._was_counted = self._gave_all = False

    def _check_state(self, state: Mapping[str, Any]) -> None:
        lines = [
            f"{name} is {shown(state[name])}: not a whole number"
            for name in ("epoch", "consumed", "seed")
            if not is_whole(state[name])
        ]
        if is_whole(state["epoch"]) and state["epoch"] < 0:
            lines.append(f"epoch is {state['epoch']}: must be 0 or more")
        if is_whole(state["consumed"]) and not 0 <= state["consumed"] <= self._size:
            lines.append(f"consumed is {state['consumed']}: must be between 0 and {self._size}")
        if not isinstance(state["shuffle"], bool):
            lines.append(f"shuffle is {shown(state['shuffle'])}: must be True or False")
        if lines:
            listed = "; ".join(lines)
            raise ConfigError(f"not the state of a ResumableSampler: {listed}", hint=_STATE_HINT)

    def _end(self) -> int:
        """Return how many samples are consumed when the epoch is over."""
        if self._tail != "drop":
            return self._size
        return self._size - (self._size - self.consumed) % self.num_replicas

    def _rest(self) -> list[int]:
        """Return the remaining samples of the epoch, in order, for all ranks together."""
        order = self._order()
        rest = order[self.consumed : self._end()]
        if self._tail == "repeat":
            lacking = -len(rest) % self.num_replicas
            rest += itertools.islice(itertools.cycle(order), lacking) if order else []
        return rest

    def _order(self) -> list[int]:
        if not self._shuffle:
            return list(range(self._size))
        generator = torch.Generator().manual_seed(self._seed + self.epoch)
        order: list[int] = torch.randperm(self._size, generator=generator).tolist()
        return order
