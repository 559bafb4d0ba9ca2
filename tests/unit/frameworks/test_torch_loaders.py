"""Data loaders are split among ranks, and are otherwise unchanged."""

from __future__ import annotations

import collections
import itertools
import pickle
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from holdfast.errors import ConfigError
from holdfast.frameworks.torch.loaders import DeviceLoader, RankSeeding, SplitSampler, moved
from holdfast.train.torch import ResumableSampler, prepare_data_loader
from tests.unit.frameworks.conftest import Numbers, Ranks

META = torch.device("meta")


def _seen(be_rank: Ranks, ranks: int, **given: Any) -> list[list[int]]:
    """Return the samples that each rank gets of a prepared loader."""
    seen = []
    for rank in range(ranks):
        be_rank(rank, ranks)
        torch.manual_seed(rank)  # ranks have their own random numbers
        loader: DataLoader[Any] = DataLoader(collate_fn=list, **given)
        batches = list(prepare_data_loader(loader))
        seen.append([index for batch in batches for index in batch])
    return seen


def _all(parts: list[list[int]]) -> list[int]:
    return list(itertools.chain.from_iterable(parts))


# ---------------------------------------------------------------------- what each rank gets


def test_alone_a_loader_stays_as_it_is() -> None:
    loader: DataLoader[int] = DataLoader(Numbers(3))

    assert prepare_data_loader(loader) is loader


def test_ranks_share_a_dataset_in_its_order(be_rank: Ranks) -> None:
    assert _seen(be_rank, 2, dataset=Numbers(6)) == [[0, 2, 4], [1, 3, 5]]


def test_ranks_share_a_shuffled_dataset_in_one_random_order(be_rank: Ranks) -> None:
    first, second = _seen(be_rank, 2, dataset=Numbers(20), shuffle=True, batch_size=3)

    assert sorted(first + second) == list(range(20))
    assert first != sorted(first)


def test_another_epoch_has_another_order(be_rank: Ranks) -> None:
    be_rank(0, 2)
    loader = prepare_data_loader(DataLoader(Numbers(20), shuffle=True, collate_fn=list))
    orders = []
    for epoch in (0, 1, 0):
        assert isinstance(loader.sampler, DistributedSampler)
        loader.sampler.set_epoch(epoch)
        orders.append(list(loader))

    assert orders[0] == orders[2] != orders[1]


def test_the_choices_of_another_sampler_are_dealt_out(be_rank: Ranks) -> None:
    """A validation set that is kept apart by its sampler must not be trained on."""
    chosen = [2, 3, 5, 7, 11, 13]
    ranks = _seen(be_rank, 3, dataset=Numbers(20), sampler=SubsetRandomSampler(chosen))

    assert sorted(_all(ranks)) == chosen
    assert [len(samples) for samples in ranks] == [2, 2, 2]


def test_drawing_with_weights_keeps_its_weights(be_rank: Ranks) -> None:
    sampler = WeightedRandomSampler([0.0, 1.0, 0.0, 1.0], 40)
    ranks = _seen(be_rank, 2, dataset=Numbers(4), sampler=sampler)

    assert [len(samples) for samples in ranks] == [20, 20]
    assert set(_all(ranks)) == {1, 3}


def test_drawing_again_and_again_stays_so(be_rank: Ranks) -> None:
    sampler = RandomSampler(Numbers(4), replacement=True, num_samples=40)
    ranks = _seen(be_rank, 2, dataset=Numbers(4), sampler=sampler)

    assert [len(samples) for samples in ranks] == [20, 20]


class Unmeasured(Dataset[int]):
    """A dataset that does not know its length."""

    def __getitem__(self, index: int) -> int:
        return index


def test_a_dataset_without_a_length_is_shared_by_the_choices_of_its_sampler(
    be_rank: Ranks,
) -> None:
    assert _seen(be_rank, 2, dataset=Unmeasured(), sampler=[5, 3, 1, 0]) == [[5, 1], [3, 0]]


def test_batches_that_are_made_elsewhere_are_dealt_out_whole(be_rank: Ranks) -> None:
    batches = BatchSampler(SequentialSampler(Numbers(8)), 2, drop_last=False)

    assert _seen(be_rank, 2, dataset=Numbers(8), batch_sampler=batches) == [
        [0, 1, 4, 5],
        [2, 3, 6, 7],
    ]


def test_samples_that_are_not_batched_are_dealt_out(be_rank: Ranks) -> None:
    be_rank(1, 2)
    loader = prepare_data_loader(DataLoader(Numbers(6), batch_size=None))

    assert list(loader) == [1, 3, 5]


