"""Names, arguments and habits of `tune.run`'s era, in the words of today."""

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
# What these did is always done, or needs nobody to ask for it.
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
    """Warn, once for a call, of arguments of older eras that are not as they are by themselves."""
    usual = inspect.signature(function).parameters
    older = [
        name
        for name in (*REPLACED, *IGNORED)
        if name in given and not _is(given[name], usual[name].default)
    ]
    if older:
        said = [
            f"{name}: write {REPLACED[name]}" if name in REPLACED else f"{name}: is ignored"
            for name in older
        ]
        warn_deprecated(f"arguments of older eras: {'; '.join(said)}")


def _is(value: object, usual: object) -> bool:
    return value is usual or (type(value) is type(usual) and bool(value == usual))


# ---------------------------------------------------------------------- checkpoints


def checkpoints_of(
    config: CheckpointConfig | None,
    *,
    checkpoint_freq: int = 0,
    checkpoint_at_end: bool = False,
    keep_checkpoints_num: int | None = None,
    checkpoint_score_attr: str | None = None,
) -> CheckpointConfig:
    """Return what is said about checkpoints in either way; raise if they contradict each other.

    In `tune.run` a trial is not saved at its end unless that is asked for.
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
        given = "checkpoint_score_attr", checkpoint_score_attr
        older["checkpoint_score_attribute"] = given
    usual = CheckpointConfig()
    for name, (argument, value) in older.items():
        said = getattr(config, name)
        if said not in (getattr(usual, name), value):
            raise ConfigError(
                f"{argument}={shown(value)}, and checkpoint_config says {name}={shown(said)}",
                hint="say it once, in checkpoint_config",
            )
    changes = {name: value for name, (_, value) in older.items()}
    if isinstance(checkpoint_score_attr, str) and checkpoint_score_attr.startswith(PREFIXES):
        changes["checkpoint_score_order"] = checkpoint_score_attr[:3]
    if config.checkpoint_at_end is None:
        changes.setdefault("checkpoint_at_end", False)
    return dataclasses.replace(config, **changes)


# ---------------------------------------------------------------------- functions


class Reporter:
    """What a function `f(config, reporter)` is given: calling it reports metrics."""

    def __call__(self, **metrics: Any) -> None:
        """Report the metrics of a step."""
        report(metrics)

    @property
    def logdir(self) -> str | None:
        """Where the trial's files are on storage."""
        return get_context().get_trial_dir()


def with_reporter(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of a config alone, if `function` wants a reporter besides."""
    try:
        wanted = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return function  # a builtin, which tells nobody
    if "reporter" not in wanted:
        return function

    @functools.wraps(function)
    def reports(config: dict[str, Any], **more: Any) -> Any:
        return function(config, reporter=Reporter(), **more)

    del reports.__wrapped__  # what is asked for from now on is the config
    return reports


def with_checkpoint_dir(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of a config alone, if `function` wants its checkpoint's folder besides."""
    try:
        wanted = inspect.signature(function).parameters.get("checkpoint_dir")
    except (TypeError, ValueError):
        return function  # a builtin, which tells nobody
    if wanted is None or wanted.default is not None:
        return function

    @functools.wraps(function)
    def resumes(config: dict[str, Any], **more: Any) -> Any:
        checkpoint = get_checkpoint()
        if checkpoint is None:
            return function(config, checkpoint_dir=None, **more)
        with checkpoint.as_directory() as folder:
            return function(config, checkpoint_dir=folder, **more)

    del resumes.__wrapped__  # what is asked for from now on is the config
    return resumes


def function(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return `f` as it is: functions in a config are never called to draw a value."""
    warn_deprecated("tune.function(f): write f")
    return f
