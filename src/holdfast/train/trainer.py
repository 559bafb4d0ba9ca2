"""`BaseTrainer` and `DataParallelTrainer`, whose `fit` runs a training function."""

from __future__ import annotations

import copy
import functools
import inspect
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

from holdfast.api.assignment import own_copy
from holdfast.api.config import RunConfig, ScalingConfig, retention_of
from holdfast.api.deprecated import warn_deprecated
from holdfast.api.did_you_mean import rejects_unknown_arguments
from holdfast.api.picklable import must_travel
from holdfast.api.scaling import must_be_settled
from holdfast.api.signature import takes_config
from holdfast.checkpoint import Checkpoint
from holdfast.checkpoint.fetch import sweep_unused
from holdfast.control.record.identity import run_store
from holdfast.control.record.open_run import OpenTrainingRun
from holdfast.control.run.plan import Outcome
from holdfast.core.run.machine import Ending
from holdfast.data.config import DataConfig, shared
from holdfast.engine.local import standard_files
from holdfast.train.arguments import (
    config_or_default,
    dictionary,
    given_arguments,
    must_be_instance,
    named_datasets,
    show_constructor,
    warn_of_deprecated,
)
from holdfast.train.backend import BackendConfig
from holdfast.train.callbacks import check_callbacks
from holdfast.train.display import announce, at_log_level
from holdfast.train.errors import failure_of, interruption_of, resume_hint
from holdfast.train.launch import Launch, drive, engine_for, with_shared_data
from holdfast.train.older_arguments import warn_of_older_arguments
from holdfast.train.reported import ValidationConfig
from holdfast.train.restore import restore as restoring
from holdfast.train.restore.record import RecordBuilder, StoredTrainer, store_trainer
from holdfast.train.restore.references import ScriptStartedTraining, is_loading_script
from holdfast.train.result import Result, result_of, returned_value
from holdfast.train.resume_policy import (
    closing_line,
    opening_line,
    run_exists_error,
    settle_name,
    standing_of,
)

_RECORDED_APART = frozenset(
    {"train_loop_per_worker", "train_loop_config", "scaling_config", "run_config", "datasets"}
)


