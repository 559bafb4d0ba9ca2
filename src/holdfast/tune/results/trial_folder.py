"""Reads a trial from its folder alone: results, config, checkpoints, error.

For trials that were copied from elsewhere, and for those whose record is damaged. While the study's
own record is available, it holds more.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from holdfast.checkpoint import Checkpoint
from holdfast.checkpoint.manifests import PRIVATE, read_manifests
from holdfast.core.checkpoint.manifest import Manifest
from holdfast.core.metric_history import flattened
from holdfast.core.study.statistics import Statistics
from holdfast.core.study.trial import Status
from holdfast.data.libraries import library
from holdfast.errors import ObjectMissing
from holdfast.storage.base import Store
from holdfast.storage.foreign.arrow import absolute, has_scheme, path_of
from holdfast.storage.locate import child, describe, open_store, reopen
from holdfast.storage.records import is_too_deep
from holdfast.storage.uris import without_secrets
from holdfast.tune.errors import TuneError
from holdfast.tune.logger.csv import csv_rows
from holdfast.tune.logger.json import json_rows
from holdfast.tune.result import (
    CHECKPOINT_DIR_NAME,
    CONFIG,
    DONE,
    EXPR_ERROR_FILE,
    EXPR_PARAM_FILE,
    EXPR_PROGRESS_FILE,
    EXPR_RESULT_FILE,
    TRIAL_ID,
    Result,
)
from holdfast.tune.results.summary import StoredTrial

log = logging.getLogger(__name__)

# First words of the entries of an error.txt.
FAILED, LOST, AGAIN = "Failed for good at ", "Lost, to be tried again, at ", "Tried again at "
_NAMES_MAX = 5


def read_rows(store: Store) -> list[dict[str, Any]] | None:
    """Return the results in the folder of a trial, each iteration once; None if it has no file."""
    for name, parse in ((EXPR_RESULT_FILE, json_rows), (EXPR_PROGRESS_FILE, csv_rows)):
        data = _read(store, name)
        if data is not None:
            return parse(data)
    return None


def frame_of(rows: Iterable[Mapping[str, Any]]) -> Any:
    """Return results as a pandas DataFrame; `b` nested inside `a` is in the column `a/b`."""
    return library("pandas").DataFrame([flattened(row) for row in rows])


class FrameAt:
    """Reads the table of a trial's results when it is called; can be pickled."""

    def __init__(self, store: Store, folder: str) -> None:
        self._store, self._folder = store, folder

    def __call__(self) -> Any:
        rows = read_rows(child(self._store, self._folder))
        if rows is None:
            log.warning("there are no results in %s/%s", self._store.url, self._folder)
        return frame_of(rows or ())

    def described(self) -> dict[str, Any]:
        """Return the data that reopens its store, secrets included."""
        return describe(self._store)

    def __reduce__(self) -> tuple[object, ...]:
        return _frame_at, (describe(self._store), self._folder)


def _frame_at(store: Mapping[str, Any], folder: str) -> FrameAt:
    return FrameAt(reopen(store), folder)


# ---------------------------------------------------------------------- one trial


def result_at(path: str | os.PathLike[str], filesystem: Any | None = None) -> Result:
    """Return the result in the folder of a trial; raise `RuntimeError` if it is not one."""
    location = os.fspath(path) if filesystem is not None else absolute(path)
    store = open_store(location, filesystem)
    rows = read_rows(store)
    if rows is None:
        raise RuntimeError(_why_not_a_trial(store, location, filesystem))
    metrics = rows[-1] if rows else None
    config = _config_in(store)
    if config is None and metrics is not None and isinstance(metrics.get(CONFIG), dict):
        config = metrics[CONFIG]
    checkpoints = list(_checkpoints(store, location, filesystem, rows))
    frame = FrameAt(store, "")
    return Result(
        metrics=metrics,
        checkpoint=checkpoints[-1][0] if checkpoints else None,
        error=_error_in(store, metrics),
        path=path_of(store).rstrip("/"),
        metrics_dataframe=frame,
        best_checkpoints=checkpoints,
        _storage_filesystem=filesystem,
        config=config,
        _describe=frame.described,
    )


def _checkpoints(
    store: Store, location: str, filesystem: Any | None, rows: list[dict[str, Any]]
) -> Iterator[tuple[Checkpoint, dict[str, Any]]]:
    """Yield the trial's checkpoints, oldest first, with the results they were saved with."""
    by_name = {str(row.get(CHECKPOINT_DIR_NAME)): row for row in rows}
    committed = dict(read_manifests(store))
    parent, _ = _parent(location)
    # In a study of ours, a folder without a manifest is an unfinished checkpoint.
    is_ours = PRIVATE in store.folders() or (
        bool(parent) and PRIVATE in open_store(parent, filesystem).folders()
    )
    for folder in store.folders():
        if not folder.startswith("checkpoint_"):
            continue
        manifest = committed.get(folder)
        if isinstance(manifest, Manifest):
            metrics = by_name.get(folder) or dict(manifest.metrics)
        elif is_ours:
            continue
        else:
            metrics = by_name.get(folder, {})
        yield Checkpoint(_path_inside(location, folder), filesystem), metrics


