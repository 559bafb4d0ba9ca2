from __future__ import annotations

import pickle
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.train import RunConfig, ScalingConfig
from holdfast.train.backend import BackendConfig
from holdfast.train.torch import TorchConfig, TorchTrainer

RUN = RunConfig(storage_path="/nowhere", name="run")


def test_by_itself_a_config_chooses_the_backend_and_waits_for_half_an_hour() -> None:
    config = TorchConfig()

    assert (config.backend, config.init_method, config.timeout_s) == (None, "env", 1800)
    assert repr(config) == "TorchConfig()"
    assert isinstance(config, BackendConfig)
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"backend": ""}, "backend='': empty"),
        ({"backend": 3}, "backend=3: not a string"),
        ({"init_method": "file"}, "init_method='file': must be 'env' or 'tcp'"),
        ({"timeout_s": 0}, "timeout_s=0: not above 0"),
        ({"timeout_s": -1}, "timeout_s=-1"),
        ({"timeout_s": float("nan")}, "timeout_s=nan"),
        ({"timeout_s": float("inf")}, "timeout_s=inf: must be finite"),
        ({"timeout_s": 1e12}, "longer than torch can count"),
        ({"timeout_s": "1800"}, "timeout_s='1800': not a number of seconds"),
        ({"timeout_s": None}, "timeout_s=None"),
    ],
)
def test_a_config_that_cannot_work_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        TorchConfig(**given)

    assert message in raised.value.message


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        TorchConfig(backend="", init_method="", timeout_s=0)

    assert raised.value.message.count("\n  - ") == 3


def test_nccl_without_gpus_is_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match="needs GPUs"):
        TorchTrainer(print, torch_config=TorchConfig(backend="nccl"), run_config=RUN)

    TorchTrainer(
        print,
        torch_config=TorchConfig(backend="nccl"),
        scaling_config=ScalingConfig(use_gpu=True),
        run_config=RUN,
    )


@pytest.mark.parametrize("config", ["gloo", {"backend": "gloo"}, TorchConfig, BackendConfig()])
def test_something_else_in_place_of_a_config_is_refused(config: Any) -> None:
    with pytest.raises(ConfigError, match="must be a TorchConfig of Holdfast"):
        TorchTrainer(print, torch_config=config, run_config=RUN)
