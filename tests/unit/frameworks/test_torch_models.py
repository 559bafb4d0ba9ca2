from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from holdfast.errors import ConfigError
from holdfast.frameworks.torch.devices import indices
from holdfast.train.torch import get_device, get_devices, prepare_model
from tests.unit.frameworks.conftest import Ranks


def test_outside_a_training_function_a_model_is_moved_and_nothing_else() -> None:
    model = nn.Linear(2, 2)

    assert prepare_model(model) is model
    assert get_devices() == [get_device()]
    assert model.weight.device.type == get_device().type


@pytest.mark.parametrize("device", ["meta", torch.device("meta")], ids=["text", "device"])
def test_a_model_goes_to_the_device_it_is_told(device: str | torch.device) -> None:
    model = prepare_model(nn.Linear(2, 2), move_to_device=device)

    assert next(model.parameters()).device.type == "meta"


def test_a_model_that_is_not_to_move_stays_where_it_is() -> None:
    model = prepare_model(nn.Linear(2, 2, device="meta"), move_to_device=False)

    assert next(model.parameters()).device.type == "meta"


def test_among_ranks_a_model_is_wrapped_with_what_the_user_adds(be_rank: Ranks) -> None:
    be_rank(0, 2)

    model = prepare_model(
        nn.Linear(2, 2), parallel_strategy_kwargs={"gradient_as_bucket_view": True}
    )

    assert isinstance(model, DistributedDataParallel)
    assert model.gradient_as_bucket_view is True


def test_among_ranks_a_model_is_left_alone_if_no_strategy_is_wanted(be_rank: Ranks) -> None:
    be_rank(0, 2)
    model = nn.Linear(2, 2)

    assert prepare_model(model, parallel_strategy=None) is model


def test_sharding_without_a_gpu_is_refused(be_rank: Ranks) -> None:
    be_rank(0, 2)

    with pytest.raises(ConfigError, match="shards models on GPUs only"):
        prepare_model(nn.Linear(2, 2), parallel_strategy="fsdp")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": nn.Linear}, "is not a torch.nn.Module, this is the class Linear itself"),
        ({"model": None}, "model=None is not a torch.nn.Module"),
        ({"model": nn.Linear(1, 1), "parallel_strategy": "dpp"}, "parallel_strategy='dpp'"),
    ],
)
def test_what_cannot_be_prepared_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        prepare_model(**given)

    assert message in raised.value.message


def test_a_worker_that_sees_only_its_own_gpus_counts_them_from_zero() -> None:
    assert indices(("2", "3"), 2, rank=1) == [0, 1]
    assert indices(("GPU-8f2c",), 1, rank=1) == [0]


def test_a_worker_that_sees_all_gpus_of_its_node_takes_its_own() -> None:
    assert indices(("2", "3"), 4, rank=1) == [2, 3]


@pytest.mark.parametrize(
    ("gpus", "visible"), [(("0",), 0), (("3",), 2), (("GPU-8f2c",), 2), ((), 1)]
)
def test_a_worker_whose_gpus_torch_does_not_see_says_so(
    gpus: tuple[str, ...], visible: int
) -> None:
    with pytest.raises(ConfigError, match=f"rank 1 was given .* torch sees {visible} of them"):
        indices(gpus, visible, rank=1)
