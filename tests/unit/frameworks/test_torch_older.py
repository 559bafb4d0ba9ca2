"""Deprecated functions work, and their warnings name the replacement."""

from __future__ import annotations

import copy
import gc
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from holdfast.errors import ConfigError
from holdfast.frameworks.torch import older
from holdfast.train import Checkpoint
from holdfast.train.torch import (
    TorchCheckpoint,
    accelerate,
    backward,
    prepare_model,
    prepare_optimizer,
)

DEPRECATED = "is deprecated"


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    with pytest.warns(DeprecationWarning, match="accelerate is deprecated"):
        accelerate(amp=False)


# ---------------------------------------------------------------------- mixed precision


def _step(model: nn.Module, optimizer: torch.optim.Optimizer) -> torch.Tensor:
    output = model(torch.ones(2, 3))
    assert isinstance(output, torch.Tensor)
    with pytest.warns(DeprecationWarning, match="use loss.backward"):
        backward(output.float().sum())
    optimizer.step()
    return output


@pytest.mark.parametrize(("amp", "kind"), [(False, torch.float32), (True, torch.bfloat16)])
def test_training_as_in_older_scripts_works(amp: bool, kind: torch.dtype) -> None:
    with pytest.warns(DeprecationWarning, match=r"use torch\.autocast"):
        accelerate(amp=amp)
    model = prepare_model(nn.Linear(3, 2))
    before = model.weight.clone()  # type: ignore[operator]
    with pytest.warns(DeprecationWarning, match="prepare_optimizer is deprecated"):
        optimizer = prepare_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))

    output = _step(model, optimizer)

    assert output.dtype == kind
    assert not torch.equal(model.weight, before)  # type: ignore[arg-type]
    assert model.weight.dtype == torch.float32


def test_a_model_with_mixed_precision_can_be_saved_and_copied() -> None:
    with pytest.warns(DeprecationWarning, match=DEPRECATED):
        accelerate(amp=True)
    model = prepare_model(nn.Linear(3, 2))

    for copied in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert copied(torch.ones(1, 3)).dtype == torch.bfloat16
        assert list(copied.state_dict()) == ["weight", "bias"]


def test_scaled_losses_lead_to_the_steps_that_others_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a GPU, with a scaler that this machine can run."""
    models = [nn.Linear(3, 2), nn.Linear(3, 2)]
    models[1].load_state_dict(models[0].state_dict())
    for model, scaler in zip(models, (None, torch.amp.GradScaler("cpu")), strict=True):
        monkeypatch.setattr(older._precision, "scaler", scaler)  # noqa: SLF001  # as on a GPU
        with pytest.warns(DeprecationWarning, match=DEPRECATED):
            optimizer = prepare_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        for _ in range(3):
            optimizer.zero_grad()
            _step(model, optimizer)
            schedule.step()
        assert schedule.get_last_lr() == [0.1 * 0.5**3]

    assert torch.allclose(models[0].weight, models[1].weight)


# ---------------------------------------------------------------------- checkpoints


def test_a_model_comes_back_whole() -> None:
    model = nn.Linear(3, 2)
    with pytest.warns(DeprecationWarning, match="TorchCheckpoint is deprecated"):
        checkpoint = TorchCheckpoint.from_model(model)

    assert isinstance(checkpoint, Checkpoint)
    again = checkpoint.get_model()
    assert isinstance(again, nn.Linear)
    assert torch.equal(again.weight, model.weight)


@pytest.mark.parametrize("prefix", ["", "module."])
def test_a_state_is_loaded_into_a_model_also_from_within_a_wrapper(prefix: str) -> None:
    model = nn.Linear(3, 2)
    state = {f"{prefix}{name}": value for name, value in model.state_dict().items()}
    with pytest.warns(DeprecationWarning, match=DEPRECATED):
        checkpoint = TorchCheckpoint.from_state_dict(state)

    again = checkpoint.get_model(nn.Linear(3, 2))
    assert torch.equal(again.weight, model.weight)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no model to load it into"):
        checkpoint.get_model()


def test_a_folder_with_a_model_is_opened_by_its_path(tmp_path: Path) -> None:
    torch.save(nn.Linear(3, 2).state_dict(), tmp_path / "model.pt")

    TorchCheckpoint(str(tmp_path)).get_model(nn.Linear(3, 2))


def test_a_folder_without_a_model_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"holds no model\.pt"):
        TorchCheckpoint.from_directory(tmp_path).get_model()


def test_the_folder_of_a_checkpoint_goes_with_it() -> None:
    with pytest.warns(DeprecationWarning, match=DEPRECATED):
        checkpoint = TorchCheckpoint.from_state_dict({})
    folder = checkpoint.path
    assert os.listdir(folder) == ["model.pt"]
    copied = pickle.loads(pickle.dumps(checkpoint))
    assert copied.path == folder

    del copied
    gc.collect()
    assert os.path.isdir(folder), "it went with a copy"

    del checkpoint
    gc.collect()
    assert not os.path.exists(folder)


class Unpicklable(nn.Module):
    def __reduce__(self) -> Any:
        raise TypeError("not me")


def test_a_model_that_cannot_be_saved_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    with (
        pytest.warns(DeprecationWarning, match=DEPRECATED),
        pytest.raises(TypeError, match="not me"),
    ):
        TorchCheckpoint.from_model(Unpicklable())

    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("model", [None, {}, nn.Linear])
def test_only_a_model_is_saved_as_one(model: Any) -> None:
    with pytest.raises(ConfigError, match=r"is not a torch\.nn\.Module"):
        TorchCheckpoint.from_model(model)


def test_only_a_dictionary_is_saved_as_a_state() -> None:
    with pytest.raises(ConfigError, match="is not a dictionary"):
        TorchCheckpoint.from_state_dict(nn.Linear(1, 1))  # type: ignore[arg-type]


def test_an_object_beside_the_model_is_refused() -> None:
    with (
        pytest.warns(DeprecationWarning, match=DEPRECATED),
        pytest.raises(ConfigError, match="holds files, not objects"),
    ):
        TorchCheckpoint.from_state_dict({}, preprocessor=object())