@given(size=st.integers(1, 30), ranks=st.integers(1, 5), epoch=st.integers(0, 3))
def test_what_is_dealt_out_is_all_of_it_in_equal_parts(size: int, ranks: int, epoch: int) -> None:
    chosen = list(range(100, 100 + size))
    parts = []
    for rank in range(ranks):
        sampler = SplitSampler(SubsetRandomSampler(chosen), ranks, rank)
        sampler.set_epoch(epoch)
        parts.append(list(sampler))
        assert len(sampler) == len(parts[-1])

    dealt = collections.Counter(_all(parts))
    assert len({len(part) for part in parts}) == 1
    assert set(dealt) == set(chosen)
    assert dealt.total() - size < ranks


def test_dealing_out_leaves_the_random_numbers_of_a_rank_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    list(SplitSampler(SubsetRandomSampler(range(9)), 2, 0))

    assert torch.equal(torch.get_rng_state(), before)


# ---------------------------------------------------------------------- what stays


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(Stream()),
        DataLoader(Numbers(4), sampler=DistributedSampler(Numbers(4), 2, 1)),
        DataLoader(Numbers(4), sampler=ResumableSampler(Numbers(4), 2, 1)),
        DataLoader(
            Numbers(4), batch_sampler=BatchSampler(ResumableSampler(Numbers(4), 2, 1), 2, False)
        ),
    ],
    ids=["iterable", "distributed", "resumable", "batches of resumable"],
)
def test_what_is_split_already_or_cannot_be_stays(be_rank: Ranks, loader: DataLoader[int]) -> None:
    be_rank(0, 2)

    assert prepare_data_loader(loader) is loader


def test_a_loader_stays_whole_if_that_is_wanted(be_rank: Ranks) -> None:
    be_rank(0, 2)
    loader: DataLoader[int] = DataLoader(Numbers(4))

    assert prepare_data_loader(loader, add_dist_sampler=False) is loader


class OwnLoader(DataLoader[Any]):
    """A loader with a constructor, and an attribute, of its own."""

    def __init__(self, size: int) -> None:
        super().__init__(Numbers(size), batch_size=3, collate_fn=list)
        self.mine = "kept"


def test_everything_else_about_a_loader_stays(be_rank: Ranks) -> None:
    be_rank(0, 2)
    generator = torch.Generator()
    given: dict[str, Any] = {
        "batch_size": 4,
        "num_workers": 2,
        "collate_fn": list,
        "drop_last": True,
        "timeout": 7,
        "generator": generator,
        "prefetch_factor": 3,
        "persistent_workers": True,
        "multiprocessing_context": "spawn",
    }
    loader: DataLoader[Any] = DataLoader(Numbers(30), shuffle=True, **given)
    prepared = prepare_data_loader(loader)

    for name in given:
        if name != "multiprocessing_context":
            assert getattr(prepared, name) is getattr(loader, name)
    assert prepared.multiprocessing_context is loader.multiprocessing_context
    assert len(prepared) == 3  # 15 samples in fours, the rest dropped
    assert len(loader) == 7
    assert isinstance(loader.sampler, RandomSampler), "the given loader was changed"
    assert loader.worker_init_fn is None


def test_a_loader_of_another_class_stays_one(be_rank: Ranks) -> None:
    be_rank(1, 2)
    prepared = prepare_data_loader(OwnLoader(7))

    assert isinstance(prepared, OwnLoader)
    assert prepared.mine == "kept"
    assert list(prepared) == [[1, 3, 5], [0]]  # the first again, so that all make as many steps


def test_what_a_user_does_in_the_processes_of_a_loader_is_still_done() -> None:
    done: list[object] = []
    torch.manual_seed(1)
    drawn = []
    for rank in (0, 1, 0):
        torch.manual_seed(1)
        RankSeeding(done.append, rank)(4)
        drawn.append((torch.rand(1).item(), random.random(), float(np.random.rand())))

    assert done == [4, 4, 4]
    assert drawn[0] == drawn[2]
    assert all(mine != theirs for mine, theirs in zip(drawn[0], drawn[1], strict=True))


def test_what_seeds_the_processes_of_a_loader_can_be_sent_there() -> None:
    pickle.loads(pickle.dumps(RankSeeding(None, 3)))(0)


