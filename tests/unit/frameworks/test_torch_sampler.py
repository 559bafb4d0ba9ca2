"""A sampler that stops and goes on: each sample once, whatever happens to the ranks."""

from __future__ import annotations

import collections
import itertools
import pickle
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, DistributedSampler

from holdfast.errors import ConfigError
from holdfast.train.torch import ResumableSampler
from tests.unit.frameworks.conftest import Numbers, Ranks

Tail = Literal["repeat", "drop", "uneven"]


def _group(size: int, ranks: int, **given: Any) -> list[ResumableSampler]:
    return [ResumableSampler(range(size), ranks, rank, **given) for rank in range(ranks)]


def _train(group: list[ResumableSampler], batch: int, steps: int) -> list[int]:
    """Return what the ranks train on in so many steps together, or until the epoch is over."""
    if steps == 0:
        return []
    passes = [iter(sampler) for sampler in group]
    trained: list[int] = []
    for _ in range(steps):
        batches = [list(itertools.islice(one, batch)) for one in passes]
        trained += itertools.chain.from_iterable(batches)
        for sampler in group:
            sampler.advance(batch)
        if not any(batches):
            break
    return trained


# Attempts: with how many ranks, how large batches, and how many steps until it dies.
attempts = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(0, 6)), max_size=6)
shuffles = st.booleans()


@given(size=st.integers(0, 60), attempts=attempts, shuffle=shuffles, epoch=st.integers(0, 3))
def test_each_sample_comes_exactly_once_in_an_epoch_however_often_it_is_cut(
    size: int, attempts: list[tuple[int, int, int]], shuffle: bool, epoch: int
) -> None:
    state = None
    trained: list[int] = []
    for ranks, batch, steps in [*attempts, (2, 3, 1000)]:
        group = _group(size, ranks, shuffle=shuffle, tail="uneven")
        for sampler in group:
            if state is not None:
                sampler.load_state_dict(state)
            sampler.set_epoch(epoch)
        trained += _train(group, batch, steps)
        states = [sampler.state_dict() for sampler in group]
        assert all(one == states[0] for one in states)
        state = states[0]

    assert sorted(trained) == list(range(size))


@given(
    size=st.integers(0, 60),
    attempts=attempts,
    shuffle=shuffles,
    tail=st.sampled_from(["repeat", "drop"]),
)
def test_all_ranks_get_equally_many_and_at_most_one_less_than_there_are_ranks_is_amiss(
    size: int, attempts: list[tuple[int, int, int]], shuffle: bool, tail: Tail
) -> None:
    state = None
    trained: collections.Counter[int] = collections.Counter()
    ranks = 2
    for ranks, batch, steps in [*attempts, (2, 3, 1000)]:
        group = _group(size, ranks, shuffle=shuffle, tail=tail)
        for sampler in group:
            if state is not None:
                sampler.load_state_dict(state)
        assert len({len(sampler) for sampler in group}) == 1
        trained.update(_train(group, batch, steps))
        state = group[0].state_dict()
        if group[0].consumed == size:
            break

    most = max([ranks, *(one for one, _, _ in attempts)])
    if tail == "repeat":
        assert set(trained) == set(range(size))
        assert trained.total() - size < most
    else:
        assert set(trained) <= set(range(size))
        assert all(times == 1 for times in trained.values())
        assert size - trained.total() < most


@given(
    size=st.integers(1, 60),
    ranks=st.integers(1, 5),
    epoch=st.integers(0, 5),
    seed=st.integers(0, 9),
    shuffle=shuffles,
)
def test_a_whole_epoch_is_that_of_a_distributed_sampler(
    size: int, ranks: int, epoch: int, seed: int, shuffle: bool
) -> None:
    for rank in range(ranks):
        theirs: DistributedSampler[Any] = DistributedSampler(
            Numbers(size), ranks, rank, shuffle=shuffle, seed=seed
        )
        theirs.set_epoch(epoch)
        ours = ResumableSampler(range(size), ranks, rank, shuffle, seed)
        ours.set_epoch(epoch)

        assert list(ours) == list(theirs)
        assert len(ours) == len(theirs)


