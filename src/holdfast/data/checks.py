"""Argument checks that the modules of this package share."""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from typing import Any

from holdfast.core.names import shown
from holdfast.errors import ConfigError

# Arguments that tell Ray where to run a function, or how to split data for it. They have no effect
# here: a function runs in the process that reads.
PLACEMENT = frozenset(
    {
        "accelerator_type",
        "compute",
        "concurrency",
        "max_concurrency",
        "max_restarts",
        "max_retries",
        "max_task_retries",
        "memory",
        "num_blocks",
        "num_cpus",
        "num_gpus",
        "override_num_blocks",
        "parallelism",
        "ray_remote_args",
        "ray_remote_args_fn",
        "resources",
        "retry_exceptions",
        "runtime_env",
        "scheduling_strategy",
        "zero_copy_batch",
    }
)


def whole(name: str, value: object, meaning: str, *, at_least: int) -> int:
    """Return `value` as an int if it is a whole number and large enough; raise if not."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise ConfigError(f"{name}={shown(value)}: not a whole number; {meaning}")
    if value < at_least:
        raise ConfigError(f"{name}={shown(value)}: less than {at_least}; {meaning}")
    return int(value)


def check_placement(given: Iterable[str], of: str) -> None:
    """Raise `TypeError` for a keyword that is not in `PLACEMENT`, as Python would."""
    for name in given:
        if name not in PLACEMENT:
            raise TypeError(f"{of}() got an unexpected keyword argument {name!r}")


def check_names(name: str, value: Any) -> tuple[str, ...]:
    """Return names of columns, given as one string or as several."""
    names = (value,) if isinstance(value, str) else tuple(value)
    for column in names:
        if not isinstance(column, str):
            raise ConfigError(f"{name}={shown(value)}: a column name must be a string: {column!r}")
    if not names or len(set(names)) < len(names):
        rule = "no column may be named twice" if names else "at least one column is needed"
        raise ConfigError(f"{name}={shown(value)}: {rule}")
    return names