def _config_in(store: Store) -> dict[str, Any] | None:
    data = _read(store, EXPR_PARAM_FILE)
    try:
        config = None if data is None else json.loads(data)
    except (ValueError, RecursionError):
        log.warning("%s/%s is not valid JSON", store.url, EXPR_PARAM_FILE)
        return None
    return config if isinstance(config, dict) and not is_too_deep(config) else None


def last_failure(text: str) -> str:
    """Return the final failure in the text of an error.txt; '' if the trial was tried again."""
    start = max(text.rfind(first_words) for first_words in (FAILED, LOST, AGAIN))
    if start < 0:
        return text.strip()  # written by another library
    entry = text[start:].strip()
    return entry if entry.startswith(FAILED) else ""


def _error_in(store: Store, metrics: Mapping[str, Any] | None) -> Exception | None:
    if metrics is not None and metrics.get(DONE) is True:
        return None  # it failed, was tried again, and finished
    data = _read(store, EXPR_ERROR_FILE)
    text = "" if data is None else last_failure(data.decode(errors="replace"))
    return TuneError(text) if text else None


def _failures_in(store: Store) -> int:
    """Return how often a trial was lost according to its error.txt."""
    data = _read(store, EXPR_ERROR_FILE)
    if data is None:
        return 0
    text = data.decode(errors="replace")
    return max(1, text.count(FAILED) + text.count(LOST))


def _why_not_a_trial(store: Store, location: str, filesystem: Any | None) -> str:
    """Return why a folder is not a trial's, and which folder may have been meant."""
    why = f"{without_secrets(location)} is not the folder of a trial: it has no {EXPR_RESULT_FILE}"
    trials = [name for name in store.folders() if _is_trial(child(store, name))]
    if trials:
        names = ", ".join(map(repr, trials[:_NAMES_MAX]))
        rest = f" and {len(trials) - _NAMES_MAX} more" if len(trials) > _NAMES_MAX else ""
        return f"{why}; it is the folder of a study, with the trials {names}{rest}"
    parent, name = _parent(location)
    if parent and _is_trial(open_store(parent, filesystem)):
        return f"{why}; {name} is part of the trial in {without_secrets(parent)}"
    if not store.folders() and next(iter(store.entries()), None) is None:
        return f"{why}; there is nothing there"
    return why


def _is_trial(store: Store) -> bool:
    names = (EXPR_RESULT_FILE, EXPR_PROGRESS_FILE, EXPR_PARAM_FILE)
    return any(store.stat(name) is not None for name in names)


# ---------------------------------------------------------------------- all trials of a folder


def stored_trials(store: Store, except_folders: Collection[str] = ()) -> list[StoredTrial]:
    """Return the trials of a study, read from their folders."""
    trials = []
    for name in store.folders():
        home = child(store, name)
        if not name.startswith(".") and name not in except_folders and _is_trial(home):
            trials.append(_stored_trial(home, name, f"{store.url.rstrip('/')}/{name}"))
    return trials


def _stored_trial(store: Store, folder: str, location: str) -> StoredTrial:
    rows = read_rows(store) or []
    last = rows[-1] if rows else {}
    checkpoints = list(_checkpoints(store, location, None, rows))
    error = _error_in(store, last)
    trial_id = str(last.get(TRIAL_ID, folder))
    trainable_name, has_default_name, _ = folder.partition(f"_{trial_id}_")
    return StoredTrial(
        trial_id=trial_id,
        status=Status.TERMINATED if error is None else Status.ERROR,
        config=_config_in(store) or _dict(last.get(CONFIG)),
        last_result=last,
        statistics=statistics_of(rows),
        folder=folder,
        error=error,
        checkpoints=checkpoints,
        checkpoint=checkpoints[-1][0] if checkpoints else None,
        path=location,
        local_path=None if store.local is None else str(store.local.root),
        trainable_name=trainable_name if has_default_name else "",
        num_failures=_failures_in(store),
    )


def statistics_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, Statistics]:
    """Return the statistics of every metric in the results of a trial."""
    statistics: dict[str, Statistics] = {}
    for row in rows:
        metrics = {name: value for name, value in row.items() if name != CONFIG}
        for name, value in flattened(metrics).items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            with contextlib.suppress(OverflowError):  # an integer too large for a float
                if name in statistics:
                    statistics[name].add(float(value))
                else:
                    statistics[name] = Statistics.of(float(value))
    return statistics


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


# ---------------------------------------------------------------------- files and paths


def _read(store: Store, name: str) -> bytes | None:
    try:
        return store.get(name).data
    except ObjectMissing:
        return None


def _path_inside(location: str, name: str) -> str:
    path, mark, query = location.partition("?") if has_scheme(location) else (location, "", "")
    return f"{path.rstrip('/')}/{name}{mark}{query}"


def _parent(location: str) -> tuple[str, str]:
    """Return the folder that contains a location, '' if there is none, and its name in there."""
    path, mark, query = location.partition("?") if has_scheme(location) else (location, "", "")
    parent, _, name = path.rstrip("/").rpartition("/")
    return ("" if not parent or parent.endswith((":", ":/")) else f"{parent}{mark}{query}"), name