class Endless(Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        yield from iter(int, 1)


def test_a_sampler_without_a_length_is_refused_and_not_asked_for_ever(be_rank: Ranks) -> None:
    be_rank(0, 2)

    with pytest.raises(ConfigError, match="has no length"):
        prepare_data_loader(DataLoader(Numbers(3), sampler=Endless()))


@pytest.mark.parametrize("loader", [[1, 2], Numbers(3), DataLoader])
def test_what_is_no_loader_is_refused(loader: Any) -> None:
    with pytest.raises(ConfigError, match=r"is not a torch\.utils\.data\.DataLoader"):
        prepare_data_loader(loader)


# ---------------------------------------------------------------------- moving


class Pair(NamedTuple):
    left: torch.Tensor
    right: str


class Movable:
    def __init__(self) -> None:
        self.where: object = "here"

    def to(self, device: torch.device) -> Movable:
        self.where = device
        return self


def test_every_tensor_in_a_batch_is_moved_and_all_else_stays() -> None:
    ordered = collections.OrderedDict[str, Any](b=torch.ones(1), a=1)
    grouped = collections.defaultdict[str, Any](list, x=torch.ones(1))
    batch = {
        "list": [torch.ones(1), "text", 1.5, None],
        "tuple": (torch.ones(1),),
        "named": Pair(torch.ones(1), "right"),
        "ordered": ordered,
        "grouped": grouped,
        "own": Movable(),
    }
    there = moved(batch, META)

    assert there["list"][0].device == META
    assert there["list"][1:] == ["text", 1.5, None]
    assert there["tuple"][0].device == META
    assert type(there["named"]) is Pair and there["named"].left.device == META
    assert type(there["ordered"]) is collections.OrderedDict
    assert list(there["ordered"]) == ["b", "a"] and there["ordered"]["b"].device == META
    assert there["grouped"].default_factory is list and there["grouped"]["x"].device == META
    assert there["own"].where == META
    assert ordered["b"].device.type == grouped["x"].device.type == "cpu", "the batch was changed"


def test_a_moving_loader_is_a_loader_like_its_own_whose_batches_are_elsewhere() -> None:
    loader: DataLoader[Any] = DataLoader(Numbers(5), batch_size=2)
    moving = DeviceLoader(loader, META, overlaps=True)

    assert [batch.device for batch in moving] == [META] * 3
    assert len(moving) == 3
    assert moving.sampler is loader.sampler
    assert isinstance(moving, DataLoader)


# ---------------------------------------------------------------------- samplers of one's own


class Epochs(Sampler[int]):
    """Chooses by its own `set_epoch`, as samplers for several ranks do."""

    def __init__(self, size: int) -> None:
        self.size, self.epoch = size, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        return iter([(number + self.epoch) % self.size for number in range(self.size)])


class Drawing(Sampler[int]):
    """Chooses by whatever `shuffle` draws from."""

    def __init__(self, size: int, shuffle: Any) -> None:
        self.size, self.shuffle = size, shuffle

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        order = list(range(self.size))
        self.shuffle(order)
        return iter(order)


def _epochs(be_rank: Ranks, ranks: int, make: Any) -> list[list[list[int]]]:
    """Return each rank's samples in three epochs of the loader that `make` returns."""
    seen: list[list[list[int]]] = []
    for rank in range(ranks):
        be_rank(rank, ranks)
        torch.manual_seed(rank)
        random.seed(rank)
        np.random.seed(rank)
        loader: Any = prepare_data_loader(make())
        seen.append([])
        for epoch in range(3):
            loader.sampler.set_epoch(epoch)
            seen[-1].append([index for batch in loader for index in batch])
    return seen


def _make(**given: Any) -> Any:
    return lambda: DataLoader(Numbers(24), collate_fn=list, **given)


@pytest.mark.parametrize(
    "make",
    [
        _make(batch_sampler=BatchSampler(RandomSampler(Numbers(24)), 2, False)),
        _make(batch_sampler=BatchSampler(Epochs(24), 2, False)),
        _make(sampler=Epochs(24)),
        _make(sampler=Drawing(24, random.shuffle)),
        _make(sampler=Drawing(24, np.random.shuffle)),
        _make(batch_sampler=BatchSampler(Drawing(24, random.shuffle), 2, False)),
        lambda: DataLoader(
            Numbers(24),
            collate_fn=list,
            sampler=SubsetRandomSampler(
                range(24), torch.Generator().manual_seed(torch.initial_seed())
            ),
        ),
    ],
    ids=["batches", "epochs in batches", "epochs", "random", "numpy", "random in batches", "own"],
)
def test_all_ranks_deal_from_one_order_and_each_epoch_has_another(
    be_rank: Ranks, make: Any
) -> None:
    ranks = _epochs(be_rank, 3, make)

    for epoch in range(3):
        assert sorted(_all([rank[epoch] for rank in ranks])) == list(range(24))
    assert len({tuple(epoch) for epoch in ranks[0]}) == 3


def test_the_epoch_of_a_sampler_inside_a_sampler_of_batches_is_set(be_rank: Ranks) -> None:
    be_rank(0, 2)
    inner = Epochs(8)
    loader: Any = prepare_data_loader(
        DataLoader(Numbers(8), batch_sampler=BatchSampler(inner, 2, False))
    )

    loader.sampler.set_epoch(5)
    assert inner.epoch == 5
    loader.batch_sampler.set_epoch(6)
    assert inner.epoch == 6


def test_dealing_out_leaves_all_random_numbers_of_a_rank_alone() -> None:
    def drawn() -> tuple[float, float]:
        return random.random(), float(np.random.rand())

    random.seed(3)
    np.random.seed(3)
    expected = drawn()
    random.seed(3)
    np.random.seed(3)
    list(SplitSampler(Drawing(9, random.shuffle), 2, 0))
    list(SplitSampler(Drawing(9, np.random.shuffle), 2, 0))

    assert drawn() == expected


@pytest.mark.parametrize(
    "shuffle",
    [random.Random().shuffle, np.random.default_rng().shuffle, random.SystemRandom().shuffle],
    ids=["random", "numpy", "system"],
)
def test_an_order_that_ranks_cannot_agree_on_is_refused(be_rank: Ranks, shuffle: Any) -> None:
    be_rank(0, 2)
    loader = prepare_data_loader(DataLoader(Numbers(30), sampler=Drawing(30, shuffle)))

    with pytest.raises(ConfigError, match="Drawing chooses differently each time") as caught:
        list(loader)

    assert "set_epoch(epoch)" in str(caught.value)


class SplitsItself(Sampler[int]):
    """A sampler for one rank that is no `DistributedSampler`."""

    def __init__(self, size: int, num_replicas: int, rank: int) -> None:
        self.size, self.num_replicas, self.rank = size, num_replicas, rank

    def __len__(self) -> int:
        return self.size // self.num_replicas

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.rank, self.size, self.num_replicas))


