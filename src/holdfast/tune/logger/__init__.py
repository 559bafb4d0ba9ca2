"""Loggers: write the results of trials to files that other tools read."""

from __future__ import annotations

from typing import Any

from holdfast.tune.logger.csv import CSVLoggerCallback
from holdfast.tune.logger.json import JsonLoggerCallback
from holdfast.tune.logger.json_text import encode
from holdfast.tune.logger.legacy import (
    DEFAULT_CALLBACK_CLASSES,
    DEFAULT_LOGGERS,
    CSVLogger,
    JsonLogger,
    LegacyLoggerCallback,
    Logger,
    NoopLogger,
    TBXLogger,
    TF2Logger,
    TFLogger,
    UnifiedLogger,
    callbacks_of_loggers,
    with_default_loggers,
)
from holdfast.tune.logger.logger import FileLogger, LoggerCallback
from holdfast.tune.logger.tensorboardx import TBXLoggerCallback

__all__ = [
    "DEFAULT_CALLBACK_CLASSES",
    "DEFAULT_LOGGERS",
    "CSVLogger",
    "CSVLoggerCallback",
    "FileLogger",
    "JsonLogger",
    "JsonLoggerCallback",
    "LegacyLoggerCallback",
    "Logger",
    "LoggerCallback",
    "NoopLogger",
    "TBXLogger",
    "TBXLoggerCallback",
    "TF2Logger",
    "TFLogger",
    "UnifiedLogger",
    "callbacks_of_loggers",
    "pretty_print",
    "with_default_loggers",
]


def pretty_print(result: dict[str, Any]) -> str:
    """Return a result as readable text, without its config and without None values."""
    shown = {name: value for name, value in result.items() if value is not None}
    shown.pop("config", None)
    return encode(shown, indent=2)
