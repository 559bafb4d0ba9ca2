"""Loads numpy, pandas, pyarrow and torch when a dataset first needs them.

Importing `holdfast.data` loads none of them: a script whose rows are plain dicts may never need
one, and a worker should not pay for what it does not use.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from holdfast.errors import ConfigError


def library(name: str) -> Any:
    """Import and return the module `name`; raise `ConfigError` if it is not installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        top = name.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != top:
            raise  # it is installed; something it needs is not
        raise ConfigError(
            f"this needs {top}, which is not installed", hint=f"pip install {top}"
        ) from None


def is_instance(value: object, module: str, kind: str) -> bool:
    """Return whether `value` is an instance of a library's class, without loading the library.

    A library that is not loaded cannot have made the value.
    """
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(value, getattr(loaded, kind))