@pytest.mark.parametrize("in_batches", [False, True])
def test_what_splits_itself_is_not_split_again(be_rank: Ranks, in_batches: bool) -> None:
    parts = []
    for rank in range(2):
        be_rank(rank, 2)
        sampler = SplitsItself(8, 2, rank)
        given: Any = {"sampler": sampler}
        if in_batches:
            given = {"batch_sampler": BatchSampler(sampler, 2, drop_last=False)}
        loader = prepare_data_loader(DataLoader(Numbers(8), collate_fn=list, **given))
        parts.append([index for batch in loader for index in batch])

    assert parts == [[0, 2, 4, 6], [1, 3, 5, 7]]


def test_that_every_rank_gets_all_of_an_iterable_dataset_is_told(
    be_rank: Ranks, caplog: pytest.LogCaptureFixture
) -> None:
    be_rank(0, 2)

    with caplog.at_level("WARNING", "holdfast"):
        prepare_data_loader(DataLoader(Stream()), add_dist_sampler=False)
        assert caplog.messages == []
        prepare_data_loader(DataLoader(Stream()))

    assert "Stream is iterable, so each of the 2 ranks gets all of its samples" in caplog.text


class Drawn(Dataset[float]):
    """What an augmentation would draw, in the process that makes a sample."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> float:
        return float(torch.rand(1))


def _loaders(rank: int) -> dict[str, DataLoader[Any]]:
    given: Any = {"num_workers": 1, "batch_size": 4}
    return {
        "resumable": DataLoader(Drawn(), sampler=ResumableSampler(Drawn(), 2, rank), **given),
        "distributed": DataLoader(Drawn(), sampler=DistributedSampler(Drawn(), 2, rank), **given),
        "dealt": DataLoader(Drawn(), shuffle=True, **given),
    }


@pytest.mark.parametrize("kind", _loaders(0))
def test_ranks_that_are_seeded_alike_do_not_draw_the_same_in_their_loaders(
    be_rank: Ranks, kind: str
) -> None:
    drawn = []
    for rank in range(2):
        be_rank(rank, 2)
        torch.manual_seed(1)
        given = _loaders(rank)[kind]
        loader = prepare_data_loader(given)
        drawn.append({float(value) for batch in loader for value in batch})
        assert given.worker_init_fn is None, "the given loader was changed"

    assert not drawn[0] & drawn[1]
