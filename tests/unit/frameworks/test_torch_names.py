"""The import paths of the names for torch, and what importing them costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import holdfast.train
import holdfast.train.torch
from holdfast.frameworks import torch as home


def _prints(program: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_every_name_is_the_one_of_the_framework_package() -> None:
    names = vars(home)["__all__"]
    assert vars(holdfast.train.torch)["__all__"] == names
    for name in names:
        assert getattr(holdfast.train.torch, name) is getattr(home, name)
        assert name in dir(holdfast.train.torch)
        assert name in dir(home)


@pytest.mark.parametrize("module", [holdfast.train.torch, home])
def test_an_unknown_name_is_an_attribute_error(module: object) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'no_such_thing'"):
        getattr(module, "no_such_thing")  # noqa: B009  # mypy knows that it is not there


def test_torch_is_loaded_by_what_needs_it_and_not_by_the_trainer() -> None:
    program = """
import sys
import holdfast as ray
import holdfast.train
print("torch" in sys.modules)
import holdfast.train.torch
from holdfast.train.torch import TorchConfig, TorchTrainer
trainer = ray.train.torch.TorchTrainer(
    print, torch_config=TorchConfig(), run_config=ray.train.RunConfig(storage_path="/nowhere"))
trainer.backend_config.setups()
print("torch" in sys.modules)
ray.train.torch.get_device
print("torch" in sys.modules)
"""
    assert _prints(program) == ["False", "False", "True"]
