"""Turns functions, classes and trainers into what a study can run."""

from __future__ import annotations

import functools
import inspect
import keyword
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast import settings
from holdfast.api.config import CheckpointConfig
from holdfast.api.deprecated import warn_user
from holdfast.core.names import shown
from holdfast.errors import ConfigError
from holdfast.objects.refs import share_if_large
from holdfast.tune.errors import NotRunnable, TuneError
from holdfast.tune.registry import registered
from holdfast.tune.resources import ATTRIBUTE
from holdfast.tune.study.older_arguments import with_checkpoint_dir, with_reporter
from holdfast.tune.trainable import Trainable, arguments_of, can_load, can_save
from holdfast.tune.trainables.program import ClassProgram, FunctionProgram

PARAMETERS = "_tune_parameters"  # the attribute that `with_parameters` sets
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class Runnable:
    """A trainable in the form that a study needs.

    Attributes:
        kind: The class, None if it is a function.
        resources: What trials reserve, in any form that users may give; None if not given.
        is_trainer: Whether it is a trainer, whose trials are training runs.
    """

    name: str
    function: Callable[..., Any] | None
    kind: type[Trainable] | None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    resources: Any = None
    is_trainer: bool = False

    @property
    def can_save(self) -> bool:
        """Whether a trial can be saved; assumed of a function, which cannot be asked."""
        return self.kind is None or can_save(self.kind)

    @property
    def can_go_on(self) -> bool:
        """Whether a trial can be saved and resumed; assumed of a function."""
        return self.kind is None or (can_save(self.kind) and can_load(self.kind))

    def restore_call(self, url: str, arguments: str = "") -> str:
        """Return the line of code that resumes its study at `url`."""
        is_name = self.name.isidentifier() and not keyword.iskeyword(self.name)
        return f"Tuner.restore({url!r}, {self.name if is_name else 'trainable'}{arguments}).fit()"

    def program(
        self, checkpoints: CheckpointConfig, export_formats: Sequence[str] = ()
    ) -> FunctionProgram | ClassProgram:
        """Return what the process of a trial runs."""
        if self.kind is None:
            assert self.function is not None
            if export_formats:
                raise ConfigError(
                    f"export_formats={shown(export_formats)}: the function `{self.name}` has no"
                    " method to export its model",
                    hint="write a Trainable class with _export_model(formats, folder)",
                )
            _must_not_be_saved(self.name, checkpoints)
            return FunctionProgram(self.function, self.parameters)
        return ClassProgram(
            self.kind,
            self.parameters,
            frequency=checkpoints.checkpoint_frequency,
            at_end=self.saves_at_end(checkpoints),
            exports=tuple(export_formats),
            load_retries=settings.restore_retries(),
        )

    def saves_at_end(self, checkpoints: CheckpointConfig) -> bool:
        """Return whether trials are saved when they end; raise if they must, and cannot be."""
        at_end = checkpoints.checkpoint_at_end
        if self.kind is None:
            return False
        if not self.can_save and (at_end or checkpoints.checkpoint_frequency):
            raise ConfigError(
                f"{self.name} cannot be saved: it has no save_checkpoint",
                hint="write save_checkpoint and load_checkpoint, or leave out checkpoint_frequency"
                " and checkpoint_at_end",
            )
        return self.can_go_on if at_end is None else at_end

    def warn_if_it_only_saves(self, checkpoints: CheckpointConfig) -> None:
        """Warn if trials are to be saved although they could not resume from that."""
        saves = checkpoints.checkpoint_at_end or checkpoints.checkpoint_frequency
        if saves and self.can_save and not self.can_go_on:
            warn_user(
                f"{self.name} has save_checkpoint and no load_checkpoint: trials are saved, but a"
                " trial that must resume from its checkpoint, as after a failure, will fail"
            )