@rejects_unknown_arguments
class BaseTrainer:
    """Base class of trainers.

    A subclass overrides `training_loop`, which runs in each worker after `setup`.

    Args:
        scaling_config: How many workers there are, and what each needs.
        run_config: The run's name, where it is stored, and which failures it survives.
        datasets: What the workers read, by name.
        metadata: Deprecated; workers read it by `get_context().get_metadata()`.
        resume_from_checkpoint: Deprecated; the checkpoint that a new run starts from.
    """

    __signature__: ClassVar[inspect.Signature]
    _given: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        trainer = super().__new__(cls)
        # For the trainer's record; later changes to the configs do not affect it.
        trainer._given = tuple(map(own_copy, args)), {k: own_copy(v) for k, v in kwargs.items()}
        return trainer

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        show_constructor(cls)

    def __init__(
        self,
        *,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
    ) -> None:
        self.scaling_config = config_or_default(scaling_config, "scaling_config", ScalingConfig)
        must_be_settled(self.scaling_config)
        self.run_config = config_or_default(run_config, "run_config", RunConfig)
        self.datasets = named_datasets(datasets)
        self.metadata = dictionary(metadata, "metadata")
        if resume_from_checkpoint is not None:
            must_be_instance(resume_from_checkpoint, "resume_from_checkpoint", Checkpoint)
        self.resume_from_checkpoint = resume_from_checkpoint
        warn_of_older_arguments(self.scaling_config, self.run_config)
        warn_of_deprecated(type(self).__name__, metadata, resume_from_checkpoint)

    def setup(self) -> None:
        """Prepare the worker; called in it before `training_loop`."""

    def training_loop(self) -> Any:
        """Train; called in the worker, where `holdfast.train.report` works."""
        raise NotImplementedError(f"{type(self).__name__} does not override training_loop")

    # ------------------------------------------------------------------ running

    def fit(self) -> Result:
        """Run to the end; a run of the same name and storage path is resumed.

        Raises `TrainingFailedError`, with the `Result` so far, if the run fails for good.
        """
        if is_loading_script():
            raise ScriptStartedTraining
        standard_files.complete()
        config = self.run_config
        check_callbacks(config.callbacks)
        self._must_travel()
        launch = with_shared_data(self._launch())
        engine = engine_for(launch)  # first: it starts fastest before storage code is loaded
        try:
            config = self.run_config = settle_name(config)
            store = run_store(config.storage_path, config.name, config.storage_filesystem)
            with OpenTrainingRun.open(store, name=config.name, waits=True) as run:
                try:
                    self._begin(run)
                    with at_log_level(config.logging_config.log_level):
                        outcome = drive(launch, run, engine)
                finally:
                    engine.close()  # so that no worker writes once the lease is released
                return self._result(run, outcome)
        finally:
            engine.close()
            sweep_unused()  # workers end too abruptly to clean up themselves

    def as_trainable(self) -> Callable[[dict[str, Any]], None]:
        """Return a function that a study can run; `Tuner(trainer)` calls this itself."""
        from holdfast.train.as_trial import as_trainable

        return as_trainable(self)

    def _sharing(self) -> Self:
        """Return a copy whose in-memory datasets are in shared memory, so that it pickles small.

        Other processes can use it while this process lives and holds the copy.
        """
        copied = copy.copy(self)
        copied.datasets = shared(self.datasets)
        args, kwargs = self._given
        copied._given = args, {**kwargs, "datasets": None}  # noqa: SLF001  # a copy of this one
        return copied

    def _launch(self) -> Launch:
        function, config = self._work()
        return Launch(
            function=function,
            config=config,
            scaling=self.scaling_config,
            run=self.run_config,
            datasets=self.datasets,
            first_checkpoint=self.resume_from_checkpoint,
            metadata=self.metadata,
        )

    def _must_travel(self) -> None:
        """Raise, before anything starts, if the training function cannot be sent to workers."""
        if self.scaling_config.max_workers > 0:
            must_travel(*self._work())

    def _work(self) -> tuple[Callable[..., Any], Mapping[str, Any] | None]:
        """Return the function that workers call, and its config, None to call it without one."""
        return functools.partial(_train, self._sharing()), None

    def _begin(self, run: OpenTrainingRun) -> None:
        """Announce what the launch does, and store the record that `restore` needs."""
        config = self.run_config
        if config.resume == "never" and run.lease.epoch > 1:
            raise run_exists_error(run.store)  # another driver was faster
        standing = standing_of(run.record, run.history.run)
        line = opening_line(
            run.identity.name, run.store.url, standing, policy=config.resume, now=time.time()
        )
        announce(line, config.logging_config.log_level)
        store_trainer(run, self._record)

    def _record(self, builder: RecordBuilder) -> StoredTrainer:
        """Return the record of this trainer."""
        kind = type(self)
        given = given_arguments(kind.__init__, self, *self._given[0], **self._given[1])
        return StoredTrainer(
            trainer=f"{kind.__module__}:{kind.__qualname__}",
            function=builder.function(getattr(self, "train_loop_per_worker", None)),
            config=builder.config(getattr(self, "train_loop_config", None)),
            run_config=builder.fields(self.run_config),
            scaling_config=builder.fields(self.scaling_config),
            arguments=builder.values(
                {name: value for name, value in given.items() if name not in _RECORDED_APART}
            ),
            datasets=sorted(self.datasets),
            not_kept=builder.not_kept,
        )

    def _result(self, run: OpenTrainingRun, outcome: Outcome) -> Result:
        config = self.run_config
        result = result_of(
            run.store,
            run.record,
            retention_of(config.checkpoint_config),
            name=run.identity.name,
            config=getattr(self, "train_loop_config", None),
            filesystem=config.storage_filesystem,
        )
        ending = outcome.over.ending
        if ending is Ending.SUCCEEDED:
            if outcome.value is not None:
                result.return_value = returned_value(outcome.value)
            return result
        newest = run.record.newest()
        checkpoint = newest.directory if newest else None
        if ending in (Ending.STOPPED, Ending.PREEMPTED):
            line = closing_line(run.identity.name, ending, checkpoint)
            announce(line, config.logging_config.log_level)
            raise interruption_of(ending, line, result)
        error = failure_of(outcome, hint=resume_hint(checkpoint, outcome.over.exits))
        error.result = result
        result.error = error
        raise error

    # ------------------------------------------------------------------ deprecated

    @classmethod
    def restore(
        cls,
        path: str | os.PathLike[str],
        storage_filesystem: object | None = None,
        datasets: Mapping[str, Any] | None = None,
        scaling_config: ScalingConfig | None = None,
        **kwargs: Any,
    ) -> Self:
        """Return a trainer that resumes the run at `path`; deprecated.

        Arguments that are not passed are those of the last launch, except for datasets, which are
        not stored. Instead, build the same trainer with the same `(storage_path, name)`.

        Raises `ValueError` if there is no such run, or its record does not suffice.
        """
        warn_deprecated(
            f"{cls.__name__}.restore is deprecated: build the trainer as before, with the same"
            " RunConfig(storage_path, name), and fit() carries on"
        )
        given = {"datasets": datasets, "scaling_config": scaling_config, **kwargs}
        kind = None if cls is BaseTrainer else cls
        trainer: Self = restoring.restored_trainer(kind, path, storage_filesystem, given)
        return trainer

    @classmethod
    def can_restore(
        cls, path: str | os.PathLike[str], storage_filesystem: object | None = None
    ) -> bool:
        """Whether `restore(path)`, given the datasets, would return a working trainer; deprecated.

        Changes nothing.
        """
        warn_deprecated(
            f"{cls.__name__}.can_restore is deprecated: fit() carries on by itself with a run of"
            " the same RunConfig(storage_path, name), and begins one if there is none"
        )
        return restoring.can_restore(path, storage_filesystem)


