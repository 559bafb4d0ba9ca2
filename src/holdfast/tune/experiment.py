"""`Experiment`: a study as `tune.run` and `run_experiments` take it."""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.api.checks import this_is
from holdfast.api.config import CheckpointConfig, FailureConfig, RunConfig, SyncConfig
from holdfast.api.plain_data import location_of
from holdfast.checkpoint import Checkpoint
from holdfast.core.names import shown
from holdfast.errors import ConfigError
from holdfast.storage.foreign.arrow import has_scheme
from holdfast.tune.errors import InvalidStudy
from holdfast.tune.logger import callbacks_of_loggers
from holdfast.tune.stopper import Stopper, stopper_of
from holdfast.tune.study.names import name_for
from holdfast.tune.study.older_arguments import checkpoints_of, warn_of_older
from holdfast.tune.study.spec import StudySpec, space_of
from holdfast.tune.trainables.class_checkpoints import folder_of
from holdfast.tune.trainables.kinds import runnable
from holdfast.tune.trial import Trial
from holdfast.tune.tune_config import TuneConfig

__all__ = ["Experiment", "Trial"]


class Experiment:
    """What to run, with which configs, until when, and where to store it.

    Args:
        name: The folder of the study, below its storage path; if it is empty or None, the name of
            the trainable with the time, made unique.
        run: A function of a config, a `Trainable` class, or the registered name of one.
        stop: When a trial ends; see `RunConfig`.
        config: The search space, and constants for every trial.
        resources_per_trial: What a trial reserves, if the trainable does not define it.
        storage_path: Where the study is stored. `upload_dir` means the same and comes first, then
            `local_dir`.
        restore: A checkpoint, or its path, from which every trial starts until it has its own.
        export_formats: Formats in which to export models when trials end, by any names that the
            class knows, such as "model", "checkpoint", "onnx" or "h5".
        time_budget_s: After how long the study ends.

    The other arguments are those of `TuneConfig`, `RunConfig`, `CheckpointConfig` and
    `FailureConfig`, or deprecated.
    """

    def __init__(
        self,
        name: str | None,
        run: Any,
        stop: Any = None,
        config: Mapping[str, Any] | None = None,
        resources_per_trial: Any = None,
        num_samples: int = 1,
        local_dir: str | os.PathLike[str] | None = None,
        upload_dir: str | None = None,
        trial_name_creator: Callable[[Any], str] | None = None,
        loggers: Sequence[Any] | None = None,
        *,
        time_budget_s: Any = None,
        storage_path: str | os.PathLike[str] | None = None,
        storage_filesystem: Any = None,
        sync_config: SyncConfig | None = None,
        checkpoint_config: CheckpointConfig | None = None,
        trial_dirname_creator: Callable[[Any], str] | None = None,
        log_to_file: bool | str | Sequence[str] = False,
        export_formats: Sequence[str] | None = None,
        max_failures: int = 0,
        restore: str | os.PathLike[str] | Checkpoint | None = None,
        sync_to_cloud: Any = None,
        sync_to_driver: Any = None,
        sync_function: Any = None,
        checkpoint_freq: int = 0,
        checkpoint_at_end: bool = False,
        keep_checkpoints_num: int | None = None,
        checkpoint_score_attr: str | None = None,
    ) -> None:
        warn_of_older(Experiment.__init__, dict(locals()))
        self.trainable = runnable(run)
        made_up, is_made_up = name_for(self.trainable.name)
        self.name, self._is_unnamed = name or made_up, is_made_up and not name
        self.stop, self.config = stop, space_of(config)
        self.num_samples, self.time_budget_s = num_samples, time_budget_s
        self.resources_per_trial, self.restore = resources_per_trial, _location(restore)
        self.max_failures, self.log_to_file = max_failures, log_to_file
        self.trial_name_creator = trial_name_creator
        self.trial_dirname_creator = trial_dirname_creator
        self.sync_config = sync_config
        self.storage_filesystem = storage_filesystem
        self.upload_dir = upload_dir or getattr(sync_config, "upload_dir", None)
        self.storage_path = self.upload_dir or local_dir or storage_path
        self.loggers = None if loggers is None else callbacks_of_loggers(loggers)
        self.export_formats = _formats(export_formats)
        self.checkpoint_config = checkpoints_of(
            checkpoint_config,
            checkpoint_freq=checkpoint_freq,
            checkpoint_at_end=checkpoint_at_end,
            keep_checkpoints_num=keep_checkpoints_num,
            checkpoint_score_attr=checkpoint_score_attr,
        )
        self.trainable.program(
            self.checkpoint_config, self.export_formats
        )  # raises if it cannot run

    @classmethod
    def from_json(cls, name: str, spec: Any) -> Experiment:
        """Return the experiment that a dictionary with a `run` describes.

        An `env` in it moves to the config, where RLlib expects it.
        """
        if not isinstance(spec, Mapping) or "run" not in spec:
            raise InvalidStudy(
                f"the experiment {name!r} is {shown(spec)}: there is no `run` in it",
                hint="{'my_study': {'run': trainable, 'stop': {'training_iteration': 10}}}",
            )
        given = dict(spec)
        if "env" in given:
            config: Mapping[str, Any] | None = given.get("config")
            given["config"] = {**(config or {}), "env": given.pop("env")}
        _must_be_arguments(name, given)
        return cls(name, **given)

    def to_study(
        self,
        *,
        fail_fast: bool | str = False,
        run_options: Mapping[str, Any] | None = None,
        **search: Any,
    ) -> StudySpec:
        """Return the study that this describes.

        `search` are fields of `TuneConfig`, and `run_options` of `RunConfig`, that an experiment
        does not have.
        """
        tune_config = TuneConfig(
            num_samples=self.num_samples,
            time_budget_s=self.time_budget_s,
            trial_name_creator=self.trial_name_creator,
            trial_dirname_creator=self.trial_dirname_creator,
            **search,
        )
        run_config = RunConfig(
            name=self.name,
            storage_path=self.storage_path,
            storage_filesystem=self.storage_filesystem,
            failure_config=FailureConfig(max_failures=self.max_failures, fail_fast=fail_fast),
            checkpoint_config=self.checkpoint_config,
            sync_config=self.sync_config,
            stop=self.stop,
            log_to_file=self.log_to_file,
            **(run_options or {}),
        )
        return StudySpec(
            trainable=self.trainable,
            tune_config=tune_config,
            run_config=run_config,
            param_space=self.config,
            name=self.name,
            has_made_up_name=self._is_unnamed,
            resources=self.resources_per_trial,
            restore_path=self.restore,
            export_formats=self.export_formats,
            loggers=self.loggers,
        )

    # ------------------------------------------------------------------ properties

    @property
    def is_named(self) -> bool:
        """Whether its name was given by the user."""
        return not self._is_unnamed

    @property
    def stopper(self) -> Stopper:
        """Decides when a trial ends."""
        return stopper_of(self.stop)

    @property
    def run_identifier(self) -> str:
        """The name of the trainable."""
        return self.trainable.name

    @property
    def path(self) -> str:
        """The study's folder."""
        return self.to_study().store().url

    @property
    def local_path(self) -> str | None:
        """The study's folder, None if it is not on this machine."""
        local = self.to_study().store().local
        return None if local is None else local.root

    @property
    def remote_path(self) -> str | None:
        """The study's folder, None if it is on this machine."""
        return self.path if self.local_path is None else None

    @property
    def public_spec(self) -> dict[str, Any]:
        """The part that searchers and schedulers see."""
        return {
            "stop": self.stop,
            "num_samples": self.num_samples,
            "time_budget_s": self.time_budget_s,
        }

    def __repr__(self) -> str:
        return f"Experiment({self.name!r}, {self.trainable.name})"


