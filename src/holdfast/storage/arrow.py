"""How a location looks to pyarrow: for users who open a checkpoint's files themselves."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import unquote, urlsplit

from holdfast.errors import ConfigError


def has_scheme(location: str) -> bool:
    """Whether a location is a URI and not a plain path."""
    return "://" in location


def absolute(location: str | os.PathLike[str]) -> str:
    """Return a location that means the same from any working directory."""
    text = os.fspath(location)
    return text if has_scheme(text) else os.path.abspath(os.path.expanduser(text))


def filesystem_path(location: str) -> str:
    """Return a location without its scheme and query: what filesystems call a path."""
    if not has_scheme(location):
        return location
    parts = urlsplit(location)
    if parts.scheme == "file":
        return unquote(parts.path)
    return f"{parts.netloc.rpartition('@')[2]}{unquote(parts.path)}".rstrip("/")


def arrow_filesystem(location: str) -> Any:
    """Return the pyarrow filesystem that a location is on."""
    try:
        from pyarrow import fs
    except ImportError:
        raise ConfigError(
            "Checkpoint.filesystem is a pyarrow filesystem, and pyarrow is not installed",
            hint="pip install 'holdfast[arrow]', or use as_directory() and plain files",
        ) from None
    if not has_scheme(location):
        return fs.LocalFileSystem()
    try:
        return fs.FileSystem.from_uri(location)[0]
    except (ValueError, OSError, NotImplementedError) as error:
        raise ConfigError(f"pyarrow has no filesystem for {location}: {error}") from error
