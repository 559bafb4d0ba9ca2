"""What can be a trainable, and what its processes run."""

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

PARAMETERS = "_tune_parameters"  # where `with_parameters` leaves its word
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class Runnable:
    """A trainable in the form that a study needs.

    Attributes:
        kind: The class, None if it is a function.
        resources: What trials reserve, in any of the forms users have; None if nobody said.
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
        """Whether a trial may be able to save itself; of a function nobody knows."""
        return self.kind is None or can_save(self.kind)

    @property
    def can_go_on(self) -> bool:
        """Whether a trial may be able to save itself and go on from there."""
        return self.kind is None or (can_save(self.kind) and can_load(self.kind))

    def restore_call(self, url: str, more: str = "") -> str:
        """Return the line of code that goes on with its study at `url`."""
        is_name = self.name.isidentifier() and not keyword.iskeyword(self.name)
        return f"Tuner.restore({url!r}, {self.name if is_name else 'trainable'}{more}).fit()"

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
        at_end = self.saves_at_end(checkpoints)
        return ClassProgram(
            self.kind,
            self.parameters,
            frequency=checkpoints.checkpoint_frequency,
            at_end=at_end,
            exports=tuple(export_formats),
            load_retries=settings.restore_retries(),
        )

    def saves_at_end(self, checkpoints: CheckpointConfig) -> bool:
        """Whether trials are saved when they end."""
        wanted = checkpoints.checkpoint_at_end
        if self.kind is None:
            return False
        if not self.can_save and (wanted or checkpoints.checkpoint_frequency):
            raise ConfigError(
                f"{self.name} cannot be saved: it has no save_checkpoint",
                hint="write save_checkpoint and load_checkpoint, or leave out checkpoint_frequency"
                " and checkpoint_at_end",
            )
        return self.can_go_on if wanted is None else wanted

    def warn_if_it_only_saves(self, checkpoints: CheckpointConfig) -> None:
        """Warn if trials are to be saved although they could not go on from that."""
        saves = checkpoints.checkpoint_at_end or checkpoints.checkpoint_frequency
        if saves and self.can_save and not self.can_go_on:
            warn_user(
                f"{self.name} has save_checkpoint and no load_checkpoint: trials are saved, and one"
                " that must go on from its checkpoint, as after a failure, will fail"
            )


def runnable(trainable: Any) -> Runnable:
    """Return a trainable in the form that a study needs; raise if it cannot be one."""
    if trainable is None:
        raise TuneError("there is nothing to run", hint="Tuner(trainable)")
    if isinstance(trainable, str):
        return replace(runnable(registered(trainable)), name=trainable)
    parameters = getattr(trainable, PARAMETERS, {})
    resources = getattr(trainable, ATTRIBUTE, None)
    if isinstance(trainable, type):
        if not issubclass(trainable, Trainable):
            raise NotRunnable(
                f"the class {trainable.__name__} is no Trainable",
                hint="class MyTrainable(tune.Trainable): def step(self): …",
            )
        arguments_of(trainable, {})  # what cannot be made is told now
        if resources is None and _has_own(trainable, "default_resource_request"):
            resources = trainable.default_resource_request
        return Runnable(_name(trainable), None, trainable, parameters, resources)
    if (as_function := getattr(trainable, "as_trainable", None)) is not None:
        made = as_function()
        name = getattr(made, "__name__", type(trainable).__name__)
        needs = getattr(made, ATTRIBUTE, resources)
        return Runnable(name, made, None, {}, needs, is_trainer=True)
    if not callable(trainable):
        raise NotRunnable(
            f"trainable={shown(trainable)} is neither a function, nor a Trainable class, nor the"
            " name of one that was registered",
            hint="Tuner(train_function), with a function of one argument, its config",
        )
    if "reporter" not in parameters:
        trainable = with_reporter(trainable)
    if "checkpoint_dir" not in parameters:
        trainable = with_checkpoint_dir(trainable)
    _must_take_config(trainable, parameters)
    return Runnable(_name(trainable), trainable, None, parameters, resources)


def with_parameters(trainable: Any, **parameters: Any) -> Any:
    """Return a trainable that is given more arguments than its config, the same in every trial.

    A function gets them by name; so does the `setup` of a class. What is larger than a megabyte is
    put once, now, and read by all processes where it lies (see `holdfast.put`): its arrays cannot
    be written to.
    """
    parameters = {name: share_if_large(value) for name, value in parameters.items()}
    if isinstance(trainable, type):
        if not issubclass(trainable, Trainable):
            raise NotRunnable(f"the class {trainable.__name__} is no Trainable")
        return type(trainable.__name__, (trainable,), {PARAMETERS: parameters})
    if not callable(trainable):
        raise NotRunnable(f"{shown(trainable)} is neither a function nor a Trainable class")

    @functools.wraps(trainable)
    def with_more(config: dict[str, Any], **more: Any) -> Any:
        return trainable(config, **more)

    setattr(with_more, PARAMETERS, {**getattr(trainable, PARAMETERS, {}), **parameters})
    return with_more


def _has_own(trainable: type[Trainable], name: str) -> bool:
    """Whether a class says itself what `Trainable` says for all."""
    mine, usual = (inspect.getattr_static(one, name) for one in (trainable, Trainable))
    return mine is not usual


def _name(trainable: Any) -> str:
    named = getattr(trainable, "_name", None) or getattr(trainable, "__name__", None)
    if named is None and isinstance(trainable, functools.partial):
        named = getattr(trainable.func, "__name__", None)
    name = str(named or "trainable")
    return "lambda" if name == "<lambda>" else name


def _must_not_be_saved(name: str, checkpoints: CheckpointConfig) -> None:
    for what in ("checkpoint_frequency", "checkpoint_at_end"):
        if getattr(checkpoints, what):
            raise ConfigError(
                f"{what}={getattr(checkpoints, what)}: the function `{name}` saves itself by what"
                " it reports",
                hint="tune.report(metrics, checkpoint=…), or write a Trainable class",
            )


def _must_take_config(function: Callable[..., Any], parameters: Mapping[str, Any]) -> None:
    try:
        wanted = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return  # a builtin, which tells nobody
    required = [
        one.name
        for one in wanted
        if one.kind in _POSITIONAL and one.default is one.empty and one.name not in parameters
    ]
    takes_any = any(one.kind is one.VAR_POSITIONAL for one in wanted)
    positional = [one for one in wanted if one.kind in _POSITIONAL]
    if len(required) > 1 or not (positional or takes_any):
        raise ConfigError(
            f"the trainable `{_name(function)}` wants {len(required)} arguments; it gets one, its"
            " config",
            hint="def train(config): …; tune.with_parameters(train, data=data) adds others",
        )