def _must_be_arguments(name: str, spec: Mapping[str, Any]) -> None:
    """Raise if a dictionary has a key that is not an argument of `Experiment`."""
    arguments = list(inspect.signature(Experiment).parameters)
    arguments.remove("name")
    for key in spec:
        if key not in arguments:
            near = difflib.get_close_matches(str(key), arguments, n=1)
            raise InvalidStudy(
                f"the experiment {name!r} has {key!r}, which is not an argument of Experiment",
                hint=f"{near[0]!r}, if that was meant"
                if near
                else f"one of {', '.join(arguments)}",
            )


def _location(restore: Any) -> str | None:
    """Return the location of the checkpoint that trials start from; raise if it is missing."""
    if restore is None:
        return None
    if isinstance(restore, Checkpoint):
        return location_of(restore)
    location: str = os.fspath(restore)
    if has_scheme(location):
        return location
    return os.path.abspath(folder_of(location))


def _formats(given: Sequence[str] | None) -> tuple[str, ...]:
    formats = (given,) if isinstance(given, str) else tuple(given or ())
    for format_ in formats:
        if not isinstance(format_, str):
            raise ConfigError(
                f"export_formats={shown(format_)}: {this_is(format_)}, not the name of a format",
                hint="export_formats=['model'], passed to _export_model(formats, folder)",
            )
    return formats
