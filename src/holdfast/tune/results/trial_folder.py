"""The folder of a trial, read without its study: rows, config, checkpoints, error.

This is what there is of a trial that was copied from elsewhere; while the study's own record is at
hand, that knows more.
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

# How the entries of an error.txt begin.
FAILED, LOST, AGAIN = "Failed for good at ", "Lost, to be tried again, at ", "Tried again at "
_NAMES_MAX = 5


def read_rows(store: Store) -> list[dict[str, Any]] | None:
    """Return the results in the folder of a trial, each iteration once; None if it has no file."""
    for name, rows_in in (
        (EXPR_RESULT_FILE, json_rows),
        (EXPR_PROGRESS_FILE, csv_rows),
    ):
        data = _read(store, name)
        if data is not None:
            return rows_in(data)
    return None


def frame_of(rows: Iterable[Mapping[str, Any]]) -> Any:
    """Return results as a table of pandas; what is `b` inside `a` is in the column `a/b`."""
    return library("pandas").DataFrame([flattened(row) for row in rows])


class FrameAt:
    """The table of a trial's results, read when it is called; it can be sent to a process."""

    def __init__(self, store: Store, folder: str) -> None:
        self._store, self._folder = store, folder

    def __call__(self) -> Any:
        rows = read_rows(child(self._store, self._folder))
        if rows is None:
            log.warning("there are no results in %s/%s", self._store.url, self._folder)
        return frame_of(rows or ())

    def described(self) -> dict[str, Any]:
        """Return what opens the store again that it is in, secrets included."""
        return describe(self._store)

    def __reduce__(self) -> tuple[object, ...]:
        return _frame_at, (describe(self._store), self._folder)


def _frame_at(store: Mapping[str, Any], folder: str) -> FrameAt:
    return FrameAt(reopen(store), folder)


# ---------------------------------------------------------------------- one trial


def result_at(path: str | os.PathLike[str], filesystem: Any | None = None) -> Result:
    """Return what the folder of a trial says of it; `RuntimeError` if it is not one."""
    location = os.fspath(path) if filesystem is not None else absolute(path)
    store = open_store(location, filesystem)
    rows = read_rows(store)
    if rows is None:
        raise RuntimeError(_not_a_trial(store, location, filesystem))
    metrics = rows[-1] if rows else None
    config = _config_in(store)
    if config is None and metrics is not None and isinstance(metrics.get(CONFIG), dict):
        config = metrics[CONFIG]
    kept = list(_checkpoints(store, location, filesystem, rows))
    frame = FrameAt(store, "")
    return Result(
        metrics=metrics,
        checkpoint=kept[-1][0] if kept else None,
        error=_error_in(store, metrics),
        path=path_of(store).rstrip("/"),
        metrics_dataframe=frame,
        best_checkpoints=kept,
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
    # Of a study of ours, only what was committed is a checkpoint.
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
        yield Checkpoint(_below(location, folder), filesystem), metrics


def _config_in(store: Store) -> dict[str, Any] | None:
    data = _read(store, EXPR_PARAM_FILE)
    try:
        found = None if data is None else json.loads(data)
    except (ValueError, RecursionError):
        log.warning("%s/%s is not whole", store.url, EXPR_PARAM_FILE)
        return None
    return found if isinstance(found, dict) and not is_too_deep(found) else None


def last_failure(text: str) -> str:
    """Return what a trial has failed of for good, by its error.txt; '' if it was tried again."""
    told = [place for place in (text.rfind(one) for one in (FAILED, LOST, AGAIN)) if place >= 0]
    if not told:
        return text.strip()  # another library has written it
    last = text[max(told) :].strip()
    return last if last.startswith(FAILED) else ""


def _error_in(store: Store, metrics: Mapping[str, Any] | None) -> Exception | None:
    if metrics is not None and metrics.get(DONE) is True:
        return None  # it failed once, and went on to its end
    data = _read(store, EXPR_ERROR_FILE)
    text = "" if data is None else last_failure(data.decode(errors="replace"))
    return TuneError(text) if text else None


def _failures_in(store: Store) -> int:
    """Return how often a trial was lost, by its error.txt."""
    data = _read(store, EXPR_ERROR_FILE)
    if data is None:
        return 0
    text = data.decode(errors="replace")
    return max(1, sum(text.count(one) for one in (FAILED, LOST)))


def _not_a_trial(store: Store, location: str, filesystem: Any | None) -> str:
    """Return what is wrong with a folder that is not a trial's, and which is right."""
    said = f"{without_secrets(location)} is not the folder of a trial: it has no {EXPR_RESULT_FILE}"
    trials = [name for name in store.folders() if _is_trial(child(store, name))]
    if trials:
        more = f" and {len(trials) - _NAMES_MAX} more" if len(trials) > _NAMES_MAX else ""
        return f"{said}; it is that of a study, whose trials are {_listed(trials)}{more}"
    parent, name = _parent(location)
    if parent and _is_trial(open_store(parent, filesystem)):
        return f"{said}; {name} is part of the trial in {without_secrets(parent)}"
    if not store.folders() and next(iter(store.entries()), None) is None:
        return f"{said}; there is nothing there"
    return said


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names[:_NAMES_MAX]))


