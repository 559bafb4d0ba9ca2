"""What the loggers of a study hear, and what they have made of it when a journal relies on it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast.control.study.reader import NoJudge
from holdfast.core.study.judges import Judges
from holdfast.core.study.machine import Study
from holdfast.core.study.rules import Rules
from holdfast.core.study.trial import Status, Variant
from holdfast.storage.base import Store
from holdfast.tune.callback import Callback, CallbackList
from holdfast.tune.logger import with_default_loggers
from holdfast.tune.logger.json import json_rows
from holdfast.tune.outputs.callbacks import CallbackObserver
from holdfast.tune.results.trial_folder import last_failure
from holdfast.tune.trial import Trial
from tests.unit.tune.logger.logging_files import LOGGERS, a_trial, every_kind, result, rows


@contextmanager
def an_observer(store: Store, *callbacks: Callback) -> Iterator[CallbackObserver]:
    listed = CallbackList(with_default_loggers(callbacks))
    listed.attach(store)
    study = Study(Judges(NoJudge(), NoJudge(), NoJudge()), Rules())
    try:
        yield CallbackObserver(listed, study)
    finally:
        listed.on_experiment_end(trials=[])


def finished(number: int) -> Trial:
    return a_trial(number, status=Status.TERMINATED)


def rows_of(*losses: float) -> list[tuple[int, dict[str, Any], Variant]]:
    variant = Variant({}, "", {})
    return [(step, result(step, loss), variant) for step, loss in enumerate(losses, 1)]


@every_kind
def test_files_of_trials_that_are_over_are_right_before_the_journal_lets_go_of_their_rows(
    kind: str, store: Store
) -> None:
    trials = {trial.trial_id: trial for trial in map(finished, range(30))}
    with an_observer(store) as observer:
        observer.resumed({trial_id: rows_of(1.0, 2.0) for trial_id in trials}, trials)

        assert observer.flush()

        for trial in trials.values():
            assert rows(kind, store, trial.folder) == [(1, 1.0), (2, 2.0)]


@every_kind
def test_a_trial_that_was_over_and_goes_on_has_what_it_had_and_what_comes(
    kind: str, store: Store
) -> None:
    trial = finished(0)
    with an_observer(store) as observer:
        observer.resumed({trial.trial_id: rows_of(1.0, 2.0, 3.0)}, {trial.trial_id: trial})
        trial.status, trial.step = Status.RUNNING, 3
        observer.trial_started(trial, after_step=2)
        observer.trial_result(trial, result(3, 30.0))
        assert observer.flush()

        assert rows(kind, store, trial.folder) == [(1, 1.0), (2, 2.0), (3, 30.0)]


class Listening(Callback):
    def __init__(self) -> None:
        self.heard: list[str] = []
        self.threads: set[str] = set()

    def _hear(self, what: str) -> None:
        self.heard.append(what)
        self.threads.add(threading.current_thread().name)

    def reconcile(self, trial: Trial, rows: Any) -> None:
        self._hear("reconcile")

    def flush(self, *, durable: bool = True) -> bool:
        self._hear("flush")
        return True

    def on_trial_start(self, *_: Any, **__: Any) -> None:
        self._hear("start")

    def on_trial_result(
        self,
        iteration: int,
        trials: Sequence[Trial],
        trial: Trial,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        self._hear("result")
        result["should_checkpoint"] = True

    def on_trial_complete(self, *_: Any, **__: Any) -> None:
        self._hear("complete")


def test_a_callback_of_the_users_is_called_only_where_the_study_is_driven(store: Store) -> None:
    listening, over, trial, reported = Listening(), finished(0), a_trial(1), result(1)
    with an_observer(store, listening) as observer:
        observer.resumed({over.trial_id: rows_of(1.0)}, {over.trial_id: over})
        observer.trial_added(trial)
        observer.trial_started(trial, 0)
        observer.trial_result(trial, reported)
        observer.trial_ended(trial)
        assert observer.flush()

    assert listening.heard == ["reconcile", "start", "result", "complete", "flush"]
    assert listening.threads == {threading.current_thread().name}
    assert reported["should_checkpoint"] is True
    assert rows("json", store, "train_00001") == [(1, 0.0)]


@pytest.mark.parametrize("broken", LOGGERS)
def test_a_logger_that_fails_keeps_no_row_from_the_others(
    broken: str, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(LOGGERS[broken], "_row", fail)
    with an_observer(store) as observer:
        observer.resumed({}, {})
        observer.trial_added(a_trial())
        observer.trial_started(a_trial(), 0)
        observer.trial_result(a_trial(), result(1))
        observer.flush()

    assert f"{LOGGERS[broken].__name__} failed in log_trial_result" in caplog.text
    for kind in LOGGERS:
        expected = [] if kind == broken else [(1, 0.0)]
        assert rows(kind, store, "train_00000") == expected


def test_no_thread_is_left_of_a_study_that_writes_no_files(store: Store) -> None:
    before = set(threading.enumerate())
    listed = CallbackList([])
    listed.attach(store)
    study = Study(Judges(NoJudge(), NoJudge(), NoJudge()), Rules())

    CallbackObserver(listed, study).resumed({}, {})
    listed.on_experiment_end(trials=[])

    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize(
    ("text", "failed_of"),
    [
        ("Lost, to be tried again, at noon\nValueError: lr\n\n", ""),
        ("Lost, to be tried again, at noon\nA\n\nFailed for good at one\nB\n\n", "B"),
        ("Failed for good at noon\nA\n\nTried again at one\n\n", ""),
        ("Failed for good at noon\nA\n\nTried again at one\n\nFailed for good at 2\nB\n", "B"),
        ("Failure # 1\nValueError: lr\n", "Failure # 1\nValueError: lr"),
    ],
)
def test_a_trial_has_failed_of_what_it_was_not_tried_again_after(text: str, failed_of: str) -> None:
    assert last_failure(text).rpartition("at one\n")[2].rpartition("at 2\n")[2] == failed_of


def test_a_row_tells_the_config_that_it_was_made_with(store: Store) -> None:
    """Over the second result the trial is made to go on with another one; a driver dies later."""
    trial = a_trial(0)
    first, then = Variant({"lr": 1}, "first", {}), Variant({"lr": 2}, "second", {})
    with an_observer(store) as observer:
        observer.resumed({trial.trial_id: [(1, result(1), first)]}, {trial.trial_id: trial})
        trial.config, trial.experiment_tag, trial.former, trial.step = {"lr": 3}, "third", then, 2
        observer.trial_result(trial, result(2))
        trial.former, trial.step = None, 3
        observer.trial_result(trial, result(3))
        assert observer.flush()
    written = json_rows(store.get(f"{trial.folder}/result.json").data)

    assert [row["config"]["lr"] for row in written] == [1, 2, 3]
    assert [row["experiment_tag"] for row in written] == ["first", "second", "third"]
