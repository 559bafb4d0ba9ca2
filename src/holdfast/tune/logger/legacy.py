"""Ray's older logger classes, for `tune.run(loggers=[JsonLogger, CSVLogger])`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from holdfast.api.checks import this_is
from holdfast.core.names import shown
from holdfast.errors import ConfigError
from holdfast.storage.base import Store
from holdfast.tune.logger.csv import CSVLoggerCallback
from holdfast.tune.logger.json import JsonLoggerCallback
from holdfast.tune.logger.logger import LoggerCallback
from holdfast.tune.logger.tensorboardx import TBXLoggerCallback
from holdfast.tune.trial import Trial

DEFAULT_CALLBACK_CLASSES: tuple[type[LoggerCallback], ...] = (
    CSVLoggerCallback,
    JsonLoggerCallback,
    TBXLoggerCallback,
)


class Logger:
    """A logger of one trial, for `loggers=`; derive from `LoggerCallback` instead.

    Args:
        config: The trial's config.
        logdir: Its folder, on this machine.
        trial: The trial.
    """

    callbacks: ClassVar[tuple[type[LoggerCallback], ...]] = ()  # its replacements

    def __init__(self, config: Mapping[str, Any], logdir: str, trial: Trial | None = None) -> None:
        self.config, self.logdir, self.trial = config, logdir, trial
        self._init()

    def _init(self) -> None:
        """Prepare; called once, when the trial starts."""

    def on_result(self, result: dict[str, Any]) -> None:
        """Log a result."""
        raise NotImplementedError(f"{type(self).__name__} has no on_result")

    def update_config(self, config: Mapping[str, Any]) -> None:
        """The trial has another config."""

    def flush(self) -> None:
        """Write what is buffered."""

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
    """Stands for all default loggers."""

    callbacks = DEFAULT_CALLBACK_CLASSES


class NoopLogger(Logger):
    """Writes nothing."""

    def on_result(self, result: dict[str, Any]) -> None:
        """Log a result."""


DEFAULT_LOGGERS: tuple[type[Logger], ...] = (JsonLogger, CSVLogger, TBXLogger)


class LegacyLoggerCallback(LoggerCallback):
    """Calls older loggers, one of each class for every running trial.

    They write where they like in the trial's folder, so the study must be on this machine's disk.
    """

    def __init__(self, logger_classes: Iterable[type[Logger]]) -> None:
        self._classes = tuple(logger_classes)
        self._store: Store | None = None
        self._loggers: dict[str, list[Logger]] = {}

    def attach(self, store: Store) -> None:
        """Write below `store`, the folder of the study."""
        if store.local is None:
            names = ", ".join(kind.__name__ for kind in self._classes)
            raise ConfigError(
                f"loggers={names}: the study is at {store.url}, and such loggers need a folder on"
                " this machine",
                hint="derive from holdfast.tune.logger.LoggerCallback and pass it in callbacks=",
            )
        self._store = store

    def log_trial_start(self, trial: Trial) -> None:
        """Create the loggers of a trial, or give them its new config."""
        if trial.trial_id in self._loggers:
            for logger in self._loggers[trial.trial_id]:
                logger.update_config(trial.config)
            return
        assert self._store is not None and self._store.local is not None, "not attached"
        self._store.local.keep_folder(trial.folder)
        folder = self._store.local.path(trial.folder)
        self._loggers[trial.trial_id] = [
            kind(trial.config, folder, trial) for kind in self._classes
        ]

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        if trial.trial_id not in self._loggers:
            self.log_trial_start(trial)
        for logger in self._loggers[trial.trial_id]:
            logger.on_result(result)

    def log_trial_save(self, trial: Trial) -> None:
        for logger in self._loggers.get(trial.trial_id, ()):
            logger.flush()

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:  # noqa: FBT001, FBT002
        for logger in self._loggers.pop(trial.trial_id, ()):
            logger.close()


def callbacks_of_loggers(loggers: Iterable[Any] | None) -> list[LoggerCallback]:
    """Return the callbacks for `loggers=`; None means the default ones.

    Each may be a subclass of `Logger`, or a `LoggerCallback` or its class.
    """
    if loggers is None:
        return [kind() for kind in DEFAULT_CALLBACK_CLASSES]
    callbacks: list[LoggerCallback] = []
    older: list[type[Logger]] = []
    for logger in loggers:
        if isinstance(logger, LoggerCallback):
            callbacks.append(logger)
        elif isinstance(logger, type) and issubclass(logger, LoggerCallback):
            callbacks.append(logger())
        elif isinstance(logger, type) and issubclass(logger, Logger):
            if logger.callbacks and "on_result" not in vars(logger):
                callbacks += [kind() for kind in logger.callbacks if not _has(callbacks, kind)]
            else:
                older.append(logger)
        else:
            raise ConfigError(
                f"loggers holds {shown(logger)}: {this_is(logger)}, not a logger",
                hint="pass classes such as JsonLogger, or callbacks=[LoggerCallback subclasses]",
            )
    return [*callbacks, LegacyLoggerCallback(older)] if older else callbacks


def with_default_loggers(callbacks: Iterable[Any]) -> list[Any]:
    """Return the callbacks, preceded by the default loggers that are not among them."""
    given = list(callbacks)
    return [*(kind() for kind in DEFAULT_CALLBACK_CLASSES if not _has(given, kind)), *given]


def _has(callbacks: Iterable[object], kind: type) -> bool:
    return any(isinstance(callback, kind) for callback in callbacks)