def _is_trial(store: Store) -> bool:
    names = (EXPR_RESULT_FILE, EXPR_PROGRESS_FILE, EXPR_PARAM_FILE)
    return any(store.stat(name) is not None for name in names)


# ---------------------------------------------------------------------- all trials of a folder


def stored_trials(store: Store, known: Collection[str] = ()) -> list[StoredTrial]:
    """Return the trials whose folders are in a study's folder, as far as these tell.

    Without those whose folders are `known`.
    """
    found = []
    for name in store.folders():
        below = child(store, name)
        if not name.startswith(".") and name not in known and _is_trial(below):
            found.append(_stored_trial(below, name, f"{store.url.rstrip('/')}/{name}"))
    return found


def _stored_trial(store: Store, folder: str, location: str) -> StoredTrial:
    local = store.local
    rows = read_rows(store) or []
    last = rows[-1] if rows else {}
    kept = list(_checkpoints(store, location, None, rows))
    error = _error_in(store, last)
    trial_id = str(last.get(TRIAL_ID, folder))
    trainable_name, is_usual, _ = folder.partition(f"_{trial_id}_")
    return StoredTrial(
        trial_id=trial_id,
        status=Status.TERMINATED if error is None else Status.ERROR,
        config=_config_in(store) or _dict(last.get(CONFIG)),
        last_result=last,
        statistics=statistics_of(rows),
        folder=folder,
        error=error,
        checkpoints=kept,
        checkpoint=kept[-1][0] if kept else None,
        path=location,
        local_path=None if local is None else str(local.root),
        trainable_name=trainable_name if is_usual else "",
        num_failures=_failures_in(store),
    )


def statistics_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, Statistics]:
    """Return what is remembered of every metric of a trial that reported these results."""
    found: dict[str, Statistics] = {}
    for row in rows:
        metrics = {name: value for name, value in row.items() if name != CONFIG}
        for name, value in flattened(metrics).items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            with contextlib.suppress(OverflowError):  # a whole number that no metric is
                if name in found:
                    found[name].add(float(value))
                else:
                    found[name] = Statistics.of(float(value))
    return found


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


# ---------------------------------------------------------------------- pieces


def _read(store: Store, name: str) -> bytes | None:
    try:
        return store.get(name).data
    except ObjectMissing:
        return None


def _below(location: str, name: str) -> str:
    place, mark, query = location.partition("?") if has_scheme(location) else (location, "", "")
    return f"{place.rstrip('/')}/{name}{mark}{query}"


def _parent(location: str) -> tuple[str, str]:
    """Return the folder above a location, '' if there is none, and the name below it."""
    place, mark, query = location.partition("?") if has_scheme(location) else (location, "", "")
    above, _, name = place.rstrip("/").rpartition("/")
    return ("" if not above or above.endswith((":", ":/")) else f"{above}{mark}{query}"), name
