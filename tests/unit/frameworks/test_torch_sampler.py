"""`ResumableSampler`: each sample comes once, however often ranks stop and resume."""

from __future__ import annotations

import collections
import itertools
import json
import pickle
from typing import Any, Literal

import numpy as np
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
    """Return the samples all ranks train on in `steps` steps, or until the epoch is over."""
    if steps == 0:
        return []
    passes = [iter(sampler) for sampler in group]
    trained: list[int] = []
    for _ in range(steps):
        batches = [list(itertools.islice(samples, batch)) for samples in passes]
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
        assert all(each == states[0] for each in states)
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

    most = max([ranks, *(count for count, _, _ in attempts)])
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


# ---------------------------------------------------------------------- without `set_epoch`


def _loop(loader: DataLoader[Any], sampler: ResumableSampler, batch: int) -> list[int]:
    """Return the samples of one epoch of a training loop."""
    seen: list[int] = []
    for samples in loader:
        seen += samples.tolist()
        sampler.advance(batch)
    return seen


@pytest.mark.parametrize("workers", [0, 1])
def test_with_drop_last_each_pass_is_an_epoch(workers: int) -> None:
    sampler = ResumableSampler(Numbers(10), 1, 0, shuffle=False)
    loader: DataLoader[Any] = DataLoader(
        Numbers(10), batch_size=4, sampler=sampler, drop_last=True, num_workers=workers
    )

    assert [_loop(loader, sampler, 4) for _ in range(3)] == [list(range(8))] * 3
    assert sampler.epoch == 2


def test_a_rank_with_a_sample_less_begins_the_next_epoch_with_the_others() -> None:
    group = _group(5, 2, shuffle=False, tail="uneven")
    loaders = [DataLoader(Numbers(5), batch_size=1, sampler=sampler) for sampler in group]

    for epoch in range(3):
        passes = [_loop(*pair, 1) for pair in zip(loaders, group, strict=True)]
        assert passes == [[0, 2, 4], [1, 3]]
        assert [sampler.epoch for sampler in group] == [epoch, epoch]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_pass_that_was_left_is_followed_by_the_rest_of_its_epoch(workers: int) -> None:
    """The same without a resume, even if the loader had asked for all samples by then."""
    sampler = ResumableSampler(Numbers(10), 1, 0, shuffle=False)
    loader: DataLoader[Any] = DataLoader(
        Numbers(10), batch_size=2, sampler=sampler, num_workers=workers
    )
    for _ in itertools.islice(loader, 2):
        sampler.advance(2)
    again = ResumableSampler(Numbers(10), 1, 0)
    again.load_state_dict(sampler.state_dict())

    assert list(again) == _loop(loader, sampler, 2) == [4, 5, 6, 7, 8, 9]


def test_an_epoch_that_is_asked_for_again_is_given_again() -> None:
    sampler = ResumableSampler(range(6), 1, 0, seed=3)
    orders = []
    for epoch in (0, 0, 1, 0):
        sampler.set_epoch(epoch)
        orders.append(list(sampler))

    assert orders[0] == orders[1] == orders[3] != orders[2]


def test_passes_that_nobody_counts_are_epochs() -> None:
    sampler = ResumableSampler(range(20), 1, 0, seed=3)

    orders = [tuple(sampler) for _ in range(3)]

    assert len(set(orders)) == 3


# ---------------------------------------------------------------------- its length


@given(
    size=st.integers(0, 60),
    ranks=st.integers(1, 5),
    consumed=st.integers(0, 60),
    tail=st.sampled_from(["repeat", "drop", "uneven"]),
)
def test_the_length_is_that_of_a_whole_epoch_wherever_it_is(
    size: int, ranks: int, consumed: int, tail: Tail
) -> None:
    for sampler in _group(size, ranks, tail=tail):
        state = sampler.state_dict() | {"consumed": min(consumed, size)}
        whole = len(list(sampler))
        sampler.load_state_dict(state)

        assert len(sampler) == whole


def test_a_loop_that_looks_at_the_length_in_each_step_ends_where_it_ends() -> None:
    sampler = ResumableSampler(Numbers(12), 1, 0)
    loader: DataLoader[Any] = DataLoader(Numbers(12), batch_size=2, sampler=sampler)
    ends = []
    for number, _ in enumerate(loader, 1):
        sampler.advance(2)
        if number == len(loader):
            ends.append(number)

    assert ends == [6]


def test_its_length_is_known_without_an_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def order(self: ResumableSampler) -> list[int]:
        raise AssertionError("made an order of ten million")

    monkeypatch.setattr(ResumableSampler, "_order", order)

    assert len(ResumableSampler(range(10_000_000), 4, 1)) == 2_500_000


# ---------------------------------------------------------------------- states that cannot be


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"consumed": -3}, "consumed is -3: must be between 0 and 10"),
        ({"consumed": 11}, "consumed is 11: must be between 0 and 10"),
        ({"consumed": 2.5}, "consumed is 2.5: not a whole number"),
        ({"consumed": True}, "consumed is True: not a whole number"),
        ({"epoch": -1}, "epoch is -1: must be 0 or more"),
        ({"epoch": "1"}, "epoch is '1': not a whole number"),
        ({"seed": None}, "seed is None: not a whole number"),
        ({"shuffle": "no"}, "shuffle is 'no': must be True or False"),
    ],
    ids=str,
)
def test_a_state_that_cannot_be_is_refused_and_changes_nothing(
    changed: dict[str, Any], message: str
) -> None:
    sampler = ResumableSampler(range(10), 1, 0)
    before = sampler.state_dict()

    with pytest.raises(ConfigError) as caught:
        sampler.load_state_dict(before | changed)

    assert message in str(caught.value)
    assert "pass what state_dict() returned" in str(caught.value)
    assert sampler.state_dict() == before


@pytest.mark.parametrize("epoch", [-1, 1.5, "2", None])
def test_an_epoch_is_a_number(epoch: Any) -> None:
    with pytest.raises(ConfigError, match="epochs are counted from 0"):
        ResumableSampler(range(10), 1, 0).set_epoch(epoch)


@pytest.mark.parametrize("left", [1, 2, 4])
def test_whole_batches_that_were_asked_for_and_not_trained_on_come_next(left: int) -> None:
    sampler = ResumableSampler(range(10), 1, 0, shuffle=False)
    list(sampler)  # as a loader's processes ask for all of them early
    for _ in range(5 - left):
        sampler.advance(2)

    assert list(sampler) == list(range(10 - 2 * left, 10))
    assert sampler.epoch == 0


def test_an_epoch_of_numpy_is_saved_as_a_number_that_json_knows() -> None:
    sampler = ResumableSampler(range(10), 1, 0)
    sampler.set_epoch(np.int64(3))  # type: ignore[arg-type]

    assert json.loads(json.dumps(sampler.state_dict()))["epoch"] == 3
