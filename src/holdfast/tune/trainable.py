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
from holdfast.tune.trainables.result_fields import ResultFields
from holdfast.worker.context import current
from holdfast.worker.job import TrialJob

_BEGINNING = "_beginning"  # where a trainable finds how it begins


@dataclass(frozen=True)
class Beginning:
    """What a trainable that is made in a trial needs before its own code is called.

    Attributes:
        kind: Its class.
        trial: The trial, None outside one.
        iteration: How many results count already.
        parameters: What `with_parameters` adds to the arguments of `setup`.
    """

    kind: type[Trainable]
    config: dict[str, Any] = field(default_factory=dict)
    trial: TrialJob | None = None
    iteration: int = 0
    parameters: Mapping[str, Any] = field(default_factory=dict)


class Trainable:
    """What a study trains: subclass it, with `setup`, `step`, `save_checkpoint`, `load_checkpoint`.

    Methods are called in the main thread of the trial's own process. `setup` is called once per
    process, with its own copy of the config. A class with its own `__init__` takes `config`, and
    optionally `logger_creator` and `storage`, and passes them on to this one, which calls `setup`.

    Args:
        config: None for the trial's config or, outside a trial, for {}.
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
        # Outside a trial, or if the trial's own code makes it, there is none.
        beginning: Beginning = vars(self).pop(_BEGINNING, None) or Beginning(type(self))
        self.config: dict[str, Any] = beginning.config if config is None else dict(config)
        self._trial = beginning.trial
        self._local_folder: str | None = None
        self._fields = ResultFields(self.config, self._trial, beginning.iteration, time.monotonic)
        self._prepare(beginning.parameters)

    # ------------------------------------------------------------------ to be written by users

    def setup(self, config: dict[str, Any]) -> None:
        """Prepare for the first step; `tune.with_parameters` adds arguments."""
        self._setup(config)

    def step(self) -> dict[str, Any]:
        """Do one step and return its result."""
        result: dict[str, Any] = self._older_method("_train", "step()")()
        return result

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any] | str | None:
        """Write the state to a folder, or return it as a dictionary."""
        save = self._older_method("_save", "save_checkpoint()")
        state: dict[str, Any] | str | None = save(checkpoint_dir)
        return state

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Load a saved state: gets the folder, or the dictionary that was returned."""
        restore = self._older_method(
            "_restore",
            "load_checkpoint(), and cannot resume from its checkpoint: write it as the counterpart"
            " of save_checkpoint",
        )
        restore(checkpoint)

    def cleanup(self) -> None:
        """Release all resources: the process ends, or runs another trial."""
        self._stop()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take over another trial in the same process; return whether that was done."""
        del new_config
        return False

    def log_result(self, result: dict[str, Any]) -> None:
        """Inspect a result before it is passed on."""
        self._log_result(result)

    def _setup(self, config: dict[str, Any]) -> None:
        """`setup` by its name before Ray 0.8.7, as the next two."""

    def _stop(self) -> None:
        """Release all resources."""

    def _log_result(self, result: dict[str, Any]) -> None:
        """Inspect a result before it is passed on."""

    def _export_model(self, formats: Sequence[str], directory: str) -> dict[str, str]:
        del formats, directory
        raise NotImplementedError(f"{type(self).__name__} has no method _export_model()")

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> Any:
        """Return the resources of a trial with this config, None for one CPU."""
        del config

    @classmethod
    def resource_help(cls, config: dict[str, Any]) -> str:
        """Return a text for users whose request cannot be met."""
        del config
        return ""

    # ------------------------------------------------------------------ to be called

    def train(self) -> dict[str, Any]:
        """Do one step and return its result, with the automatic metrics."""
        result = self.step()
        if not isinstance(result, Mapping):
            is_older = type(self).step is Trainable.step
            method = "_train" if is_older else "step"
            raise ConfigError(
                f"{type(self).__name__}.{method}() returned {shown(result)}, not a dictionary",
                hint="return the metrics of the step: {'loss': loss}",
            )
        filled = self._fields.fill(dict(result))
        self.log_result(filled)
        return filled

    def save(self, checkpoint_dir: str | None = None) -> Checkpoint:
        """Save to a folder, by default a new one, and return it as a checkpoint."""
        folder = checkpoint_dir or tempfile.mkdtemp(prefix="holdfast-trainable-")
        os.makedirs(folder, exist_ok=True)
        try:
            store(folder, self.save_checkpoint(folder), type(self).__name__)
            with open(os.path.join(folder, COUNTERS), "w", encoding="utf-8") as file:
                json.dump(self._fields.counters(), file)
        except BaseException:
            if checkpoint_dir is None:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        return Checkpoint.from_directory(folder)

    def restore(self, checkpoint: Checkpoint | str | os.PathLike[str]) -> None:
        """Load the state, with counters of steps, from a checkpoint or a folder.

        In a trial with results, the study's counters are used instead.
        """
        if not isinstance(checkpoint, Checkpoint):
            checkpoint = Checkpoint.from_directory(folder_of(checkpoint))
        if self._trial is None or not self._trial.last_result:
            self._fields.restore(counters_of(checkpoint))
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
        """Return the contents of a checkpoint as bytes."""
        with tempfile.TemporaryDirectory(prefix="holdfast-trainable-") as folder:
            self.save(folder)
            return packed(folder)

    def restore_from_object(self, obj: bytes) -> None:
        """Load the state that `save_to_object` returned."""
        with tempfile.TemporaryDirectory(prefix="holdfast-trainable-") as folder:
            unpack(obj, folder)
            self.restore(folder)

    def delete_checkpoint(self, checkpoint_dir: Checkpoint | str | os.PathLike[str]) -> None:
        """Remove a saved folder on this machine, if it exists."""
        given = checkpoint_dir
        with contextlib.suppress(ConfigError):
            shutil.rmtree(folder_of(given.path if isinstance(given, Checkpoint) else given))

    def reset(
        self, new_config: dict[str, Any], logger_creator: Any = None, storage: Any = None
    ) -> bool:
        """Take over another trial in the same process; return whether that was done."""
        del logger_creator, storage  # as in Ray; not used
        if not self.reset_config(new_config):
            return False
        self.config = new_config
        self._fields = ResultFields(new_config)
        return True

    def stop(self) -> None:
        """Release all resources and remove the temporary folder."""
        self.cleanup()
        if self._local_folder is not None:
            shutil.rmtree(self._local_folder, ignore_errors=True)
            self._local_folder = None

    def export_model(
        self, export_formats: str | Sequence[str], export_dir: str | None = None
    ) -> dict[str, str]:
        """Export the model in formats that the class knows; return the path of each."""
        formats = [export_formats] if isinstance(export_formats, str) else list(export_formats)
        return self._export_model(formats, export_dir or self.logdir)

    # ------------------------------------------------------------------ properties

    @property
    def logdir(self) -> str:
        """The trial's own folder.

        Outside a trial, and if the study is not on a disk, a temporary one.
        """
        context = current()
        if self._trial is not None and context is not None and context.store.local is not None:
            os.makedirs(folder := context.store.local.root, exist_ok=True)
            return folder
        if self._local_folder is None:
            self._local_folder = tempfile.mkdtemp(prefix="holdfast-trial-")
        return self._local_folder

    @property
    def iteration(self) -> int:
        """How many steps are done."""
        return self._fields.iteration

    @property
    def training_iteration(self) -> int:
        """How many steps are done."""
        return self._fields.iteration

    @property
    def trial_id(self) -> str:
        return "default" if self._trial is None else self._trial.trial_id

    @property
    def trial_name(self) -> str:
        return "default" if self._trial is None else self._trial.name

    @property
    def trial_resources(self) -> Any:
        """The resources that the trial has reserved: a mapping for each process."""
        return None if self._trial is None else self._trial.resources

    def get_config(self) -> dict[str, Any]:
        """Return the config of the trial."""
        return self.config

    def _prepare(self, parameters: Mapping[str, Any]) -> None:
        """Call `setup`, with a config that it may change."""
        is_older = type(self).setup is Trainable.setup
        prepare: Callable[..., None] = self._setup if is_older else self.setup
        prepare(copy.deepcopy(self.config), **parameters)

    def _become(self, config: dict[str, Any], trial: TrialJob, iteration: int) -> bool:
        """Take over another trial in the same process; return whether that was done."""
        if not self.reset_config(config):
            return False
        self.config, self._trial = config, trial
        self._fields = ResultFields(config, trial, iteration, time.monotonic)
        return True

    def _older_method(self, name: str, missing: str) -> Callable[..., Any]:
        """Return a method by its older name; raise that the present one is missing if not there."""
        method: Callable[..., Any] | None = getattr(self, name, None)
        if method is None:
            raise NotImplementedError(f"{type(self).__name__} has no method {missing}")
        return method


def make(beginning: Beginning) -> Trainable:
    """Return an object for a trial; its `__init__` is given the arguments that it takes."""
    kind = beginning.kind
    arguments = arguments_of(kind, beginning.config)
    trainable = kind.__new__(kind, *arguments.args, **arguments.kwargs)
    # For `Trainable.__init__`, past that of the user's class, and past its __setattr__.
    vars(trainable)[_BEGINNING] = beginning
    trainable.__init__(*arguments.args, **arguments.kwargs)  # type: ignore[misc]
    if _BEGINNING in vars(trainable):
        raise ConfigError(
            f"{kind.__name__}.__init__() did not call tune.Trainable.__init__()",
            hint="call super().__init__(config) in it, or write setup(self, config) instead",
        )
    return trainable


def arguments_of(trainable: type[Trainable], config: dict[str, Any]) -> inspect.BoundArguments:
    """Return the arguments of a class in a trial: its config, and None for Ray's others.

    Raises a `ConfigError` if its `__init__` requires more than these.
    """
    signature = inspect.signature(trainable)
    parameters = signature.parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    nones: dict[str, Any] = {
        name: None
        for name in ("logger_creator", "storage")
        if name in parameters and parameters[name].kind is not inspect.Parameter.POSITIONAL_ONLY
    }
    try:
        if "config" in parameters or takes_all:
            return signature.bind(config=config, **nones)
        return signature.bind(config, **nones)
    except TypeError as error:
        raise ConfigError(
            f"{trainable.__name__} cannot be made with its config alone: {error}",
            hint="def __init__(self, config=None, logger_creator=None, **options), which passes"
            " them to super().__init__(); tune.with_parameters gives more arguments to setup",
        ) from None


def can_save(trainable: type[Trainable]) -> bool:
    """Whether a class can save its state."""
    return trainable.save_checkpoint is not Trainable.save_checkpoint or hasattr(trainable, "_save")


def can_load(trainable: type[Trainable]) -> bool:
    """Whether a class can load a saved state."""
    is_new = trainable.load_checkpoint is not Trainable.load_checkpoint
    return is_new or hasattr(trainable, "_restore")
