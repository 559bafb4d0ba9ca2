"""The storage of a run, for training functions that store files themselves."""

from __future__ import annotations

import os
from typing import Any

from holdfast.core.names import broken_path_rule, shown
from holdfast.errors import ConfigError
from holdfast.storage.base import Store
from holdfast.storage.foreign.arrow import filesystem_of, path_of
from holdfast.storage.locate import describe
from holdfast.storage.uris import without_secrets


class RunStorage:
    """The folder of a run, or of a trial, and the filesystem that it is on.

    Paths are as `storage_filesystem` takes them: without a scheme.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def url(self) -> str:
        """The run's folder as a user would write it: a local path, or a URI."""
        return self._store.url

    @property
    def storage_path(self) -> str:
        """The folder that the run's folder is in, as a user would write it."""
        return self.url.rpartition("/")[0]

    @property
    def storage_filesystem(self) -> Any:
        """The filesystem: the one the user passed, or else one of pyarrow's."""
        return filesystem_of(describe(self._store))

    @property
    def storage_fs_path(self) -> str:
        """The folder that the run's folder is in."""
        return os.path.dirname(self.experiment_fs_path)

    @property
    def experiment_dir_name(self) -> str:
        """The name of the run's folder."""
        return os.path.basename(self.experiment_fs_path)

    @property
    def experiment_fs_path(self) -> str:
        """The run's folder."""
        return path_of(self._store)

    def build_checkpoint_path_from_name(self, checkpoint_name: str) -> str:
        """Return the path for a checkpoint of that name; nothing is created there."""
        if not isinstance(checkpoint_name, str):
            raise ConfigError(f"checkpoint_name={shown(checkpoint_name)}: not the name of a folder")
        if rule := broken_path_rule(checkpoint_name):
            raise ConfigError(
                f"checkpoint_name={shown(checkpoint_name)}: {rule}",
                hint="name a folder below the run's, such as 'epoch-3'",
            )
        return f"{self.experiment_fs_path}/{checkpoint_name}"

    def __repr__(self) -> str:
        return f"RunStorage({without_secrets(self.url)!r})"
