"""Callbacks: told of everything, and none of them can end a study."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.storage.locate import open_store
from holdfast.storage.memory import MemoryStore
from holdfast.tune.callback import Callback, CallbackList
from holdfast.tune.logger import (
    DEFAULT_CALLBACK_CLASSES,
    DEFAULT_LOGGERS,
    CSVLogger,
    CSVLoggerCallback,
    JsonLogger,
    JsonLoggerCallback,
    Logger,
    LoggerCallback,
    TBXLoggerCallback,
    UnifiedLogger,
    callbacks_of_loggers,
    pretty_print,
    with_default_loggers,
)
from holdfast.tune.trial import Trial
from tests.unit.tune.logger.logging_files import a_trial, result, rows

HOOKS = [
    "on_trial_start",
    "on_trial_restore",
    "on_trial_save",
    "on_trial_complete",
    "on_trial_recover",
    "on_trial_error",
]


class Heard(Callback):
    """Remembers what it is told of."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("on_"):
            return lambda **info: self.calls.append(name)
        return super().__getattribute__(name)


class Broken(Callback):
    """Fails in every way that a callback can."""

    def on_trial_result(self, *args: Any, **info: Any) -> None:
        raise KeyError("accuracy")

    def on_trial_start(self, *args: Any, **info: Any) -> None:
        raise ValueError("first")

    def get_state(self) -> dict[str, Any]:
        raise RuntimeError("no state")


def test_every_hook_reaches_every_callback() -> None:
    heard = Heard()
    listed = CallbackList([Callback(), heard])
    for hook in HOOKS:
        getattr(listed, hook)(iteration=1, trials=[], trial=a_trial())
    listed.on_step_begin(iteration=1, trials=[])
    listed.on_trial_result(iteration=1, trials=[], trial=a_trial(), result={})
    listed.on_checkpoint(iteration=1, trials=[], trial=a_trial(), checkpoint=None)
    listed.on_step_end(iteration=1, trials=[])
    listed.on_experiment_end(trials=[])

    assert heard.calls == [
        *HOOKS,
        "on_step_begin",
        "on_trial_result",
        "on_checkpoint",
        "on_step_end",
        "on_experiment_end",
    ]


def test_a_broken_callback_hurts_neither_the_study_nor_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard = Heard()
    listed = CallbackList([Broken(), heard])
    for _ in range(5):
        listed.on_trial_start(iteration=1, trials=[], trial=a_trial())
        listed.on_trial_result(iteration=1, trials=[], trial=a_trial(), result={})

    assert heard.calls == ["on_trial_start", "on_trial_result"] * 5
    first, second = caplog.records
    assert "Broken" in first.message and "on_trial_start" in first.message
    assert first.exc_info is not None and second.exc_info is not None
    caplog.clear()
    listed.on_experiment_end(trials=[])
    assert "Broken.on_trial_result failed 5 times with KeyError" in caplog.text


def test_what_ends_python_passes_through_a_callback() -> None:
    class Leaves(Callback):
        def on_step_end(self, *args: Any, **info: Any) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        CallbackList([Leaves()]).on_step_end(iteration=0, trials=[])


def test_a_callback_can_change_the_result_it_is_told_of() -> None:
    class Saves(Callback):
        def on_trial_result(
            self, iteration: int, trials: Any, trial: Trial, result: dict[str, Any], **info: Any
        ) -> None:
            result["should_checkpoint"] = True

    result: dict[str, Any] = {}
    CallbackList([Saves()]).on_trial_result(iteration=0, trials=[], trial=a_trial(), result=result)

    assert result == {"should_checkpoint": True}


