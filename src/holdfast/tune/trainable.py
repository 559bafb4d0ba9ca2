"""Trainables as classes: a trial that is advanced step by step, saved and restored by its methods.

The names that Ray had before 0.8.7 (`_setup`, `_train`, `_save`, `_restore`, `_stop`,
`_log_result`, `_export_model`) are understood where a class has those and not the present ones.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.checkpoint import Checkpoint
from holdfast.core.names import shown
from holdfast.errors import ConfigError
from holdfast.tune.trainables.class_checkpoints import (
    COUNTERS,
    counters_of,
    folder_of,
    load,
    packed,
    store,
    unpack,
)
from holdfast.tune.trainables.result_fields import Filling
from holdfast.worker.context import current


@dataclass(frozen=True)
class Beginning:
    """What a trainable that is made in a trial must know before its own code is called.

    Attributes:
        kind: Its class.
        told: What the process was told of its trial.
        iteration: How many results count already.
        parameters: What `with_parameters` adds to the arguments of `setup`.
    """

    kind: type[Trainable]
    config: dict[str, Any] = field(default_factory=dict)
    told: Mapping[str, Any] = field(default_factory=dict)
    iteration: int = 0
    parameters: Mapping[str, Any] = field(default_factory=dict)


class Trainable:
    """What a study trains: subclass it, with `setup`, `step`, `save_checkpoint`, `load_checkpoint`.

    A method is called in the main thread of the trial's own process. `setup` is called once for
    each process, with a config that is its own. A class that has an `__init__` of its own takes
    `config`, and `logger_creator` and `storage` or not, and passes them on to this one, which calls
    `setup`.

    Args:
        config: None for what the trial has, or, outside a trial, for {}.
        logger_creator: As in Ray; not used.
        storage: As in Ray; not used.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        logger_creator: Any = None,
        storage: Any = None,
        **older: Any,
    ) -> None:
        del logger_creator, storage, older
        if _being_made and _being_made[0].kind is type(self):
            beginning = _being_made.pop()
        else:
            beginning = Beginning(type(self))  # outside a trial, or made by the trial's own code
        self.config: dict[str, Any] = beginning.config if config is None else dict(config)
        self._told = beginning.told
        self._local_folder: str | None = None
        self._filling = Filling(self.config, self._told, beginning.iteration, time.monotonic)
        self._prepare(beginning.parameters)

    # ------------------------------------------------------------------ to be written by users

    def setup(self, config: dict[str, Any]) -> None:
        """Prepare for the first step; those of `tune.with_parameters` are arguments besides."""
        self._setup(config)

    def step(self) -> dict[str, Any]:
        """Do one step and return its result."""
        older = self._older_method("_train")
        if older is None:
            raise NotImplementedError(f"{type(self).__name__} has no method step()")
        result: dict[str, Any] = older()
        return result

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any] | str | None:
        """Write the state to a folder, or return it as a dictionary."""
        older = self._older_method("_save")
        if older is None:
            raise NotImplementedError(f"{type(self).__name__} has no method save_checkpoint()")
        saved: dict[str, Any] | str | None = older(checkpoint_dir)
        return saved

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Become what was saved: gets the folder, or the dictionary that was returned."""
        older = self._older_method("_restore")
        if older is None:
            raise NotImplementedError(
                f"{type(self).__name__} has no method load_checkpoint(), and cannot go on from its"
                " checkpoint: write it as the counterpart of save_checkpoint"
            )
        older(checkpoint)

    def cleanup(self) -> None:
        """Let go of everything; the process is about to end, or to do something else."""
        self._stop()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Become another trial in the same process; return whether that was done."""
        del new_config
        return False

    def log_result(self, result: dict[str, Any]) -> None:
        """Look at a result before it is passed on."""
        self._log_result(result)

    def _setup(self, config: dict[str, Any]) -> None:
        """Prepare for the first step, by the name of before 0.8.7; so are the next two."""

    def _stop(self) -> None:
        """Let go of everything."""

    def _log_result(self, result: dict[str, Any]) -> None:
        """Look at a result before it is passed on."""

    def _export_model(self, formats: Sequence[str], directory: str) -> dict[str, str]:
        del formats, directory
        raise NotImplementedError(f"{type(self).__name__} has no method _export_model()")

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> Any:
        """Return what a trial with this config needs, None for one CPU."""
        del config

    @classmethod
    def resource_help(cls, config: dict[str, Any]) -> str:
        """Return a text for the user whose request cannot be met."""
        del config
        return ""

    # ------------------------------------------------------------------ for whoever drives it

    def train(self) -> dict[str, Any]:
        """Do one step and return its result with all that is known of it besides."""
        result = self.step()
        if not isinstance(result, Mapping):
            is_older = type(self).step is Trainable.step
            method = "_train" if is_older else "step"
            raise ConfigError(
                f"{type(self).__name__}.{method}() returned {shown(result)}, not a dictionary",
                hint="return the metrics of the step: {'loss': loss}",
            )
        filled = self._filling.fill(dict(result))
        self.log_result(filled)
        return filled

    def save(self, checkpoint_dir: str | None = None) -> Checkpoint:
        """Save to a folder, a new one if none is given, and return it as a checkpoint."""
        folder = checkpoint_dir or tempfile.mkdtemp(prefix="holdfast-trainable-")
        os.makedirs(folder, exist_ok=True)
        try:
            store(folder, self.save_checkpoint(folder), type(self).__name__)
            with open(os.path.join(folder, COUNTERS), "w", encoding="utf-8") as file:
                json.dump(self._filling.counters(), file)
        except BaseException:
            if checkpoint_dir is None:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        return Checkpoint.from_directory(folder)

    def restore(self, checkpoint: Checkpoint | str | os.PathLike[str]) -> None:
        """Become what was saved in a checkpoint, or in a folder, counters of steps included.

        In a trial that has come some way already, its study says how far.
        """
        if not isinstance(checkpoint, Checkpoint):
            checkpoint = Checkpoint.from_directory(folder_of(checkpoint))
        if not self._told.get("before"):
            self._filling.restore(counters_of(checkpoint))
        with checkpoint.as_directory() as folder:
            self.load_checkpoint(load(folder))

    def train_buffered(
        self, buffer_time_s: float, max_buffer_length: int = 1000
    ) -> list[dict[str, Any]]:
        """Do steps for some time, one at least, and return their results.

        It ends sooner with a step that is done, or that is to be saved.
        """
        results, ends = [self.train()], time.monotonic() + buffer_time_s
        while len(results) < max_buffer_length and time.monotonic() < ends:
            if results[-1]["done"] or results[-1].get("should_checkpoint"):
                break
            results.append(self.train())
        return results

    def save_to_object(self) -> bytes:
        """Return all that a checkpoint would have in it."""
        with tempfile.TemporaryDirectory(prefix="holdfast-trainable-") as folder:
            self.save(folder)
            return packed(folder)

    def restore_from_object(self, obj: bytes) -> None:
        """Become what `save_to_object` has returned."""
        with tempfile.TemporaryDirectory(prefix="holdfast-trainable-") as folder:
            unpack(obj, folder)
            self.restore(folder)

    def delete_checkpoint(self, checkpoint_dir: Checkpoint | str | os.PathLike[str]) -> None:
        """Remove what was saved to a folder of this machine; if it is gone, nothing happens."""
        given = checkpoint_dir
        with contextlib.suppress(ConfigError):
            shutil.rmtree(folder_of(given.path if isinstance(given, Checkpoint) else given))

    def reset(
        self, new_config: dict[str, Any], logger_creator: Any = None, storage: Any = None
    ) -> bool:
        """Become another trial in the same process; return whether that was done."""
        del logger_creator, storage  # as in Ray; not used
        if not self.reset_config(new_config):
            return False
        self.config = new_config
        self._filling = Filling(new_config)
        return True

    def stop(self) -> None:
        """Let go of everything."""
        self.cleanup()
        if self._local_folder is not None:
            shutil.rmtree(self._local_folder, ignore_errors=True)
            self._local_folder = None

    def export_model(
        self, export_formats: str | Sequence[str], export_dir: str | None = None
    ) -> dict[str, str]:
        """Write the model in some formats, by names that the class knows; return where each is."""
        formats = [export_formats] if isinstance(export_formats, str) else list(export_formats)
        return self._export_model(formats, export_dir or self.logdir)

    # ------------------------------------------------------------------ what it knows of itself

    @property
    def logdir(self) -> str:
        """The trial's own folder, where what is written is kept.

        Outside a trial, and if the study is not on a disk, a folder that goes with the process.
        """
        context = current()
        if self._told and context is not None and context.store.local is not None:
            os.makedirs(folder := context.store.local.root, exist_ok=True)
            return folder
        if self._local_folder is None:
            self._local_folder = tempfile.mkdtemp(prefix="holdfast-trial-")
        return self._local_folder

    @property
    def iteration(self) -> int:
        """How many steps were done."""
        return self._filling.iteration

    @property
    def training_iteration(self) -> int:
        """How many steps were done."""
        return self._filling.iteration

    @property
    def trial_id(self) -> str:
        return str(self._told.get("trial_id", "default"))

    @property
    def trial_name(self) -> str:
        return str(self._told.get("trial_name", "default"))

    @property
    def trial_resources(self) -> Any:
        """What the trial has reserved: a mapping for each process."""
        return self._told.get("resources")

    def get_config(self) -> dict[str, Any]:
        """Return the config of the trial."""
        return self.config

    def _prepare(self, parameters: Mapping[str, Any]) -> None:
        """Call `setup`, with a config that it may change."""
        is_older = type(self).setup is Trainable.setup
        prepare: Callable[..., None] = self._setup if is_older else self.setup
        prepare(copy.deepcopy(self.config), **parameters)

    def _become(self, config: dict[str, Any], told: Mapping[str, Any], iteration: int) -> bool:
        """Take up another trial in the same process; return whether that was done."""
        if not self.reset_config(config):
            return False
        self.config, self._told = config, told
        self._filling = Filling(config, told, iteration, time.monotonic)
        return True

    def _older_method(self, name: str) -> Callable[..., Any] | None:
        """Return a method by its older name, if the class has it."""
        method: Callable[..., Any] | None = getattr(self, name, None)
        return method