@rejects_unknown_arguments
class DataParallelTrainer(BaseTrainer):
    """Runs one function on several workers, and recovers from failures.

    Args:
        train_loop_per_worker: The training function; it takes no argument, or a dictionary.
        train_loop_config: That dictionary.
        backend_config: Prepares a framework in the workers.
        scaling_config: How many workers there are, and what each needs.
        run_config: The run's name, where it is stored, and which failures it survives.
        datasets: What the workers read, by name: datasets, or functions that make them.
        dataset_config: How the datasets are split among the workers.
        resume_from_checkpoint: Deprecated; the checkpoint that a new run starts from.
        metadata: Deprecated; workers read it by `get_context().get_metadata()`.
        validation_config: How checkpoints are validated.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: Mapping[str, Any] | None = None,
        backend_config: BackendConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        dataset_config: DataConfig | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
        metadata: Mapping[str, Any] | None = None,
        validation_config: ValidationConfig | None = None,
    ) -> None:
        takes_config(train_loop_per_worker)  # raises if it is no training function
        self.train_loop_per_worker = train_loop_per_worker
        if train_loop_config is not None:
            dictionary(train_loop_config, "train_loop_config")
        self.train_loop_config = train_loop_config
        if backend_config is not None:
            must_be_instance(backend_config, "backend_config", BackendConfig)
        if dataset_config is not None:
            must_be_instance(dataset_config, "dataset_config", DataConfig)
        if validation_config is not None:
            must_be_instance(validation_config, "validation_config", ValidationConfig)
        self.backend_config, self.dataset_config = own_copy(backend_config), dataset_config
        self.validation_config = own_copy(validation_config)
        super().__init__(
            scaling_config=scaling_config,
            run_config=run_config,
            datasets=datasets,
            metadata=metadata,
            resume_from_checkpoint=resume_from_checkpoint,
        )

    def _must_travel(self) -> None:
        super()._must_travel()
        if self.validation_config is not None:
            must_travel(self.validation_config.fn, None, role="validation")

    def _work(self) -> tuple[Callable[..., Any], Mapping[str, Any] | None]:
        given = self.train_loop_config
        takes = takes_config(self.train_loop_per_worker, is_given=given is not None)
        return self.train_loop_per_worker, (given or {}) if takes else None

    def _launch(self) -> Launch:
        backend = BackendConfig() if self.backend_config is None else self.backend_config
        return replace(
            super()._launch(),
            setups=backend.setups(),
            modules=backend.modules(),
            later_modules=backend.later_modules(),
            dataset_config=self.dataset_config,
            backend=self.backend_config,
            validation=self.validation_config,
        )

    @classmethod
    def restore(  # type: ignore[override]  # as in Ray, whose classes do not agree either
        cls,
        path: str | os.PathLike[str],
        train_loop_per_worker: Callable[..., Any] | None = None,
        train_loop_config: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Return a trainer that resumes the run at `path`, as `BaseTrainer.restore`; deprecated."""
        return super().restore(
            path,
            train_loop_per_worker=train_loop_per_worker,
            train_loop_config=train_loop_config,
            **kwargs,
        )


def _train(trainer: BaseTrainer) -> Any:
    trainer.setup()
    return trainer.training_loop()


show_constructor(BaseTrainer)