def test_the_epoch_it_is_in_can_be_set_again_without_going_back() -> None:
    sampler = ResumableSampler(range(10), 1, 0, shuffle=False)
    sampler.load_state_dict({**sampler.state_dict(), "epoch": 3, "consumed": 6})
    sampler.set_epoch(3)

    assert list(sampler) == [6, 7, 8, 9]

    sampler.set_epoch(4)

    assert list(sampler) == list(range(10))


def test_a_finished_epoch_has_nothing_left_when_it_is_resumed_and_is_followed_by_the_next() -> None:
    sampler = ResumableSampler(range(4), 1, 0, shuffle=False)
    sampler.load_state_dict({**sampler.state_dict(), "epoch": 1, "consumed": 4})

    assert list(sampler) == []
    assert list(sampler) == [0, 1, 2, 3]
    assert sampler.epoch == 2


def test_epochs_follow_each_other_if_nobody_sets_them() -> None:
    sampler = ResumableSampler(range(20), 1, 0, seed=4)
    orders = []
    for _ in range(3):
        orders.append(list(sampler))
        sampler.advance(20)

    assert sampler.epoch == 2
    assert len({tuple(order) for order in orders}) == 3
    assert all(sorted(order) == list(range(20)) for order in orders)


def test_a_loader_with_its_own_processes_does_not_run_ahead_of_the_count() -> None:
    sampler = ResumableSampler(range(40), 1, 0, shuffle=False)
    loader: DataLoader[Any] = DataLoader(
        Numbers(40),
        batch_size=4,
        sampler=sampler,
        num_workers=1,
        prefetch_factor=5,
    )
    batches = iter(loader)
    next(batches)
    sampler.advance(4)
    next(batches)
    sampler.advance(4)

    assert sampler.state_dict()["consumed"] == 8


def test_a_position_that_was_not_counted_is_not_saved_without_a_word() -> None:
    sampler = ResumableSampler(range(10), 1, 0)
    next(iter(sampler))

    with pytest.warns(UserWarning, match="call sampler.advance"):
        sampler.state_dict()


def test_the_order_is_that_of_the_state_and_not_that_of_a_new_seed() -> None:
    before = ResumableSampler(range(30), 1, 0, seed=1)
    whole = list(before)
    before.advance(10)
    after = ResumableSampler(range(30), 1, 0, seed=2)
    after.load_state_dict(pickle.loads(pickle.dumps(before.state_dict())))

    assert list(after) == whole[10:]


def test_the_ranks_are_those_of_the_process_group(be_rank: Ranks) -> None:
    be_rank(1, 3)

    assert list(ResumableSampler(range(6), shuffle=False)) == [1, 4]


def test_outside_a_training_function_there_is_one_rank() -> None:
    assert list(ResumableSampler(range(3), shuffle=False)) == [0, 1, 2]


def test_the_state_of_another_dataset_is_refused() -> None:
    state = ResumableSampler(range(10), 1, 0).state_dict()

    with pytest.raises(ConfigError, match="a dataset with 10 samples, and this one has 9"):
        ResumableSampler(range(9), 1, 0).load_state_dict(state)


@pytest.mark.parametrize("state", [{}, {"epoch": 1}, [], "epoch"])
def test_what_is_no_state_is_refused(state: Any) -> None:
    with pytest.raises(ConfigError, match="is not the state of a ResumableSampler"):
        ResumableSampler(range(9), 1, 0).load_state_dict(state)


@pytest.mark.parametrize(
    "given",
    [
        {"num_replicas": 0},
        {"num_replicas": 1.5},
        {"num_replicas": 2, "rank": 2},
        {"num_replicas": 2, "rank": -1},
        {"rank": True},
        {"seed": "x"},
        {"tail": "pad"},
    ],
)
def test_what_cannot_work_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ResumableSampler(range(9), **given)


@pytest.mark.parametrize("samples", [-1, 1.5, None])
def test_only_a_number_of_samples_is_counted(samples: Any) -> None:
    with pytest.raises(ConfigError, match="not a number of samples"):
        ResumableSampler(range(9), 1, 0).advance(samples)
