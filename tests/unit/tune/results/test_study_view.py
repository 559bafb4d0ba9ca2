"""What is told of a study of which a part cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.control.record.open_run import OpenStudy
from holdfast.control.study.archive import ARCHIVE
from holdfast.core.study.trial import Trial
from holdfast.errors import StoreBusy
from holdfast.storage.local.store import LocalStore
from holdfast.storage.records import seal
from holdfast.tune.results.study_view import _scheduler, inspect_study
from holdfast.tune.schedulers import AsyncHyperBandScheduler

KEY = f"{ARCHIVE}/000001-000000.jsonl"


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """A study with one trial, which is over and archived."""
    store = LocalStore(tmp_path / "study")
    added = {"trial_id": "a", "number": 0, "config": {}, "params": {}, "tag": "", "folder": "a"}
    added |= {"trainable": "t", "name": None, "resources": [{"CPU": 1.0}], "refused": "too large"}
    with OpenStudy.open(store, beats=False) as run:
        run.note("trial_added", added)
        store.put(KEY, seal(Trial("a", folder="a").to_data()) + b"\n")
        run.note("trials_archived", {"key": KEY, "ids": ["a"]})
    return store


def test_an_archive_that_cannot_be_read_is_not_taken_for_one_that_is_lost(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [trial.trial_id for trial in inspect_study(store).trials] == ["a"]
    get = store.get

    def fails_on_the_archive(key: str) -> Any:
        if key == KEY:
            raise StoreBusy("no answer")
        return get(key)

    monkeypatch.setattr(store, "get", fails_on_the_archive)
    with pytest.raises(StoreBusy, match="no answer"):
        inspect_study(store)


def test_a_missing_archive_is_reported_as_damage(store: LocalStore) -> None:
    store.delete(KEY)
    study = inspect_study(store)

    assert study.trials == []
    assert study.damage[KEY] == ["it is missing, and with it 1 finished trial"]


def test_a_scheduler_with_a_mode_alone_is_rebuilt_with_the_default_metric() -> None:
    """Even if no trial is added any more, as after the last state of a study."""
    scheduler = _scheduler({"scheduler": AsyncHyperBandScheduler(), "mode": "max"})

    assert scheduler.metric == "_metric"
