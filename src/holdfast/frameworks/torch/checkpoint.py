"""`TorchCheckpoint`, deprecated: a checkpoint that holds one model."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from holdfast.api.checks import this_is
from holdfast.api.deprecated import warn_deprecated
from holdfast.checkpoint import Checkpoint
from holdfast.core.names import shown
from holdfast.errors import ConfigError


class TorchCheckpoint(Checkpoint):
    """A checkpoint that holds one model, in one file.

    Deprecated: write to a folder with `torch.save` and use `Checkpoint.from_directory`.
    """

    MODEL_FILENAME = "model.pt"

    @classmethod
    def from_state_dict(
        cls, state_dict: Mapping[str, Any], *, preprocessor: object = None
    ) -> TorchCheckpoint:
        """Return a checkpoint of a model's state, in a temporary folder that is deleted with it."""
        if not isinstance(state_dict, Mapping):
            raise ConfigError(
                f"state_dict={shown(state_dict)} is not a dictionary, {this_is(state_dict)}",
                hint="pass model.state_dict()",
            )
        return cls._saved(dict(state_dict), preprocessor)

    @classmethod
    def from_model(cls, model: nn.Module, *, preprocessor: object = None) -> TorchCheckpoint:
        """Return a checkpoint of a whole model, in a temporary folder that is deleted with it.

        The model is pickled: load it only if you trust the file, and where its class is importable.
        """
        if not isinstance(model, nn.Module):
            raise ConfigError(
                f"model={shown(model)} is not a torch.nn.Module, {this_is(model)}",
                hint="TorchCheckpoint.from_state_dict takes a state",
            )
        return cls._saved(model, preprocessor)

    @classmethod
    def _saved(cls, content: object, preprocessor: object) -> TorchCheckpoint:
        warn_deprecated(
            "TorchCheckpoint is deprecated; save with torch.save to a folder and use"
            " Checkpoint.from_directory(folder)"
        )
        if preprocessor is not None:
            raise ConfigError(
                f"preprocessor={shown(preprocessor)}: a checkpoint holds files, not objects",
                hint="save it in a file of the checkpoint, or in its metadata",
            )
        folder = tempfile.mkdtemp(prefix="holdfast-model-")
        try:
            torch.save(content, os.path.join(folder, cls.MODEL_FILENAME))
        except BaseException:
            shutil.rmtree(folder)
            raise
        checkpoint = cls(folder)
        weakref.finalize(checkpoint, shutil.rmtree, folder, ignore_errors=True)
        return checkpoint

    def get_model(self, model: nn.Module | None = None) -> nn.Module:
        """Return the model that was saved; if it was a state, it is loaded into `model`.

        Loading a whole model runs code from its file: do not open one that you do not trust.
        """
        with self.as_directory() as folder:
            path = os.path.join(folder, self.MODEL_FILENAME)
            if not os.path.isfile(path):
                raise ConfigError(
                    f"{self.path} holds no {self.MODEL_FILENAME}",
                    hint="it was not saved by TorchCheckpoint; read its files with torch.load",
                )
            loaded = torch.load(path, map_location="cpu", weights_only=False)
        if isinstance(loaded, nn.Module):
            return loaded
        if model is None:
            raise ConfigError(
                f"{self.path} holds the state of a model, and no model to load it into was given",
                hint="checkpoint.get_model(Net())",
            )
        model.load_state_dict(_without_wrapper(loaded, model))
        return model


def _without_wrapper(state: Mapping[str, Any], model: nn.Module) -> Mapping[str, Any]:
    """Return a state without the prefix that DistributedDataParallel puts before names."""
    if all(name.startswith("module.") for name in state) and not hasattr(model, "module"):
        return {name.removeprefix("module."): value for name, value in state.items()}
    return state
