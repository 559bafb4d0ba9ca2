"""Random schedules of kills, resizes, early exits, epochs and loader processes, in one process.

A schedule is drawn from a number, and a number that fails does so again: `pytest -k "17-data"`.
Ranks run in turn, step by step. A kill forgets everything but the newest checkpoint, and what was
trained on since then does not count: it is done again. What counts must be the epoch's samples,
each once, or what is missing must have been logged, or asked for.
"""

from __future__ import annotations

import itertools
import json
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, get_worker_info

from holdfast import data
from holdfast.data.dataset import shard
from holdfast.train.torch import ResumableSampler, prepare_data_loader

EPOCHS = 3
SCHEDULES = 200
WITH_PROCESSES = 48  # of so many schedules two have loaders with processes, which take longest


class Killed(Exception):
    """All processes are gone."""


@dataclass
class Schedule:
    """What happens to a run: drawn as it goes on, from one number."""

    seed: int
    chance: random.Random = field(init=False)
    kills_left: int = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.kills_left = self.chance.randint(0, 6)
        self.rows = self.chance.randint(5, 60)
        self.batch = self.chance.randint(1, 7)
        self.saves_every = self.chance.randint(1, 4)
        self.exits = {
            epoch: self.chance.randint(1, self.rows)
            for epoch in range(EPOCHS)
            if self.chance.random() < 0.2
        }
        self.workers = self.chance.choice([1, 2]) if seed_has_processes(self.seed) else 0

    def ranks(self) -> int:
        return self.chance.randint(1, 5)

    def maybe_kill(self) -> None:
        if self.kills_left and self.chance.random() < 0.15:
            self.kills_left -= 1
            raise Killed


def seed_has_processes(seed: int) -> bool:
    return seed % WITH_PROCESSES in (1, 2)  # a sampler's and a prepared loader's


@dataclass
class Run:
    """What a run has trained on, as its newest checkpoint knows it."""

    state: Any = None
    saved: dict[int, list[int]] = field(default_factory=dict)
    unsaved: dict[int, list[int]] = field(default_factory=dict)
    ranks_max: int = 1
    attempts: int = 0

    def train_on(self, epoch: int, samples: list[int]) -> None:
        self.unsaved.setdefault(epoch, []).extend(samples)

    def save(self, state: Any) -> None:
        self.state = json.loads(json.dumps(state))
        for epoch, samples in self.unsaved.items():
            self.saved.setdefault(epoch, []).extend(samples)
        self.unsaved = {}

    def missing(self, epoch: int, samples: list[int]) -> Counter[int]:
        """Return what of an epoch was not trained on; fail for what was trained on twice."""
        seen = Counter(self.saved.get(epoch, []))
        twice = seen - Counter(samples)
        assert not twice, f"epoch {epoch} has some twice: {twice}"
        return Counter(samples) - seen


def drive(schedule: Schedule, attempt: Callable[[Run, int], None]) -> Run:
    """Run attempts until one comes to the end."""
    run = Run()
    while True:
        ranks = schedule.ranks()
        run.ranks_max, run.attempts, run.unsaved = max(run.ranks_max, ranks), run.attempts + 1, {}
        try:
            attempt(run, ranks)
        except Killed:
            continue
        return run


# ---------------------------------------------------------------------- holdfast.data


