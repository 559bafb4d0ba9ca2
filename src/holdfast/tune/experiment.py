"""`Experiment`: a study as `tune.run` and `run_experiments` are told it."""

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
from holdfast.tune.callback import Callback
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
    """What to run, with which configs, until when, and where it is kept.

    Args:
        name: The folder of the study, below where it is kept; if it is empty or None, the name of
            the trainable with the time, and something more if there is such a folder already.
        run: A function of a config, a `Trainable` class, or the name of one that was registered.
        stop: When a trial has run for long enough; see `RunConfig`.
        config: What to search for, and what every trial is given besides.
        resources_per_trial: What a trial reserves, if the trainable does not say it.
        storage_path: Where the study is kept. `upload_dir` says the same and comes first, then
            `local_dir`.
        restore: A checkpoint, or its path, that every trial begins with until it has one of its
            own.
        export_formats: What models are written as when trials end, by any names that the class
            knows, such as "model", "checkpoint", "onnx" or "h5".
        time_budget_s: After how long the study ends.

    What else there is has its meaning from `TuneConfig`, `RunConfig`, `CheckpointConfig` and
    `FailureConfig`, or is of an older era.
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
        self.trainable.program(self.checkpoint_config, self.export_formats)  # or it is refused now

    @classmethod
    def from_json(cls, name: str, spec: Any) -> Experiment:
        """Return the experiment that a dictionary with a `run` describes.

        An `env` in it goes to the config, as environments of RLlib are given.
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
        _must_be_known(name, given)
        return cls(name, **given)

    def to_study(
        self,
        *,
        fail_fast: bool | str = False,
        run_options: Mapping[str, Any] | None = None,
        **search: Any,
    ) -> StudySpec:
        """Return the study that this describes.

        What is no part of an experiment is given now: `search` are fields of `TuneConfig`,
        `run_options` of `RunConfig`.
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
        loggers: Sequence[Callback] | None = self.loggers
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
            loggers=loggers,
        )

    # ------------------------------------------------------------------ to look at

    @property
    def is_named(self) -> bool:
        """Whether its name was given, and not made up."""
        return not self._is_unnamed

    @property
    def stopper(self) -> Stopper:
        """Who says when a trial has run for long enough."""
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
        """What searchers and schedulers may know of it."""
        return {
            "stop": self.stop,
            "num_samples": self.num_samples,
            "time_budget_s": self.time_budget_s,
        }

    def __repr__(self) -> str:
        return f"Experiment({self.name!r}, {self.trainable.name})"


def _must_be_known(name: str, spec: Mapping[str, Any]) -> None:
    """Raise if an experiment as a dictionary has a key that is no argument of `Experiment`."""
    known = [one for one in inspect.signature(Experiment).parameters if one != "name"]
    for key in spec:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            raise InvalidStudy(
                f"the experiment {name!r} has {key!r}, which is nothing that is said of one",
                hint=f"{near[0]!r}, if that was meant" if near else f"one of {', '.join(known)}",
            )


def _location(restore: Any) -> str | None:
    """Return where the checkpoint is that trials begin with; raise if it is not there."""
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
    for one in formats:
        if not isinstance(one, str):
            raise ConfigError(
                f"export_formats={shown(one)}: {this_is(one)}, not the name of a format",
                hint="export_formats=['model'], which _export_model(formats, folder) is given",
            )
    return formats
