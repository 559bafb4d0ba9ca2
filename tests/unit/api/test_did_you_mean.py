"""The error for a misspelt argument suggests the one probably meant."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from holdfast import air, train, tune
from holdfast.api.did_you_mean import UnknownArgument
from holdfast.train.torch import TorchTrainer

MISSPELT = [
    (train.RunConfig, "nmae", "name"),
    (air.RunConfig, "nam", "name"),
    (tune.TuneConfig, "num_sample", "num_samples"),
    (train.ScalingConfig, "num_worker", "num_workers"),
    (train.FailureConfig, "max_failure", "max_failures"),
    (train.CheckpointConfig, "num_keep", "num_to_keep"),
    (tune.Tuner, "param_spaces", "param_space"),
    (train.DataParallelTrainer, "scaling_conf", "scaling_config"),
    (TorchTrainer, "torchconfig", "torch_config"),
]


@pytest.mark.parametrize(("kind", "wrong", "right"), MISSPELT)
def test_a_misspelt_argument_is_told_with_the_right_one(
    kind: type[Any], wrong: str, right: str
) -> None:
    with pytest.raises(TypeError) as caught:
        kind(**{wrong: 3})

    assert isinstance(caught.value, UnknownArgument)
    assert caught.value.message == f"{kind.__name__}({wrong}=…): there is no such argument"
    assert caught.value.hint == f"{right}=…, if that was meant"
    assert right in inspect.signature(kind).parameters


def test_an_argument_like_none_there_is_told_with_all_there_are() -> None:
    with pytest.raises(TypeError, match=r"one of log_level"):
        train.LoggingConfig(zzz=1)  # type: ignore[call-arg]
