"""Types of a report's arguments, of reported checkpoints, and of their validation."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.api.assignment import assignable
from holdfast.api.checks import Problems, checking, is_whole, this_is
from holdfast.api.deprecated import warn_user
from holdfast.api.did_you_mean import rejects_unknown_arguments
from holdfast.checkpoint import Checkpoint
from holdfast.core.names import shown
from holdfast.errors import ConfigError
from holdfast.worker.reporting import Mode

RETRIES, RETRIED = "max_retries", "retry_exceptions"  # options of Ray's remote tasks


class CheckpointUploadMode(enum.Enum):
    """When the files of a checkpoint reach storage."""

    ASYNC = "async"
    SYNC = "sync"
    NO_UPLOAD = "no_upload"

    def default_delete_local_checkpoint_after_upload(self) -> bool:
        """Whether the reported folder is deleted, by default, once it is stored."""
        return self is CheckpointUploadMode.ASYNC


MODES = {
    CheckpointUploadMode.SYNC: Mode.NOW,
    CheckpointUploadMode.ASYNC: Mode.LATER,
    CheckpointUploadMode.NO_UPLOAD: Mode.ALREADY,
}


class CheckpointConsistencyMode(enum.Enum):
    """What a list of checkpoints waits for."""

    COMMITTED = "committed"
    VALIDATED = "validated"


class ReportedCheckpointStatus(enum.Enum):
    """The state of a checkpoint and its validation."""

    COMMITTED = "committed"
    PENDING_VALIDATION = "pending_validation"
    VALIDATED = "validated"
    VALIDATION_TIMEOUT = "validation_timeout"
    VALIDATION_FAILED = "validation_failed"


@dataclass(frozen=True)
class ReportedCheckpoint:
    """A checkpoint that is kept, with its reported metrics and those that validation added."""

    checkpoint: Checkpoint
    metrics: dict[str, Any]
    status: ReportedCheckpointStatus = ReportedCheckpointStatus.COMMITTED


@dataclass(frozen=True)
class PreemptionInfo:
    """Machines that will be taken away.

    Attributes:
        deadline_ms: When, in milliseconds since 1970; None if it is not known.
        preempted_node_to_ranks: The ranks on each of them.
    """

    deadline_ms: int | None
    preempted_node_to_ranks: dict[str, list[int]] = field(default_factory=dict)

    @property
    def preempted_node_ids(self) -> list[str]:
        """The machines."""
        return list(self.preempted_node_to_ranks)

    @property
    def preempted_ranks(self) -> list[int]:
        """The ranks on them."""
        return sorted(rank for ranks in self.preempted_node_to_ranks.values() for rank in ranks)


class ValidationFn(Protocol):
    """Returns metrics of a checkpoint, which are added to its own."""

    def __call__(self, checkpoint: Checkpoint, **kwargs: Any) -> dict[str, Any]: ...


@assignable
@rejects_unknown_arguments
@dataclass(unsafe_hash=True)
class ValidationTaskConfig:
    """How one checkpoint is validated.

    Attributes:
        fn_kwargs: Further arguments of the validation function; plain data.
        timeout_s: How long it may take; None for no limit.
    """

    fn_kwargs: Mapping[str, Any] | None = None
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        with checking(self) as problems:
            if self.timeout_s is not None:
                problems.seconds(
                    "timeout_s", "it is the time limit of a validation", above_zero=True
                )
            if not isinstance(self.fn_kwargs, Mapping | None):
                problems.add("fn_kwargs", f"must be a dictionary, {this_is(self.fn_kwargs)}")
            elif self.fn_kwargs and not _is_plain(dict(self.fn_kwargs)):
                problems.add("fn_kwargs", "must be plain data, because it is stored with the run")

    def to_data(self) -> dict[str, Any]:
        """Return it as the journal stores it."""
        return {"fn_kwargs": dict(self.fn_kwargs or {}), "timeout_s": self.timeout_s}


@assignable
@rejects_unknown_arguments
@dataclass(unsafe_hash=True)
class ValidationConfig:
    """How checkpoints are validated while training goes on.

    Attributes:
        fn: Called with a checkpoint, in a process of its own, one checkpoint at a time.
        task_config: The default; a report may pass its own.
        ray_remote_kwargs: From Ray. `max_retries` is how often to retry a validation whose process
            died, or that raised one of `retry_exceptions`; -1 for any number. The latter is a list
            of classes, or True for all. Other keys are ignored, with a warning.
    """

    fn: Callable[..., dict[str, Any]]
    task_config: ValidationTaskConfig | None = None
    ray_remote_kwargs: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        with checking(self) as problems:
            if not callable(self.fn):
                problems.add("fn", f"must be a function of a checkpoint, {this_is(self.fn)}")
            if self.task_config is not None:
                problems.instance("task_config", ValidationTaskConfig)
            if self.ray_remote_kwargs is not None:
                _check_remote(self.ray_remote_kwargs, problems)
        unused = sorted(set(self.ray_remote_kwargs or {}) - {RETRIES, RETRIED})
        if unused:
            warn_user(f"ValidationConfig(ray_remote_kwargs=…) ignores: {', '.join(unused)}")

    @property
    def retries(self) -> int | None:
        """How often to retry a validation, None for any number."""
        given = (self.ray_remote_kwargs or {}).get(RETRIES, 0)
        return None if given == -1 else int(given)

    @property
    def retried_errors(self) -> tuple[type[BaseException], ...]:
        """The exceptions after which to retry a validation."""
        given = (self.ray_remote_kwargs or {}).get(RETRIED, False)
        return (BaseException,) * bool(given) if isinstance(given, bool) else tuple(given)


def _check_remote(given: object, problems: Problems) -> None:
    if not isinstance(given, Mapping):
        problems.add("ray_remote_kwargs", f"must be a dictionary, {this_is(given)}")
        return
    retries, errors = given.get(RETRIES, 0), given.get(RETRIED, False)
    if not is_whole(retries) or retries < -1:
        problems.tell(
            f"ray_remote_kwargs[{RETRIES!r}]={shown(retries)}: it is a number of retries, -1 for"
            " any number"
        )
    is_list = isinstance(errors, list | tuple) and all(
        isinstance(error, type) and issubclass(error, BaseException) for error in errors
    )
    if not is_list and not isinstance(errors, bool):
        problems.tell(
            f"ray_remote_kwargs[{RETRIED!r}]={shown(errors)}: it is a list of exception classes, or"
            " True for all"
        )


def validation_data(given: object) -> dict[str, Any] | None:
    """Return the `validation` argument of a report as plain data, None for no validation."""
    if isinstance(given, ValidationTaskConfig):
        return given.to_data()
    if given is True:
        return {}
    if given in (False, None):
        return None
    raise ConfigError(
        f"validation={given!r}: it is True, False or a ValidationTaskConfig, {this_is(given)}"
    )


def _is_plain(value: dict[str, Any]) -> bool:
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError):
        return False
