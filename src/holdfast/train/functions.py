"""The functions that a training function calls while it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.api.checks import is_flag, is_number, this_is
from holdfast.checkpoint import Checkpoint
from holdfast.core.names import shown
from holdfast.errors import ConfigError
from holdfast.train.context import TrainContext
from holdfast.train.reported import (
    MODES,
    CheckpointConsistencyMode,
    CheckpointUploadMode,
    PreemptionInfo,
    ReportedCheckpoint,
    ReportedCheckpointStatus,
    ValidationTaskConfig,
    validation_data,
)
from holdfast.worker.context import WorkerContext, current
from holdfast.worker.reporting import Save


def report(
    metrics: Mapping[str, Any],
    checkpoint: Checkpoint | None = None,
    checkpoint_dir_name: str | None = None,
    checkpoint_upload_mode: CheckpointUploadMode = CheckpointUploadMode.SYNC,
    delete_local_checkpoint_after_upload: bool | None = None,  # noqa: FBT001  as in Ray
    checkpoint_upload_fn: Callable[[Checkpoint, str], Checkpoint] | None = None,
    validation: bool | ValidationTaskConfig = False,  # noqa: FBT001, FBT002  as in Ray
) -> None:
    """Report metrics and, optionally, a checkpoint.

    Metrics alone do not wait for other ranks. With a checkpoint, this returns once it is durable:
    from then on, the run resumes from it after any crash. Every rank must report equally often; the
    files that each rank saves become one folder.

    Args:
        metrics: Numbers by name.
        checkpoint: The folder to save; you may change it when this returns, unless it is deleted.
        checkpoint_dir_name: The name of the checkpoint's folder; by default it is numbered.
        checkpoint_upload_mode: SYNC returns when it is durable. ASYNC returns as soon as you may
            change the files, and waits only if the two checkpoints before are not durable yet; its
            errors are raised by the next report, or at the end. NO_UPLOAD takes a folder that your
            own code has put below the run's.
        delete_local_checkpoint_after_upload: Whether the folder is deleted; by default only with
            ASYNC, which then needs no copy.
        checkpoint_upload_fn: Your own upload: gets the checkpoint and the name of its folder, and
            returns the stored checkpoint, below the run's folder.
        validation: Whether, and how, to validate the checkpoint with the trainer's
            `validation_config`.
    """
    context = worker_context("report")
    if checkpoint is None:
        if validation:
            raise ConfigError("validation was requested, but there is no checkpoint to validate")
        context.reporter.report(metrics)
        return
    mode = checkpoint_upload_mode
    if not isinstance(mode, CheckpointUploadMode):
        raise ConfigError(
            f"checkpoint_upload_mode={shown(mode)} is not a CheckpointUploadMode",
            hint="CheckpointUploadMode.SYNC, .ASYNC or .NO_UPLOAD",
        )
    wanted = validation_data(validation)
    if wanted is not None and not context.job.validates:
        raise ConfigError(
            "validation was requested, but the trainer has no validation_config",
            hint="TorchTrainer(…, validation_config=ValidationConfig(fn=…))",
        )
    _must_be_function(checkpoint_upload_fn)
    deletes = delete_local_checkpoint_after_upload
    if deletes is not None and not is_flag(deletes):
        raise ConfigError(
            f"delete_local_checkpoint_after_upload={shown(deletes)}: not True, False or None,"
            f" {this_is(deletes)}"
        )
    if deletes is None:
        deletes = mode.default_delete_local_checkpoint_after_upload()
    save = Save(
        checkpoint=checkpoint,
        directory=checkpoint_dir_name,
        mode=MODES[mode],
        upload=None if mode is CheckpointUploadMode.NO_UPLOAD else checkpoint_upload_fn,
        deletes=deletes and mode is not CheckpointUploadMode.NO_UPLOAD,
        validation=wanted,
    )
    context.reporter.report(metrics, save)


def get_checkpoint() -> Checkpoint | None:
    """Return the newest checkpoint of the run, None if there is none yet."""
    return worker_context("get_checkpoint").checkpoint


def get_context() -> TrainContext:
    """Return the run, and this worker's place in its group."""
    return TrainContext(worker_context("get_context"))


def get_dataset_shard(dataset_name: str | None = None) -> Any:
    """Return this rank's part of a dataset of the trainer, as a `DataIterator`.

    The name may be left out if there is only one dataset.
    """
    shards = worker_context("get_dataset_shard").job.shards
    if dataset_name is None and len(shards) == 1:
        return next(iter(shards.values()))
    if dataset_name is None or dataset_name not in shards:
        names = ", ".join(map(repr, shards)) or "none"
        raise KeyError(
            f"there is no dataset {dataset_name!r}; the trainer was given: {names}"
            " (TorchTrainer(…, datasets={name: dataset}))"
        )
    return shards[dataset_name]


def get_all_reported_checkpoints(
    consistency_mode: CheckpointConsistencyMode = CheckpointConsistencyMode.VALIDATED,
    timeout_s: float | None = None,
) -> list[ReportedCheckpoint]:
    """Return the checkpoints that are kept, including those of all reports of this rank.

    So it waits for ranks that have reported less often, because one may bring the checkpoint; not
    for a rank that has returned, or that waits for this one at a barrier. VALIDATED also waits
    until no checkpoint is pending validation. After `timeout_s` it returns the current state.
    """
    if not isinstance(consistency_mode, CheckpointConsistencyMode):
        raise ConfigError(
            f"consistency_mode={shown(consistency_mode)} is not a CheckpointConsistencyMode",
            hint="CheckpointConsistencyMode.COMMITTED or .VALIDATED",
        )
    if timeout_s is not None and not is_number(timeout_s):
        raise ConfigError(f"timeout_s={shown(timeout_s)}: not a number of seconds, or None")
    validated = consistency_mode is CheckpointConsistencyMode.VALIDATED
    context = worker_context("get_all_reported_checkpoints")
    return [
        ReportedCheckpoint(checkpoint, metrics, ReportedCheckpointStatus(status))
        for checkpoint, metrics, status in context.checkpoints(
            validated=validated, timeout_s=timeout_s
        )
    ]


def get_preemption_info() -> PreemptionInfo | None:
    """Return which machines will be taken away and when, None if none will be.

    All ranks must call it together, and get the same answer, so that they save in the same step.
    Once a checkpoint is saved after that, the run may be stopped at any moment.
    """
    notice = worker_context("get_preemption_info").notice()
    if notice is None:
        return None
    deadline_ms = None if notice.deadline is None else int(notice.deadline * 1000)
    return PreemptionInfo(deadline_ms, dict(notice.ranks))


def should_checkpoint() -> bool:
    """Return whether to save now, because a machine will go or the group will be resized.

    All ranks must call it together, and get the same answer.
    """
    return worker_context("should_checkpoint").is_save_wanted()


def _must_be_function(upload: object) -> None:
    if upload is not None and not callable(upload):
        raise ConfigError(
            f"checkpoint_upload_fn={shown(upload)}: not a function, {this_is(upload)}",
            hint="it gets a checkpoint and the name of its folder, and returns the stored one",
        )


def worker_context(name: str) -> WorkerContext:
    """Return the context of this worker; raise if `holdfast.train.{name}` is called elsewhere."""
    context = current()
    if context is None:
        raise RuntimeError(
            f"holdfast.train.{name}() works only inside a training function that a trainer runs"
        )
    return context
