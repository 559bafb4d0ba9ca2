"""Trials by the names that Ray's users know."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeAlias

from holdfast.core.study import trial as core
from holdfast.core.study import view
from holdfast.core.study.trial import Status

__all__ = ["StudyView", "Trial"]


class Home(Protocol):
    """Where the files of a study are."""

    def path(self, folder: str) -> str:
        """Return where a folder of the study is."""
        ...

    def local_path(self, folder: str) -> str | None:
        """Return where a folder of the study is on this machine, None if it is elsewhere."""
        ...

    def checkpoint(self, folder: str, directory: str) -> Any:
        """Return the checkpoint in a directory of the folder of a trial."""
        ...


@dataclass(eq=False, repr=False)
class Trial(core.Trial):
    """One configuration in a study, as schedulers and callbacks see it.

    Attributes:
        home: Where the files of its study are, None if that is not known.
    """

    PENDING: ClassVar[str] = Status.PENDING
    RUNNING: ClassVar[str] = Status.RUNNING
    PAUSED: ClassVar[str] = Status.PAUSED
    TERMINATED: ClassVar[str] = Status.TERMINATED
    ERROR: ClassVar[str] = Status.ERROR

    home: Home | None = field(default=None)

    @property
    def num_failures(self) -> int:
        """How often it was lost since the study was last launched."""
        return sum(self.run.losses.values())

    @property
    def metric_analysis(self) -> dict[str, dict[str, float]]:
        """The statistics of every metric, by its path."""
        return {name: statistics.summary() for name, statistics in self.statistics.items()}

    @property
    def path(self) -> str | None:
        """Where its files are, None if it is not known."""
        return None if self.home is None else self.home.path(self.folder)

    @property
    def local_path(self) -> str | None:
        """The folder of its files on this machine, None if they are elsewhere."""
        return None if self.home is None else self.home.local_path(self.folder)

    @property
    def logdir(self) -> str | None:
        """The same as `local_path`, as Ray called it before 2.7."""
        return self.local_path

    @property
    def relative_logdir(self) -> str:
        """Where its files are, below the study's folder."""
        return self.folder

    @property
    def checkpoint(self) -> Any:
        """The newest checkpoint, None if there is none."""
        newest = self.checkpoints.newest()
        if newest is None or self.home is None:
            return None
        return self.home.checkpoint(self.folder, newest.directory)

    def has_checkpoint(self) -> bool:
        """Whether it has been saved."""
        return bool(self.checkpoints.usable())

    @property
    def error_file(self) -> str | None:
        """The file that says why it failed; None if it has not, or if the file is elsewhere."""
        if self.local_path is None or not (self.error or self.num_failures):
            return None
        return f"{self.local_path}/error.txt"

    @property
    def start_time(self) -> float | None:
        """When it first ran, in seconds since 1970; None before."""
        return self.started_at

    @property
    def custom_trial_name(self) -> str | None:
        """What `trial_name_creator` calls it."""
        return self.custom_name


StudyView: TypeAlias = view.StudyView[Trial]