class Few:
    """Lets a number pass that it has not seen in this pass."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def __call__(self, row: dict[str, Any]) -> bool:
        is_new = row["id"] not in self.seen
        self.seen.add(row["id"])
        return is_new


def dataset_of(schedule: Schedule) -> data.Dataset:
    """Return the dataset as a script that is run again makes it."""
    chance = random.Random(f"dataset {schedule.seed}")
    sources: list[Callable[[int], data.Dataset]] = [
        data.range,
        lambda rows: data.from_items([{"id": row} for row in range(rows)]),
    ]
    dataset = chance.choice(sources)(schedule.rows)
    for step in chance.choices(["shuffle", "seeded", "filter", "map", "few", "none"], k=3):
        if step == "shuffle":
            dataset = dataset.random_shuffle()
        elif step == "seeded":
            dataset = dataset.random_shuffle(seed=3)
        elif step == "filter":
            dataset = dataset.filter(lambda row: True)
        elif step == "map":
            dataset = dataset.map(lambda row: row)
        elif step == "few":
            dataset = dataset.filter(Few)  # type: ignore[arg-type]  # a class, as Ray takes it
    return dataset


def loops_over(
    iterators: list[data.DataIterator], batch: int, buffer: int | None
) -> list[Iterator[Any]]:
    return [
        iter(one.iter_batches(batch_size=batch, local_shuffle_buffer_size=buffer))
        for one in iterators
    ]


def check_of_data(schedule: Schedule, logged: Callable[[], list[str]]) -> None:
    equal = schedule.chance.random() < 0.5
    buffer = schedule.chance.choice([None, 4])
    left: set[int] = set()

    def attempt(run: Run, ranks: int) -> None:
        dataset = dataset_of(schedule)
        group = [shard(dataset, ranks, rank, equal=equal) for rank in range(ranks)]
        for iterator in group:
            if run.state is not None:
                iterator.load_state_dict(run.state)
        steps = 0
        while (now := group[0].state_dict())["epoch"] < EPOCHS:
            epoch, loops = now["epoch"], loops_over(group, schedule.batch, buffer)
            while True:
                schedule.maybe_kill()
                taken = [next(loop, None) for loop in loops]
                if taken[0] is None:
                    assert taken == [None] * ranks, "rank 0 has as many batches as any"
                    break
                run.train_on(epoch, [int(n) for one in taken if one for n in one["id"]])
                steps += 1
                if steps % schedule.saves_every == 0:
                    schedule.maybe_kill()
                    run.save(group[0].state_dict())
                    assert not equal or len({str(one.state_dict()) for one in group}) == 1
                limit = schedule.exits.get(epoch)
                if limit is not None and group[0].state_dict()["position"] >= limit:
                    left.add(epoch)
                    break
            del loops
            schedule.maybe_kill()
            run.save(group[0].state_dict())

    run = drive(schedule, attempt)
    for epoch in range(EPOCHS):
        missing = run.missing(epoch, list(range(schedule.rows)))
        if epoch in left:
            assert not missing or any("was left with" in text for text in logged())
        elif equal:
            assert missing.total() < run.ranks_max
            assert not missing or any("no rank's share" in text for text in logged())
        else:
            assert not missing


# ---------------------------------------------------------------------- map-style, ResumableSampler


class Numbers(Dataset[int]):
    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        return index


def check_of_sampler(schedule: Schedule, logged: Callable[[], list[str]]) -> None:
    tail: Any = schedule.chance.choice(["uneven", "drop", "repeat"])
    drop_last = schedule.chance.random() < 0.3
    sets_epoch = schedule.chance.random() < 0.5
    left: set[int] = set()

    def attempt(run: Run, ranks: int) -> None:
        group = [
            ResumableSampler(Numbers(schedule.rows), ranks, rank, seed=run.attempts, tail=tail)
            for rank in range(ranks)
        ]
        for sampler in group:
            if run.state is not None:
                sampler.load_state_dict(run.state)
        loaders: list[DataLoader[int]] = [
            DataLoader(
                Numbers(schedule.rows),
                batch_size=schedule.batch,
                sampler=sampler,
                drop_last=drop_last,
                num_workers=schedule.workers,
            )
            for sampler in group
        ]
        steps = 0
        for epoch in range(group[0].epoch, EPOCHS):
            if sets_epoch or epoch in left or run.attempts > 1:
                for sampler in group:
                    sampler.set_epoch(epoch)
            passes = [iter(loader) for loader in loaders]
            while True:
                schedule.maybe_kill()
                limit = schedule.exits.get(epoch)
                if limit is not None and group[0].consumed >= limit:
                    left.add(epoch)
                    for sampler in group:  # what is left of it is left out
                        sampler.set_epoch(epoch + 1)
                    break
                taken = [next(one, None) for one in passes]
                if taken[0] is None:
                    break
                assert {sampler.epoch for sampler in group} == {epoch}
                run.train_on(epoch, [n for one in taken if one is not None for n in one.tolist()])
                for sampler in group:
                    sampler.advance(schedule.batch)
                steps += 1
                if steps % schedule.saves_every == 0:
                    schedule.maybe_kill()
                    run.save(group[0].state_dict())
        run.save(group[0].state_dict() | {"epoch": EPOCHS})

    run = drive(schedule, attempt)
    for epoch in range(EPOCHS):
        seen = Counter(run.saved.get(epoch, []))
        if tail == "repeat":  # asked for: a first sample again, for ranks that would have none
            allowed = Counter(range(schedule.rows))
            extra = (seen - allowed).total()
            assert extra < run.ranks_max * run.attempts
            seen &= allowed
        assert not seen - Counter(range(schedule.rows))
        missing = (Counter(range(schedule.rows)) - seen).total()
        most = run.ranks_max - 1 if tail == "drop" else 0
        most += schedule.batch * run.ranks_max if drop_last else 0  # asked for too
        assert missing <= most or epoch in left


# ---------------------------------------------------------------------- prepared loaders


class Splits(IterableDataset[int]):
    """A stream that gives each rank, and each process of its loader, its part."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Iterator[int]:
        worker = get_worker_info()
        parts, part = (1, 0) if worker is None else (worker.num_workers, worker.id)
        ranks, rank = dist.get_world_size(), dist.get_rank()
        return iter(range(rank * parts + part, self.size, ranks * parts))


