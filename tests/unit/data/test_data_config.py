from __future__ import annotations

from typing import Any

import pytest

from holdfast import data
from holdfast.data import DataConfig
from holdfast.data.config import evaluated, shards
from holdfast.data.iterator import DataIterator
from holdfast.errors import ConfigError, HoldfastBug


def rows(iterator: DataIterator) -> list[int]:
    return [row["id"] for row in iterator.iter_rows()]


def test_every_dataset_is_split_unless_told_otherwise() -> None:
    datasets = {"train": data.range(5), "valid": data.range(3)}

    for config in (None, DataConfig(), DataConfig("all")):
        parts = shards(datasets, config, world_size=2, rank=1)

        assert {name: rows(part) for name, part in parts.items()} == {"train": [1, 3], "valid": [1]}


def test_a_dataset_that_is_not_split_is_whole_on_every_rank() -> None:
    datasets = {"train": data.range(5), "valid": data.range(3)}
    config = DataConfig(datasets_to_split=["train"])

    parts = shards(datasets, config, world_size=2, rank=1)

    assert {name: rows(part) for name, part in parts.items()} == {
        "train": [1, 3],
        "valid": [0, 1, 2],
    }


def test_a_function_is_called_anew_for_each_attempt_and_once_for_all_ranks() -> None:
    calls = []

    def make() -> data.Dataset:
        calls.append(1)
        return data.range(40).random_shuffle()

    first, second = evaluated({"train": make}), evaluated({"train": make})

    assert len(calls) == 2
    dealt = [rows(shards(first, None, 2, rank)["train"]) for rank in range(2)]
    assert sorted(dealt[0] + dealt[1]) == list(range(40))
    assert rows(shards(second, None, 2, 0)["train"]) != dealt[0]


def test_no_rank_evaluates_a_dataset_for_itself() -> None:
    with pytest.raises(HoldfastBug, match=r"datasets\['train'\] must be evaluated first"):
        shards({"train": lambda: data.range(3)}, None, 2, 0)  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([1, 2], r"datasets\['train'\] is builtins.list: it must be a Dataset of holdfast.data"),
        (lambda: 5, r"datasets\['train'\] was made as builtins.int"),
        (None, r"datasets\['train'\] is builtins.NoneType"),
    ],
    ids=["list", "function", "none"],
)
def test_what_is_no_dataset_is_told(given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        evaluated({"train": given})


def test_datasets_have_names() -> None:
    with pytest.raises(ConfigError, match="must be a dict of names and datasets"):
        evaluated([data.range(3)])  # type: ignore[arg-type]


def test_a_split_of_a_dataset_that_is_not_there_is_told() -> None:
    with pytest.raises(ConfigError, match="names 'trian': the datasets are 'train', 'valid'"):
        evaluated({"train": data.range(3), "valid": data.range(3)}, DataConfig(["trian"]))


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"datasets_to_split": "train"}, r"must be 'all' or a list of names.*\n.*\['train'\]"),
        ({"datasets_to_split": 3}, "datasets_to_split=3: must be 'all' or a list of names"),
        ({"datasets_to_split": [3]}, r"datasets_to_split=\[3\]: must be 'all' or a list"),
        ({"enable_shard_locality": "no"}, "enable_shard_locality='no': must be True or False"),
    ],
    ids=str,
)
def test_a_config_is_checked_when_it_is_built(arguments: dict[str, Any], rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        DataConfig(**arguments)


def test_options_of_ray_data_are_taken() -> None:
    config = DataConfig(["a"], execution_options=object(), enable_shard_locality=False)

    assert config.splits("a") and not config.splits("b")
