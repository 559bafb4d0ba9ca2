"""The configs that users write: how a run is named, stored, retried and logged.

Arguments have the names, order and defaults of Ray, today's and those of Ray AIR together. A config
is checked when it is built, assigned to or passed to `dataclasses.replace`, and the error lists all
its problems.

`budget_of` and `retention_of` translate configs for the layers below, which never see -1 or "max".
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Any, ClassVar, Literal

from holdfast.api.assignment import assignable, config_repr
from holdfast.api.checks import Problems, checking, is_flag, is_log_target, this_is
from holdfast.api.deprecated import renamed
from holdfast.api.did_you_mean import rejects_unknown_arguments
from holdfast.api.plain_data import NEVER_KEPT
from holdfast.api.scaling import ScalingConfig
from holdfast.core.checkpoint.retention import Retention
from holdfast.core.names import broken_name_rule, shown
from holdfast.core.run.budget import Budget
from holdfast.errors import ConfigError
from holdfast.storage import uris

__all__ = [
    "CheckpointConfig",
    "FailureConfig",
    "LoggingConfig",
    "RunConfig",
    "ScalingConfig",
    "SyncConfig",
    "budget_of",
    "retention_of",
]

DEFAULT_STORAGE_PATH = "~/ray_results"


@assignable
@rejects_unknown_arguments
@dataclass(unsafe_hash=True, repr=False)
class FailureConfig:
    """Which failures a run survives.

    Attributes:
        max_failures: How many lost groups to retry, whether lost to code, processes, hangs or
            nodes; -1 for any number.
        fail_fast: For Tune: whether the first failure ends the study; "raise" raises it at once.
        controller_failure_limit: How many groups may fail to start; -1 for any number. A run in
            which no group ever started ends after six identical failures in any case.
        max_preemption_failures: How many preemptions to retry; -1 for any number.
        relax_collectives_on_preemption: Ignored; a group is always saved and moved as one.
        preemption_grace_s: Time that ranks get in addition to `preemption_notice_s`.
        hang_timeout_s: How long a group may make no progress before it counts as hung. None learns
            it from the steps so far; infinity never gives up.
        backoff_max_s: The longest wait before another attempt.
        late_timeout_s: How long ranks wait at a checkpoint or a barrier for a missing one.
        preemption_notice_s: How long a machine is expected to stay after SIGTERM or SIGUSR1, which
            carry no deadline.
    """

    max_failures: int = 0
    fail_fast: bool | str = False
    controller_failure_limit: int = -1
    max_preemption_failures: int = -1
    relax_collectives_on_preemption: bool = False
    preemption_grace_s: float = 0.0
    _: KW_ONLY
    hang_timeout_s: float | None = None
    backoff_max_s: float = 30.0
    late_timeout_s: float = 1800.0
    preemption_notice_s: float = 25.0

    def __post_init__(self) -> None:
        with checking(self) as problems:
            retries = "it is how many {} to retry, 0 for none, -1 for any number"
            is_count = problems.whole("max_failures", retries.format("failures"), at_least=-1)
            problems.whole("controller_failure_limit", retries.format("failed starts"), at_least=-1)
            problems.whole("max_preemption_failures", retries.format("preemptions"), at_least=-1)
            if not _is_fail_fast(self.fail_fast):
                problems.add("fail_fast", "must be True, False or 'raise'")
            elif self.fail_fast and is_count and self.max_failures != 0:
                rule = f"ends at the first failure, but max_failures={self.max_failures} retries it"
                problems.add("fail_fast", rule, hint="leave out one of the two")
            problems.flag("relax_collectives_on_preemption")
            problems.finite("preemption_grace_s", "it is added to the deadline of a preemption")
            if self.hang_timeout_s is not None:
                meaning = "it is how long a group may make no progress, None to learn it"
                problems.seconds("hang_timeout_s", meaning, above_zero=True)
            problems.finite("backoff_max_s", "it is the longest wait before another attempt")
            meaning = "it is how long ranks wait for a missing one"
            problems.seconds("late_timeout_s", meaning, above_zero=True)
            meaning = "it is how long a machine is expected to stay after a signal"
            problems.finite("preemption_notice_s", meaning)

    def __repr__(self) -> str:
        return config_repr(self, FailureConfig())


@assignable
@rejects_unknown_arguments
@dataclass(unsafe_hash=True, repr=False)
class CheckpointConfig:
    """Which checkpoints are kept.

    Attributes:
        num_to_keep: How many, in addition to the newest; None keeps all.
        checkpoint_score_attribute: The metric to rank by, `a/b` for a nested one; None
            ranks by age.
        checkpoint_score_order: Whether "max" or "min" is best.
        checkpoint_frequency: For Tune: iterations between two checkpoints of a trial; 0 for never.
        checkpoint_at_end: For Tune: whether a trial saves a checkpoint when it ends.
        keep_checkpoints_num: Former name of `num_to_keep`.
        checkpoint_score_attr: Former name of `checkpoint_score_attribute`, as in `min-loss`.
    """

    num_to_keep: int | None = None
    checkpoint_score_attribute: str | None = None
    checkpoint_score_order: Literal["max", "min"] = "max"
    checkpoint_frequency: int = 0
    checkpoint_at_end: bool | None = None
    _: KW_ONLY
    keep_checkpoints_num: InitVar[int | None] = None
    checkpoint_score_attr: InitVar[str | None] = None

    def __post_init__(
        self, keep_checkpoints_num: int | None, checkpoint_score_attr: str | None
    ) -> None:
        renamed(self, "keep_checkpoints_num", "num_to_keep", keep_checkpoints_num)
        score = "checkpoint_score_attribute"
        renamed(self, "checkpoint_score_attr", score, checkpoint_score_attr)
        with checking(self) as problems:
            if self.num_to_keep is not None:
                meaning = "it is how many checkpoints to keep, None for all"
                problems.whole("num_to_keep", meaning, at_least=1)
            problems.text("checkpoint_score_attribute", "it names a metric, None to rank by age")
            problems.choice("checkpoint_score_order", "max", "min")
            meaning = "it is a number of iterations, 0 for never"
            problems.whole("checkpoint_frequency", meaning, at_least=0)
            if self.checkpoint_at_end is not None:
                problems.flag("checkpoint_at_end")

    def __repr__(self) -> str:
        return config_repr(self, CheckpointConfig())


@assignable
@rejects_unknown_arguments
@dataclass(unsafe_hash=True, repr=False)
class LoggingConfig:
    """How much Holdfast logs.

    Attributes:
        log_level: The name of a level of `logging`, in upper or lower case; stored in upper case.
    """

    log_level: str = "INFO"

    def __post_init__(self) -> None:
        with checking(self) as problems:
            if not isinstance(self.log_level, str):
                problems.add("log_level", f"must be the name of a level, {this_is(self.log_level)}")
            elif self.log_level.upper() not in logging.getLevelNamesMapping():
                levels = ", ".join(logging.getLevelNamesMapping())
                problems.add("log_level", f"not a level of logging, which are {levels}")
            else:
                vars(self).update(log_level=self.log_level.upper())

    def __repr__(self) -> str:
        return config_repr(self, LoggingConfig())


@assignable
@rejects_unknown_arguments
@dataclass(unsafe_hash=True, repr=False)
class SyncConfig:
    """How Ray AIR copied files of trials between nodes; training runs do not need it.

    Attributes:
        sync_period: Seconds between two rounds.
        sync_timeout: Seconds after which a round is given up.
        sync_artifacts: Whether files other than checkpoints are copied too.
        sync_artifacts_on_checkpoint: Whether that happens with every checkpoint.
        upload_dir: Where files go; today this is `RunConfig(storage_path=…)`.
        syncer: "auto", None to copy nothing, a command with `{source}` and `{target}` in it, or an
            object of your own.
        sync_on_checkpoint: Whether every new checkpoint starts a round.
    """

    sync_period: float = 300
    sync_timeout: float = 1800
    sync_artifacts: bool = False
    sync_artifacts_on_checkpoint: bool = True
    _: KW_ONLY
    upload_dir: str | None = field(default=None, metadata={NEVER_KEPT: True})
    syncer: object = "auto"
    sync_on_checkpoint: bool = True

    def __post_init__(self) -> None:
        with checking(self) as problems:
            problems.seconds("sync_period", "it is the time between two rounds")
            meaning = "it is the time after which a round is given up"
            problems.seconds("sync_timeout", meaning, above_zero=True)
            problems.flag("sync_artifacts")
            problems.flag("sync_artifacts_on_checkpoint")
            problems.text("upload_dir", "it is where files go, None for nowhere")
            problems.flag("sync_on_checkpoint")
            if isinstance(self.syncer, str) and self.syncer != "auto":
                for place in ("{source}", "{target}"):
                    if place not in self.syncer:
                        problems.add("syncer", f"{place} is missing; a command needs both")

    def __repr__(self) -> str:
        return config_repr(self, SyncConfig())


@assignable
@rejects_unknown_arguments
@dataclass(unsafe_hash=True, init=False, repr=False)
class RunConfig:
    """A run's name, where it is stored, and what it survives.

    The pair `(storage_path, name)` identifies the run: starting with the same pair resumes it.

    Attributes:
        name: One folder below `storage_path`; by default a new name for every trainer or study.
        storage_path: A folder or a URI. By default `SyncConfig(upload_dir=…)` or `local_dir`, if
            given, else `~/ray_results`.
        storage_filesystem: The fsspec or pyarrow filesystem that `storage_path` is a path of.
        callbacks: Called when something happens.
        worker_runtime_env: Environment variables for workers, as `{"env_vars": {…}}`.
        sync_config: From Ray AIR, as are `verbose`, `stop`, `progress_reporter`, `log_to_file`
            and `local_dir`: Tune reads them, Train does not.
        preemption_notices: Where to ask whether this machine will be taken away: "aws", "gcp",
            "azure", or an object of your own with a method `poll`; None does not ask.
        resume: "auto" resumes a run of that name if there is one, "must" refuses to start a new
            one, "never" refuses to resume. The default is "auto" for a training run; a study
            starts anew and does not mix with an existing one.
        given: Which of `name`, `storage_path` and `resume` were given.
    """

    name: str
    storage_path: str
    storage_filesystem: object | None
    failure_config: FailureConfig
    checkpoint_config: CheckpointConfig
    callbacks: list[Any]
    worker_runtime_env: Mapping[str, Any]
    logging_config: LoggingConfig
    sync_config: SyncConfig | None
    verbose: object
    stop: object
    progress_reporter: object
    log_to_file: bool | str | Sequence[str]
    local_dir: str | None
    resume: Literal["auto", "must", "never"]
    preemption_notices: object
    given: ClassVar[frozenset[str]] = frozenset()

    def __init__(
        self,
        name: str | None = None,
        storage_path: str | os.PathLike[str] | None = None,
        storage_filesystem: object | None = None,
        failure_config: FailureConfig | None = None,
        checkpoint_config: CheckpointConfig | None = None,
        callbacks: Sequence[Any] | None = None,
        worker_runtime_env: Mapping[str, Any] | None = None,
        logging_config: LoggingConfig | None = None,
        sync_config: SyncConfig | None = None,
        verbose: object = None,
        stop: object = None,
        progress_reporter: object = None,
        log_to_file: bool | str | Sequence[str] = False,  # noqa: FBT001, FBT002  as in Ray
        local_dir: str | os.PathLike[str] | None = None,
        *,
        resume: Literal["auto", "must", "never"] | None = None,
        preemption_notices: object = None,
    ) -> None:
        choices = (("name", name), ("storage_path", storage_path), ("resume", resume))
        if storage_path is None:
            storage_path = _default_storage_path(sync_config, local_dir)
        vars(self).update(
            given=frozenset(field for field, value in choices if value is not None),
            name=_new_name() if name is None else name,
            storage_path=_as_text(storage_path),
            storage_filesystem=storage_filesystem,
            failure_config=FailureConfig() if failure_config is None else failure_config,
            checkpoint_config=CheckpointConfig()
            if checkpoint_config is None
            else checkpoint_config,
            callbacks=_as_list(callbacks),
            worker_runtime_env={} if worker_runtime_env is None else worker_runtime_env,
            logging_config=LoggingConfig() if logging_config is None else logging_config,
            sync_config=sync_config,
            verbose=verbose,
            stop=stop,
            progress_reporter=progress_reporter,
            log_to_file=log_to_file,
            local_dir=_as_text(local_dir),
            resume="auto" if resume is None else resume,
            preemption_notices=preemption_notices,
        )
        _check_run(self)

    def _settle_change(self, before: RunConfig, name: str, value: object) -> None:
        """Update `given`, and the default path, after a change of one field of `before`."""
        given = before.given | {name} if value is not None else before.given - {name}
        vars(self).update(given=given & {"name", "storage_path", "resume"})
        if name in ("sync_config", "local_dir") and "storage_path" not in given:
            default = _default_storage_path(self.sync_config, self.local_dir)
            vars(self).update(storage_path=_as_text(default))

    def __repr__(self) -> str:
        return config_repr(self, RunConfig(), always=("name", "storage_path"))


def budget_of(config: FailureConfig) -> Budget:
    """Return the limits of `config` as a `Budget`."""
    return Budget(
        failures=_limit(config.max_failures),
        preemptions=_limit(config.max_preemption_failures),
        starts=_limit(config.controller_failure_limit),
    )


def retention_of(config: CheckpointConfig) -> Retention:
    """Return the rules of `config` as a `Retention`."""
    return Retention(
        keep=config.num_to_keep,
        score=config.checkpoint_score_attribute,
        highest_first=config.checkpoint_score_order == "max",
    )


def _is_fail_fast(given: object) -> bool:
    return given.lower() == "raise" if isinstance(given, str) else is_flag(given)


def _limit(count: int) -> int | None:
    return None if count == -1 else count


def _new_name() -> str:
    """Return a name that is most likely free; it is claimed when the run starts."""
    return f"holdfast_run-{time.strftime('%Y-%m-%d_%H-%M-%S')}-{secrets.token_hex(4)}"


def _default_storage_path(sync_config: object, local_dir: object) -> Any:
    """Return where runs are stored if `storage_path` is not given."""
    path = getattr(sync_config, "upload_dir", None) or local_dir
    return os.path.expanduser(DEFAULT_STORAGE_PATH) if path is None else path


def _as_text(path: Any) -> Any:
    """Return a path object as a string, and anything else unchanged, for the checks."""
    return os.fspath(path) if isinstance(path, os.PathLike) else path


def _as_list(callbacks: Any) -> Any:
    """Return a new list, and anything but a list or tuple unchanged, for the checks."""
    if callbacks is None:
        return []
    return list(callbacks) if isinstance(callbacks, list | tuple) else callbacks


# ---------------------------------------------------------------------- checks of a RunConfig


def _check_run(config: RunConfig) -> None:
    with checking(config) as problems:
        if rule := broken_name_rule(config.name):
            problems.add("name", rule)
        _check_storage_path(config.storage_path, problems)
        problems.instance("failure_config", FailureConfig)
        problems.instance("checkpoint_config", CheckpointConfig)
        problems.instance("logging_config", LoggingConfig)
        if config.sync_config is not None:
            problems.instance("sync_config", SyncConfig)
        _check_callbacks(config.callbacks, problems)
        if not isinstance(config.worker_runtime_env, Mapping):
            problems.add("worker_runtime_env", "not a dictionary")
        if not is_log_target(config.log_to_file):
            problems.add("log_to_file", "must be True, False, a file, or a pair of files")
        problems.text("local_dir", "it is a folder")
        problems.choice("resume", "auto", "must", "never")
        if isinstance(config.preemption_notices, str):
            problems.choice("preemption_notices", "aws", "gcp", "azure")


def _check_storage_path(path: object, problems: Problems) -> None:
    """Check that it is a path or a URI; storage itself is checked when the run is opened."""
    if not isinstance(path, str):
        problems.tell(f"storage_path={shown(path)}: not a path or a URI, {this_is(path)}")
        return
    try:
        uris.split(path)
    except ConfigError as error:
        problems.tell(error.message, hint=error.hint)


def _check_callbacks(callbacks: object, problems: Problems) -> None:
    if not isinstance(callbacks, list):
        problems.add("callbacks", f"must be a list, {this_is(callbacks)}", hint="callbacks=[…]")
        return
    for position, callback in enumerate(callbacks):
        if isinstance(callback, type):
            name = callback.__qualname__
            problems.tell(
                f"callbacks[{position}]={name}: {this_is(callback)}, not an instance",
                hint=f"write {name}()",
            )
