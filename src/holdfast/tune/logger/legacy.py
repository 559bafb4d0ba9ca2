"""Loggers by the names of older eras: `tune.run(loggers=[JsonLogger, CSVLogger])`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from holdfast.api.checks import this_is
from holdfast.core.names import shown
from holdfast.core.study.trial import Trial
from holdfast.errors import ConfigError
from holdfast.storage.base import Store
from holdfast.tune.logger.csv import CSVLoggerCallback
from holdfast.tune.logger.json import JsonLoggerCallback
from holdfast.tune.logger.logger import LoggerCallback
from holdfast.tune.logger.tensorboardx import TBXLoggerCallback

DEFAULT_CALLBACK_CLASSES: tuple[type[LoggerCallback], ...] = (
    CSVLoggerCallback,
    JsonLoggerCallback,
    TBXLoggerCallback,
)


class Logger:
    """A logger of one trial, as `loggers=` took them; derive from `LoggerCallback` instead.

    Args:
        config: What the trial is called with.
        logdir: Its folder, on this machine.
        trial: The trial.
    """

    callbacks: ClassVar[tuple[type[LoggerCallback], ...]] = ()  # what does the same today

    def __init__(self, config: Mapping[str, Any], logdir: str, trial: Trial | None = None) -> None:
        self.config, self.logdir, self.trial = config, logdir, trial
        self._init()

    def _init(self) -> None:
        """Begin; called once, when the trial starts."""

    def on_result(self, result: dict[str, Any]) -> None:
        """Take in a result."""
        raise NotImplementedError(f"{type(self).__name__} has no on_result")

    def update_config(self, config: Mapping[str, Any]) -> None:
        """Take in another config."""

    def flush(self) -> None:
        """Write what waits."""

    def close(self) -> None:
        """The trial is over."""


class JsonLogger(Logger):
    """Stands for `JsonLoggerCallback`."""

    callbacks = (JsonLoggerCallback,)


class CSVLogger(Logger):
    """Stands for `CSVLoggerCallback`."""

    callbacks = (CSVLoggerCallback,)


class TBXLogger(Logger):
    """Stands for `TBXLoggerCallback`."""

    callbacks = (TBXLoggerCallback,)


TFLogger = TF2Logger = TBXLogger


class UnifiedLogger(Logger):
    """Stands for all loggers that there are by default."""

    callbacks = DEFAULT_CALLBACK_CLASSES


class NoopLogger(Logger):
    """Writes nothing."""

    def on_result(self, result: dict[str, Any]) -> None:
        """Take in a result."""


DEFAULT_LOGGERS: tuple[type[Logger], ...] = (JsonLogger, CSVLogger, TBXLogger)


class LegacyLoggerCallback(LoggerCallback):
    """Drives loggers of the old kind, one of each class for every trial that runs.

    They write where they like in the trial's folder, so the study must be on this machine's disk.
    """

    def __init__(self, logger_classes: Iterable[type[Logger]]) -> None:
        self._classes = tuple(logger_classes)
        self._store: Store | None = None
        self._loggers: dict[str, list[Logger]] = {}

    def attach(self, store: Store) -> None:
        """Write below `store`, the folder of the study."""
        if store.local is None:
            names = ", ".join(one.__name__ for one in self._classes)
            raise ConfigError(
                f"loggers={names}: the study is at {store.url}, and such loggers need a folder of"
                " this machine",
                hint="derive from holdfast.tune.logger.LoggerCallback and pass it in callbacks=",
            )
        self._store = store

    def log_trial_start(self, trial: Trial) -> None:
        """Begin with a trial, or tell its loggers what config it goes on with."""
        if trial.trial_id in self._loggers:
            for one in self._loggers[trial.trial_id]:
                one.update_config(trial.config)
            return
        assert self._store is not None and self._store.local is not None, "not attached"
        self._store.local.keep_folder(trial.folder)
        folder = self._store.local.path(trial.folder)
        self._loggers[trial.trial_id] = [one(trial.config, folder, trial) for one in self._classes]

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        if trial.trial_id not in self._loggers:
            self.log_trial_start(trial)
        for one in self._loggers[trial.trial_id]:
            one.on_result(result)

    def log_trial_save(self, trial: Trial) -> None:
        for one in self._loggers.get(trial.trial_id, ()):
            one.flush()

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:  # noqa: FBT001, FBT002
        for one in self._loggers.pop(trial.trial_id, ()):
            one.close()


def callbacks_of_loggers(loggers: Iterable[Any] | None) -> list[LoggerCallback]:
    """Return the callbacks that `loggers=` means; None means those there are by default.

    Each may be a class of the old kind, ours or the user's, or a `LoggerCallback` or its class.
    """
    if loggers is None:
        return [kind() for kind in DEFAULT_CALLBACK_CLASSES]
    found: list[LoggerCallback] = []
    older: list[type[Logger]] = []
    for one in loggers:
        if isinstance(one, LoggerCallback):
            found.append(one)
        elif isinstance(one, type) and issubclass(one, LoggerCallback):
            found.append(one())
        elif isinstance(one, type) and issubclass(one, Logger):
            if one.callbacks and "on_result" not in vars(one):
                found += [kind() for kind in one.callbacks if not _has(found, kind)]
            else:
                older.append(one)
        else:
            raise ConfigError(
                f"loggers holds {shown(one)}: {this_is(one)}",
                hint="pass classes such as JsonLogger, or callbacks=[LoggerCallback subclasses]",
            )
    return [*found, LegacyLoggerCallback(older)] if older else found


def with_default_loggers(callbacks: Iterable[Any]) -> list[Any]:
    """Return the callbacks with the default loggers that are not among them, these first."""
    given = list(callbacks)
    return [*(kind() for kind in DEFAULT_CALLBACK_CLASSES if not _has(given, kind)), *given]


def _has(callbacks: Iterable[object], kind: type) -> bool:
    return any(isinstance(one, kind) for one in callbacks)
