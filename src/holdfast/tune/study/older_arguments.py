"""Translates older arguments and function signatures of `tune.run` to the current ones."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.api.config import CheckpointConfig
from holdfast.api.deprecated import warn_deprecated
from holdfast.core.checkpoint.retention import PREFIXES
from holdfast.core.names import shown
from holdfast.errors import ConfigError
from holdfast.tune.functions import get_checkpoint, get_context, report

REPLACED = {
    "checkpoint_freq": "checkpoint_config=CheckpointConfig(checkpoint_frequency=…)",
    "checkpoint_at_end": "checkpoint_config=CheckpointConfig(checkpoint_at_end=…)",
    "keep_checkpoints_num": "checkpoint_config=CheckpointConfig(num_to_keep=…)",
    "checkpoint_score_attr": "checkpoint_config=CheckpointConfig(checkpoint_score_attribute=…)",
    "local_dir": "storage_path=…",
    "upload_dir": "storage_path=…",
    "loggers": "callbacks=[…]",
    "return_trials": "the trials of what is returned",
}
# What these did is always done, or is not needed here.
IGNORED = (
    "sync_to_cloud",
    "sync_to_driver",
    "sync_function",
    "global_checkpoint_period",
    "with_server",
    "server_port",
    "queue_trials",
    "trial_executor",
    "ray_auto_init",
    "chdir_to_trial_dir",
    "concurrent",
)


def warn_of_older(function: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Warn, once for a call, of older arguments that do not have their default values."""
    parameters = inspect.signature(function).parameters
    older = [
        f"{name}: write {REPLACED[name]}" if name in REPLACED else f"{name}: is ignored"
        for name in (*REPLACED, *IGNORED)
        if name in given and not _is_default(given[name], parameters[name].default)
    ]
    if older:
        warn_deprecated(f"deprecated arguments: {'; '.join(older)}")


def _is_default(value: object, default: object) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))


# ---------------------------------------------------------------------- checkpoints


def checkpoints_of(
    config: CheckpointConfig | None,
    *,
    checkpoint_freq: int = 0,
    checkpoint_at_end: bool = False,
    keep_checkpoints_num: int | None = None,
    checkpoint_score_attr: str | None = None,
) -> CheckpointConfig:
    """Return `config` with the older arguments merged in; raise if they contradict each other.

    In `tune.run` a trial is not saved at its end by default.
    """
    if config is not None and not isinstance(config, CheckpointConfig):
        raise ConfigError(
            f"checkpoint_config={shown(config)} is not a CheckpointConfig",
            hint="checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=10)",
        )
    config = config or CheckpointConfig()
    older: dict[str, tuple[str, Any]] = {}
    if checkpoint_freq:
        older["checkpoint_frequency"] = "checkpoint_freq", checkpoint_freq
    if checkpoint_at_end:
        older["checkpoint_at_end"] = "checkpoint_at_end", checkpoint_at_end
    if keep_checkpoints_num is not None:
        older["num_to_keep"] = "keep_checkpoints_num", keep_checkpoints_num
    if checkpoint_score_attr is not None:
        older["checkpoint_score_attribute"] = "checkpoint_score_attr", checkpoint_score_attr
    default = CheckpointConfig()
    for name, (argument, value) in older.items():
        configured = getattr(config, name)
        if configured not in (getattr(default, name), value):
            raise ConfigError(
                f"{argument}={shown(value)}, and checkpoint_config says {name}={shown(configured)}",
                hint="give it once, in checkpoint_config",
            )
    changes = {name: value for name, (_, value) in older.items()}
    if isinstance(checkpoint_score_attr, str) and checkpoint_score_attr.startswith(PREFIXES):
        changes["checkpoint_score_order"] = checkpoint_score_attr[:3]
    if config.checkpoint_at_end is None:
        changes.setdefault("checkpoint_at_end", False)
    return dataclasses.replace(config, **changes)


# ---------------------------------------------------------------------- functions


class Reporter:
    """The second argument of a function `f(config, reporter)`; calling it reports metrics."""

    def __call__(self, **metrics: Any) -> None:
        """Report the metrics of a step."""
        report(metrics)

    @property
    def logdir(self) -> str | None:
        """Where the trial's files are on storage."""
        return get_context().get_trial_dir()


def with_reporter(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of a config alone, if `function` also takes a reporter."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return function  # a builtin without a signature
    if "reporter" not in parameters:
        return function

    @functools.wraps(function)
    def reporting(config: dict[str, Any], **arguments: Any) -> Any:
        return function(config, reporter=Reporter(), **arguments)

    del reporting.__wrapped__  # or its signature would still have the reporter
    return reporting


def with_checkpoint_dir(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of a config alone, if `function` also takes its checkpoint's folder."""
    try:
        parameter = inspect.signature(function).parameters.get("checkpoint_dir")
    except (TypeError, ValueError):
        return function  # a builtin without a signature
    if parameter is None or parameter.default is not None:
        return function

    @functools.wraps(function)
    def resuming(config: dict[str, Any], **arguments: Any) -> Any:
        checkpoint = get_checkpoint()
        if checkpoint is None:
            return function(config, checkpoint_dir=None, **arguments)
        with checkpoint.as_directory() as folder:
            return function(config, checkpoint_dir=folder, **arguments)

    del resuming.__wrapped__  # or its signature would still have the folder
    return resuming


def function(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return `f` as it is: functions in a config are never called to draw a value."""
    warn_deprecated("tune.function(f): write f")
    return f