class ByChance(torch.utils.data.Sampler[int]):
    """A sampler of one's own, which draws from Python's generator."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        return iter(random.sample(range(self.size), self.size))


def loader_of(kind: str, schedule: Schedule) -> DataLoader[int]:
    numbers, batch = Numbers(schedule.rows), schedule.batch
    given: dict[str, Any] = {"num_workers": schedule.workers}
    match kind:
        case "iterable":
            return DataLoader(Splits(schedule.rows), batch_size=batch, **given)
        case "shuffled":
            return DataLoader(numbers, batch_size=batch, shuffle=True, **given)
        case "sampler":
            return DataLoader(numbers, batch_size=batch, sampler=ByChance(schedule.rows), **given)
        case _:
            batches = BatchSampler(ByChance(schedule.rows), batch, drop_last=False)
            return DataLoader(numbers, batch_sampler=batches, **given)


def be_rank(rank: int, ranks: int) -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)


def check_of_loaders(schedule: Schedule, logged: Callable[[], list[str]]) -> None:
    """Their epochs are done as a whole, or again."""
    kind = schedule.chance.choice(["iterable", "shuffled", "sampler", "batches"])

    def attempt(run: Run, ranks: int) -> None:
        for epoch in range(run.state or 0, EPOCHS):
            for rank in range(ranks):
                be_rank(rank, ranks)
                random.seed(rank)
                is_split = kind == "iterable"
                loader: Any = prepare_data_loader(
                    loader_of(kind, schedule), add_dist_sampler=not is_split
                )
                if ranks > 1 and not is_split:
                    loader.sampler.set_epoch(epoch)
                for batch in loader:
                    schedule.maybe_kill()
                    run.train_on(epoch, batch.tolist())
            schedule.maybe_kill()
            run.save(epoch + 1)

    run = drive(schedule, attempt)
    for epoch in range(EPOCHS):
        seen = Counter(run.saved[epoch])
        assert set(seen) == set(range(schedule.rows))
        size = schedule.batch if kind == "batches" else 1
        extra = seen.total() - schedule.rows  # so that all ranks have equally many
        assert extra < (1 if kind == "iterable" else run.ranks_max * size)


CHECKS = {"data": check_of_data, "sampler": check_of_sampler, "loaders": check_of_loaders}


# A last batch that drop_last leaves out, in a pass that was resumed just before it, counts nothing.
@pytest.mark.filterwarnings("ignore:the position of a ResumableSampler")
@pytest.mark.parametrize(
    ("seed", "kind"),
    list(zip(range(SCHEDULES), itertools.cycle(["data", "sampler", "loaders", "data"]))),
)
def test_a_schedule_trains_on_every_sample_once_or_says_what_it_leaves_out(
    seed: int, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "holdfast"):
        try:
            CHECKS[kind](Schedule(seed), lambda: caplog.messages)
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()
