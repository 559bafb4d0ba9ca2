from __future__ import annotations

import math
from typing import Any

import pytest

from holdfast.api.config import ScalingConfig
from holdfast.errors import ConfigError


def _problems(**named: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        ScalingConfig(**named)
    first, *lines = caught.value.message.split("\n  - ")

    assert first == "ScalingConfig cannot work:"
    return lines


@pytest.mark.parametrize(
    ("num_workers", "elastic", "least", "most"),
    [(1, False, 1, 1), (0, False, 0, 0), ((2, 8), True, 2, 8), ((3, 3), True, 3, 3)],
)
def test_a_pair_of_numbers_makes_a_group_elastic(
    num_workers: int | tuple[int, int], elastic: bool, least: int, most: int
) -> None:
    config = ScalingConfig(num_workers=num_workers)

    assert config.elasticity_enabled is elastic
    assert (config.min_workers, config.max_workers) == (least, most)


@pytest.mark.parametrize(
    ("named", "cpus", "gpus", "tpus", "additional"),
    [
        ({}, 1, 0, 0, {}),
        ({"use_gpu": True}, 0, 1, 0, {}),
        ({"use_tpu": True}, 0, 0, 1, {"TPU": 1}),
        ({"use_gpu": True, "resources_per_worker": {"CPU": 4}}, 4, 1, 0, {}),
        ({"use_gpu": True, "resources_per_worker": {"GPU": 0.5}}, 0, 0.5, 0, {}),
        ({"resources_per_worker": {"CPU": 2, "disk": 3, "x": 0}}, 2, 0, 0, {"disk": 3}),
        ({"resources_per_worker": {}}, 0, 0, 0, {}),
        ({"use_gpu": True, "accelerator_type": "T4"}, 0, 1, 0, {"accelerator_type:T4": 0.001}),
    ],
)
def test_what_a_worker_needs(
    named: dict[str, Any], cpus: float, gpus: float, tpus: float, additional: dict[str, float]
) -> None:
    config = ScalingConfig(**named)

    assert config.num_cpus_per_worker == cpus
    assert config.num_gpus_per_worker == gpus
    assert config.num_tpus_per_worker == tpus
    assert config.additional_resources_per_worker == additional


@pytest.mark.parametrize(
    ("num_workers", "total"), [(3, {"CPU": 6}), ((1, 4), {"CPU": 8}), (0, {"CPU": 0})]
)
def test_all_resources_are_those_of_the_largest_group(
    num_workers: int | tuple[int, int], total: dict[str, float]
) -> None:
    config = ScalingConfig(num_workers=num_workers, resources_per_worker={"CPU": 2})

    assert config.total_resources == total


def test_resources_of_the_trainer_are_taken_and_not_counted() -> None:
    assert ScalingConfig({"CPU": 5}, 2).total_resources == {"CPU": 2}


@pytest.mark.parametrize("selector", [{"zone": "a"}, [{"zone": "a"}, {"zone": "b"}]])
def test_nodes_are_chosen_by_labels_for_all_workers_or_for_each(selector: Any) -> None:
    assert ScalingConfig(num_workers=2, label_selector=selector).label_selector == selector


def test_workers_on_a_slice_of_tpus_name_it() -> None:
    config = ScalingConfig(num_workers=2, use_tpu=True, topology="4x4", accelerator_type="TPU-V6E")

    assert config.num_tpus_per_worker == 1


@pytest.mark.parametrize(
    ("named", "line"),
    [
        ({"trainer_resources": 2}, 'trainer_resources=2: not a dictionary such as {"CPU": 2}, th'),
        ({"num_workers": 0.5}, "num_workers=0.5: not a whole number; it is how many workers ther"),
        ({"num_workers": True}, "num_workers=True: not a whole number, this is bool; it is how m"),
        ({"num_workers": "2"}, "num_workers='2': not a whole number, this is str; it is how many"),
        ({"num_workers": -1}, "num_workers=-1: less than 0; it is how many workers there are, or"),
        ({"num_workers": [1, 2]}, "num_workers=[1, 2]: not a whole number, this is list; it is"),
        ({"num_workers": (1, 2, 3)}, "num_workers=(1, 2, 3): not (min, max), a pair of whole num"),
        ({"num_workers": (1, True)}, "num_workers=(1, True): not (min, max), a pair of whole num"),
        ({"num_workers": (1, 2.5)}, "num_workers=(1, 2.5): not (min, max), a pair of whole numb"),
        ({"num_workers": (0, 2)}, "num_workers=(0, 2): an elastic group has at least one worker"),
        ({"num_workers": (4, 2)}, "num_workers=(4, 2): not (min, max): the first is larger than"),
        ({"use_gpu": "yes"}, "use_gpu='yes': not True or False, this is str"),
        ({"use_gpu": 2}, "use_gpu=2: not True or False"),
        ({"use_tpu": None}, "use_tpu=None: not True or False, this is NoneType"),
        ({"placement_strategy": "pack"}, "placement_strategy='pack': must be 'PACK', 'SPREAD',"),
        ({"accelerator_type": ""}, "accelerator_type='': empty; it names a kind of accelerator"),
        ({"topology": 4}, "topology=4: not a string; it names the shape of a TPU slice"),
        ({"elastic_resize_monitor_interval_s": -1}, "elastic_resize_monitor_interval_s=-1: less"),
        ({"elastic_resize_monitor_interval_s": math.nan}, "elastic_resize_monitor_interval_s=nan"),
        ({"resources_per_worker": 2}, 'resources_per_worker=2: not a dictionary such as {"CPU"'),
        ({"resources_per_worker": {"CPU": -1}}, "resources_per_worker['CPU']=-1: a worker needs"),
        ({"resources_per_worker": {"CPU": True}}, "resources_per_worker['CPU']=True: a worker n"),
        ({"resources_per_worker": {"x": math.inf}}, "resources_per_worker['x']=inf: a worker nee"),
        ({"resources_per_worker": {"gpu": 1}}, "resources_per_worker['gpu']=1: this resource is"),
        ({"resources_per_worker": {3: 1}}, "resources_per_worker[3]=1: the name of a resource is"),
        ({"resources_per_worker": {"GPU": 1}}, "resources_per_worker['GPU']=1: needs use_gpu=Tru"),
        ({"resources_per_worker": {"TPU": 1}}, "resources_per_worker['TPU']=1: needs use_tpu=Tru"),
        (
            {"use_gpu": True, "resources_per_worker": {"GPU": 0}},
            "resources_per_worker['GPU']=0: with use_gpu=True a worker needs some of it",
        ),
        ({"use_gpu": True, "use_tpu": True}, "use_gpu=True: not together with use_tpu=True; a"),
        ({"label_selector": "zone=a"}, "label_selector='zone=a': not a dictionary of strings, nor"),
        (
            {"label_selector": {"zone": 1}},
            "label_selector={'zone': 1}: not a dictionary of strings",
        ),
        ({"label_selector": [{}], "num_workers": (1, 3)}, "label_selector=[{}]: 1 for 3 workers;"),
        (
            {"use_tpu": True, "num_workers": 2, "topology": "4x4"},
            "accelerator_type=None: must be given for more than one worker with use_tpu=True",
        ),
        (
            {"use_tpu": True, "num_workers": (1, 2), "accelerator_type": "TPU-V6E"},
            "topology=None: must be given for more than one worker with use_tpu=True",
        ),
    ],
)
def test_a_value_that_cannot_work_is_named_with_its_rule(named: dict[str, Any], line: str) -> None:
    [problem] = _problems(**named)

    assert problem.startswith(line)


def test_all_problems_are_told_at_once() -> None:
    problems = _problems(
        num_workers=0.5,
        use_gpu="yes",
        resources_per_worker={"CPU": -1, "gpu": 1},
        placement_strategy="near",
        elastic_resize_monitor_interval_s=-3,
    )

    assert [line.split(":")[0] for line in problems] == [
        "num_workers=0.5",
        "use_gpu='yes'",
        "resources_per_worker['CPU']=-1",
        "resources_per_worker['gpu']=1",
        "placement_strategy='near'",
        "elastic_resize_monitor_interval_s=-3",
    ]