def runnable(trainable: Any) -> Runnable:
    """Return a trainable in the form that a study needs; raise if it is none."""
    if trainable is None:
        raise TuneError("there is nothing to run", hint="Tuner(trainable)")
    if isinstance(trainable, str):
        return replace(runnable(registered(trainable)), name=trainable)
    parameters = getattr(trainable, PARAMETERS, {})
    resources = getattr(trainable, ATTRIBUTE, None)
    if isinstance(trainable, type):
        if not issubclass(trainable, Trainable):
            raise NotRunnable(
                f"the class {trainable.__name__} is not a subclass of Trainable",
                hint="class MyTrainable(tune.Trainable): def step(self): …",
            )
        arguments_of(trainable, {})  # raises if no object can be made
        if resources is None and _overrides(trainable, "default_resource_request"):
            resources = trainable.default_resource_request
        return Runnable(_name(trainable), None, trainable, parameters, resources)
    if (as_trainable := getattr(trainable, "as_trainable", None)) is not None:
        function = as_trainable()
        name = getattr(function, "__name__", type(trainable).__name__)
        needs = getattr(function, ATTRIBUTE, resources)
        return Runnable(name, function, None, {}, needs, is_trainer=True)
    if not callable(trainable):
        raise NotRunnable(
            f"trainable={shown(trainable)} is neither a function, nor a Trainable class, nor the"
            " name of one that was registered",
            hint="Tuner(train_function), with a function of one argument, the config",
        )
    if "reporter" not in parameters:
        trainable = with_reporter(trainable)
    if "checkpoint_dir" not in parameters:
        trainable = with_checkpoint_dir(trainable)
    _must_take_config(trainable, parameters)
    return Runnable(_name(trainable), trainable, None, parameters, resources)


def with_parameters(trainable: Any, **parameters: Any) -> Any:
    """Return a trainable with additional arguments, which are the same in every trial.

    A function gets them by name; so does the `setup` of a class. Values larger than a megabyte are
    put once, now, into memory that all processes read (see `holdfast.put`), so their arrays are
    read-only.
    """
    parameters = {name: share_if_large(value) for name, value in parameters.items()}
    if isinstance(trainable, type):
        if not issubclass(trainable, Trainable):
            raise NotRunnable(f"the class {trainable.__name__} is not a subclass of Trainable")
        return type(trainable.__name__, (trainable,), {PARAMETERS: parameters})
    if not callable(trainable):
        raise NotRunnable(f"{shown(trainable)} is neither a function nor a Trainable class")

    @functools.wraps(trainable)
    def with_arguments(config: dict[str, Any], **arguments: Any) -> Any:
        return trainable(config, **arguments)

    setattr(with_arguments, PARAMETERS, {**getattr(trainable, PARAMETERS, {}), **parameters})
    return with_arguments


def _overrides(trainable: type[Trainable], name: str) -> bool:
    return inspect.getattr_static(trainable, name) is not inspect.getattr_static(Trainable, name)


def _name(trainable: Any) -> str:
    name = getattr(trainable, "_name", None) or getattr(trainable, "__name__", None)
    if name is None and isinstance(trainable, functools.partial):
        name = getattr(trainable.func, "__name__", None)
    return "lambda" if name == "<lambda>" else str(name or "trainable")


def _must_not_be_saved(name: str, checkpoints: CheckpointConfig) -> None:
    for field_name in ("checkpoint_frequency", "checkpoint_at_end"):
        if value := getattr(checkpoints, field_name):
            raise ConfigError(
                f"{field_name}={value}: the function `{name}` saves its checkpoints itself, when"
                " it reports",
                hint="tune.report(metrics, checkpoint=…), or write a Trainable class",
            )


def _must_take_config(function: Callable[..., Any], parameters: Mapping[str, Any]) -> None:
    try:
        arguments = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return  # a builtin without a signature
    positional = [argument for argument in arguments if argument.kind in _POSITIONAL]
    required = [
        argument
        for argument in positional
        if argument.default is argument.empty and argument.name not in parameters
    ]
    takes_any = any(argument.kind is argument.VAR_POSITIONAL for argument in arguments)
    if len(required) > 1 or not (positional or takes_any):
        raise ConfigError(
            f"the trainable `{_name(function)}` requires {len(required)} arguments, but it gets"
            " one, its config",
            hint="def train(config): …; tune.with_parameters(train, data=data) adds others",
        )
