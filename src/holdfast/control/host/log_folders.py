"""The folder for the logs of workers: with their run, or on this machine if storage is remote.

On this machine it is the first of these that can be written to; only this user can read it:

    $HOLDFAST_LOG_DIR                    an error if it cannot be written to
    $XDG_CACHE_HOME/holdfast/logs        or ~/.cache/holdfast/logs
    $TMPDIR/holdfast-<uid>/logs          containers often have a home that is read-only, or none

If there is none, a warning is logged and workers print to the null device: a run needs no logs.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

from holdfast import settings
from holdfast.errors import ConfigError, HoldfastError
from holdfast.storage.base import Store
from holdfast.storage.private_folders import find_private_folder, make_private, private_folder
from holdfast.storage.uris import from_home

log = logging.getLogger(__name__)

NOWHERE = os.devnull  # instead of a folder


def log_folder(store: Store, run_id: str) -> str:
    """Return the folder for the logs of a run, `NOWHERE` if there can be none."""
    if store.local is not None:
        return store.local.path("logs")
    if (configured := settings.log_folder()) is not None:
        return _make_configured(configured, run_id)
    cache, refusals = _cache_folder(), []
    if cache is None:
        refusals.append("this user has no home")
    else:
        try:
            return _make_in_cache(cache, run_id)
        except (OSError, HoldfastError) as error:
            refusals.append(_reason(error))
    try:
        return private_folder("logs", run_id)
    except (OSError, HoldfastError) as error:
        refusals.append(_reason(error))
    log.warning(
        "what workers print is lost: %s; set HOLDFAST_LOG_DIR to a folder that can be written to",
        "; ".join(refusals),
    )
    return NOWHERE


def find_log_folder(store: Store, run_id: str) -> str:
    """Return the folder with the logs of a run; the usual one if there is none."""
    if store.local is not None:
        return store.local.path("logs")
    places = list(_places(run_id))
    return next((path for path in places if os.path.isdir(path)), places[0])


def log_at(folder: str, *parts: str) -> str:
    """Return the path of a log in the folder for logs."""
    return folder if folder == NOWHERE else os.path.join(folder, *parts)


def _places(run_id: str) -> Iterator[str]:
    if (configured := settings.log_folder()) is not None:
        yield os.path.join(configured, run_id)
    if (cache := _cache_folder()) is not None:
        yield os.path.join(cache, "holdfast", "logs", run_id)
    if (private := find_private_folder("logs")) is not None:
        yield os.path.join(private, run_id)
    yield NOWHERE


def _cache_folder() -> str | None:
    """Return this user's folder for caches, None if there is none."""
    configured = settings.cache_home()
    if configured is not None and os.path.isabs(configured):  # the standard ignores relative paths
        return configured
    home = os.path.expanduser("~")
    return os.path.join(home, ".cache") if os.path.isabs(home) else None


def _make_in_cache(cache: str, run_id: str) -> str:
    os.makedirs(cache, mode=0o700, exist_ok=True)
    path = cache
    for part in ("holdfast", "logs", run_id):
        path = os.path.join(path, part)
        make_private(path)
    return _writable(path)


def _make_configured(configured: str, run_id: str) -> str:
    folder = os.path.join(os.path.abspath(from_home(configured)), run_id)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        return _writable(folder)
    except OSError as error:
        raise ConfigError(
            f"HOLDFAST_LOG_DIR={configured}: logs cannot be written there: {error.strerror}",
            hint="name a folder that this user may write to, or unset it",
        ) from error


def _writable(folder: str) -> str:
    """Return `folder` if files can be created in it: it may be on a read-only disk."""
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(13, "it cannot be written to", folder)
    return folder


def _reason(error: OSError | HoldfastError) -> str:
    return error.message if isinstance(error, HoldfastError) else str(error)