class Counts(Callback):
    def __init__(self, count: Any = 0) -> None:
        self.count = count

    def get_state(self) -> dict[str, Any] | None:
        return {"count": self.count}

    def set_state(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


def test_what_callbacks_remember_comes_back_to_them() -> None:
    before = CallbackList([Callback(), Counts(3), Counts(4)])
    state = json.loads(json.dumps(before.get_state()))
    first, second = Counts(), Counts()
    CallbackList([Callback(), first, second]).set_state(state)

    assert (first.count, second.count) == (3, 4)


def test_a_state_finds_its_callback_also_at_another_place_but_never_a_wrong_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    state = CallbackList([Counts(3)]).get_state()
    assert state is not None
    moved = Counts()
    CallbackList([Callback(), moved]).set_state(state)
    assert moved.count == 3

    CallbackList([Callback()]).set_state(state)
    assert "no callback takes" in caplog.text


def test_a_state_that_is_no_data_is_left_out_and_told_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listed = CallbackList([Counts(object()), Broken(), Counts(1)])

    state = listed.get_state()

    assert state is not None and [entry["place"] for entry in state["callbacks"]] == [2]
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2


@pytest.mark.parametrize("bad", [Callback, "wandb", 3, None])
def test_what_is_no_callback_is_refused(bad: Any) -> None:
    with pytest.raises(ConfigError, match="callbacks"):
        CallbackList([bad])


# ---------------------------------------------------------------------- loggers among them


def test_the_loggers_of_a_study_write_what_it_tells_them(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    listed = CallbackList(with_default_loggers([Heard()]))
    listed.attach(store)
    trial = a_trial()
    listed.on_trial_start(iteration=0, trials=[trial], trial=trial)
    for step in (1, 2, 3):
        listed.on_trial_result(iteration=0, trials=[trial], trial=trial, result=result(step))
    assert listed.flush(durable=True)
    listed.rewind(trial, 2)
    listed.on_trial_complete(iteration=0, trials=[], trial=trial)
    listed.on_experiment_end(trials=[])

    for kind in ("json", "csv", "events"):
        assert rows(kind, store, trial.folder) == [(1, 0.0), (2, 0.0)]
    again = CallbackList(with_default_loggers([]))
    again.attach(store)
    again.reconcile(trial, [result(2, 2.5)])
    for kind in ("json", "csv", "events"):
        assert rows(kind, store, trial.folder) == [(1, 0.0), (2, 2.5)]


def test_a_logger_of_the_users_hears_of_trials_one_by_one() -> None:
    class Own(LoggerCallback):
        def __init__(self) -> None:
            self.calls: list[Any] = []

        def log_trial_start(self, trial: Trial) -> None:
            self.calls.append("start")

        def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
            self.calls.append((iteration, result["loss"]))

        def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
            self.calls.append(failed)

    own = Own()
    listed = CallbackList([own])
    listed.attach(MemoryStore())
    listed.rewind(a_trial(), 3)
    listed.reconcile(a_trial(), [])
    assert listed.flush()
    listed.on_trial_start(iteration=1, trials=[], trial=a_trial())
    listed.on_trial_result(iteration=2, trials=[], trial=a_trial(), result={"loss": 0.5})
    listed.on_trial_error(iteration=3, trials=[], trial=a_trial())
    listed.on_trial_complete(iteration=3, trials=[], trial=a_trial())

    assert own.calls == ["start", (2, 0.5), True, False]


def test_default_loggers_are_not_doubled() -> None:
    own = JsonLoggerCallback()

    callbacks = with_default_loggers([own])

    kinds = [type(callback) for callback in callbacks]
    assert sorted(kinds, key=str) == sorted(DEFAULT_CALLBACK_CLASSES, key=str)
    assert callbacks[-1] is own


def test_loggers_by_their_old_names_are_the_callbacks_of_today() -> None:
    def kinds(*loggers: Any) -> list[type]:
        return [type(callback) for callback in callbacks_of_loggers(loggers)]

    assert kinds(JsonLogger, CSVLogger) == [JsonLoggerCallback, CSVLoggerCallback]
    assert kinds(UnifiedLogger, JsonLogger) == list(DEFAULT_CALLBACK_CLASSES)
    assert set(kinds(*DEFAULT_LOGGERS)) == set(DEFAULT_CALLBACK_CLASSES)
    assert [type(callback) for callback in callbacks_of_loggers(None)] == list(
        DEFAULT_CALLBACK_CLASSES
    )
    own = TBXLoggerCallback()
    assert callbacks_of_loggers([own, CSVLoggerCallback])[0] is own
    with pytest.raises(ConfigError, match="loggers"):
        callbacks_of_loggers(["json"])


class Old(Logger):
    """A logger as they were written for `loggers=[…]`."""

    def _init(self) -> None:
        self.file = open(f"{self.logdir}/old.txt", "a")  # noqa: SIM115

    def on_result(self, result: dict[str, Any]) -> None:
        self.file.write(f"{result['loss']}\n")

    def flush(self) -> None:
        self.file.flush()

    def close(self) -> None:
        self.file.close()


def test_a_logger_of_the_old_kind_writes_in_its_trials_folder(tmp_path: Path) -> None:
    (callback,) = callbacks_of_loggers([Old])
    listed = CallbackList([callback])
    listed.attach(open_store(tmp_path))
    for loss in (0.5, 0.25):
        listed.on_trial_start(iteration=0, trials=[], trial=a_trial())
        listed.on_trial_result(iteration=0, trials=[], trial=a_trial(), result={"loss": loss})
    listed.on_trial_complete(iteration=0, trials=[], trial=a_trial())

    assert (tmp_path / "train_00000" / "old.txt").read_text() == "0.5\n0.25\n"


def test_a_logger_of_the_old_kind_needs_a_folder_of_this_machine() -> None:
    listed = CallbackList(callbacks_of_loggers([Old]))
    with pytest.raises(ConfigError, match=r"Old.*need a folder on this machine"):
        listed.attach(MemoryStore())


def test_a_result_is_printed_without_its_config() -> None:
    assert json.loads(pretty_print({"loss": 1, "config": {"a": 1}, "x": None})) == {"loss": 1}
