"""Warnings of config arguments that Train accepts but does not use.

A trainer warns, not the config when it is built: Tune shares the classes and uses most of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.api.checks import this_is
from holdfast.api.config import CheckpointConfig, FailureConfig, RunConfig
from holdfast.api.deprecated import warn_deprecated, warn_user
from holdfast.api.scaling import ScalingConfig
from holdfast.core.names import shown
from holdfast.errors import ConfigError

_ADVICE: dict[type, dict[str, str]] = {
    ScalingConfig: {
        "trainer_resources": "the controller is part of this process and reserves nothing",
    },
    FailureConfig: {
        "fail_fast": "it is an argument of Tune; max_failures=0 ends a run at its first failure",
    },
    CheckpointConfig: {
        "checkpoint_frequency": "a training function saves by report(…, checkpoint=…)",
        "checkpoint_at_end": "a training function saves by report(…, checkpoint=…)",
    },
    RunConfig: {
        "sync_config": "files are written directly to storage_path",
        "verbose": "use logging_config=LoggingConfig(log_level=…)",
        "stop": "a training function stops by returning",
        "progress_reporter": "use callbacks",
        "log_to_file": "the output of every rank has a log file anyway",
        "local_dir": "use storage_path",
    },
}

_IGNORED: dict[type, dict[str, str]] = {
    ScalingConfig: {
        "accelerator_type": "workers are on this machine, whatever its accelerators are",
        "label_selector": "workers are on this machine, which has no labels",
        "topology": "workers are on this machine, which is no part of a TPU slice",
    },
    FailureConfig: {
        "relax_collectives_on_preemption": "a group is always saved and moved as one",
    },
    CheckpointConfig: {},
    RunConfig: {},
}


def warn_of_older_arguments(scaling: ScalingConfig, run: RunConfig) -> None:
    """Warn, at the user's line, of each argument that was set and that Train does not use."""
    given: dict[type, object] = {
        ScalingConfig: scaling,
        RunConfig: run,
        FailureConfig: run.failure_config,
        CheckpointConfig: run.checkpoint_config,
    }
    for kind, config in given.items():
        default = kind()
        for name, advice in _ADVICE[kind].items():
            if getattr(config, name) != getattr(default, name):
                warn_deprecated(f"{kind.__name__}({name}=…) is deprecated in Train: {advice}")
        for name, reason in _IGNORED[kind].items():
            if getattr(config, name) != getattr(default, name):
                warn_user(f"{kind.__name__}({name}=…) is ignored: {reason}")
    _check_runtime_env(run.worker_runtime_env)


def _check_runtime_env(given: Mapping[str, Any]) -> None:
    """Raise if `env_vars` is not a dictionary, and warn of other keys, which are ignored.

    Workers are processes of this machine, so there is nothing to install for them.
    """
    variables = given.get("env_vars")
    if not isinstance(variables, Mapping | None):
        raise ConfigError(
            f"worker_runtime_env['env_vars']={shown(variables)}: must be a dictionary,"
            f" {this_is(variables)}",
            hint='worker_runtime_env={"env_vars": {"NAME": "value"}}',
        )
    if ignored := ", ".join(sorted(set(given) - {"env_vars"})):
        warn_user(
            f"RunConfig(worker_runtime_env=…): {ignored} is ignored; workers have the Python, the"
            " packages and the working directory of this process, and its env_vars"
        )