_being_made: list[Beginning] = []


def make(beginning: Beginning) -> Trainable:
    """Return an object for a trial; its `__init__` is given what it takes."""
    kind = beginning.kind
    arguments = arguments_of(kind, beginning.config)
    _being_made[:] = [beginning]
    try:
        made = kind(*arguments.args, **arguments.kwargs)
        is_begun = not _being_made
    finally:
        _being_made.clear()
    if not is_begun:
        raise ConfigError(
            f"{kind.__name__}.__init__() has not called that of tune.Trainable",
            hint="super().__init__(config) in it, or setup(self, config) instead of it",
        )
    return made


def arguments_of(trainable: type[Trainable], config: dict[str, Any]) -> inspect.BoundArguments:
    """Return what a class is made with in a trial: its config, and None for what Ray gives besides.

    Raises a `ConfigError` if its `__init__` wants what nobody gives.
    """
    signature = inspect.signature(trainable)
    wanted = signature.parameters
    takes_all = any(one.kind is one.VAR_KEYWORD for one in wanted.values())
    given: dict[str, Any] = {
        name: None
        for name in ("logger_creator", "storage")
        if name in wanted and wanted[name].kind is not inspect.Parameter.POSITIONAL_ONLY
    }
    try:
        if "config" in wanted or takes_all:
            return signature.bind(config=config, **given)
        return signature.bind(config, **given)
    except TypeError as error:
        raise ConfigError(
            f"{trainable.__name__} cannot be made with its config alone: {error}",
            hint="def __init__(self, config=None, logger_creator=None, **more), which passes all of"
            " it to super().__init__(); tune.with_parameters gives more to setup",
        ) from None


def can_save(trainable: type[Trainable]) -> bool:
    """Whether a class has what it takes to save itself."""
    return trainable.save_checkpoint is not Trainable.save_checkpoint or hasattr(trainable, "_save")


def can_load(trainable: type[Trainable]) -> bool:
    """Whether a class has what it takes to go on from what was saved."""
    is_new = trainable.load_checkpoint is not Trainable.load_checkpoint
    return is_new or hasattr(trainable, "_restore")
