"""Checks of `tune.utils`: whether a trainable can be pickled, and saved and restored."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.tune.utils import diagnose_serialization, validate_save_restore

LOCK = threading.Lock()


class Counts(tune.Trainable):
    stopped = 0

    def setup(self, config: dict[str, Any]) -> None:
        self.count = config.get("start", 0)

    def step(self) -> dict[str, Any]:
        self.count += 1
        return {"count": self.count, "done": self.count >= self.config.get("until", 10)}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any] | None:
        return {"count": self.count, "nested": [{"at": time.monotonic_ns()}], "what": object()}

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.count = checkpoint["count"]

    def cleanup(self) -> None:
        type(self).stopped += 1


class CountsInFiles(Counts):
    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "count").write_text(str(self.count))

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.count = int(Path(checkpoint, "count").read_text())


class Forgets(Counts):
    def load_checkpoint(self, checkpoint: Any) -> None:
        pass


class Recounts(CountsInFiles):
    def step(self) -> dict[str, Any]:
        return {**super().step(), "training_iteration": self.count}

    def load_checkpoint(self, checkpoint: Any) -> None:
        pass


class OnlySaves(tune.Trainable):
    def step(self) -> dict[str, Any]:
        return {}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        pass


@pytest.mark.parametrize("kind", [Counts, CountsInFiles])
@pytest.mark.parametrize("config", [None, {"start": 5, "until": 6}], ids=["usual", "done at once"])
def test_a_class_that_goes_on_where_it_was_saved_passes(
    kind: type[Counts], config: dict[str, Any] | None
) -> None:
    kind.stopped = 0

    assert validate_save_restore(kind, config) is True
    assert kind.stopped == 2


def test_parameters_of_the_class_are_given_to_it() -> None:
    class Takes(Counts):
        def setup(self, config: dict[str, Any], more: int) -> None:  # type: ignore[override]
            self.count = more

    assert validate_save_restore(tune.with_parameters(Takes, more=3)) is True


def test_a_class_that_forgets_what_it_saved_is_told_what() -> None:
    with pytest.raises(tune.TuneError, match="its count is 0, which was 2 when it was saved"):
        validate_save_restore(Forgets)


def test_a_class_that_counts_its_iterations_anew_is_told() -> None:
    with pytest.raises(tune.TuneError, match="restored after iteration 2, and its next one is 1"):
        validate_save_restore(Recounts)


def test_a_class_that_cannot_be_loaded_says_so() -> None:
    with pytest.raises(NotImplementedError, match="no method load_checkpoint"):
        validate_save_restore(OnlySaves)


def test_a_function_has_nothing_to_save_and_restore() -> None:
    with pytest.raises(TypeError, match="is not a Trainable class"):
        validate_save_restore(lambda config: None)


def test_what_can_be_sent_to_a_process_is_true() -> None:
    assert diagnose_serialization(lambda config: config) is True
    assert diagnose_serialization(Counts) is True


def test_everything_that_cannot_be_sent_is_named() -> None:
    event = threading.Event()

    def train(config: dict[str, Any], lock: Any = LOCK) -> None:
        event.wait()

    reasons = diagnose_serialization(train)

    assert isinstance(reasons, set)
    [of_event] = [reason for reason in reasons if "`event`" in reason]
    [of_lock] = [reason for reason in reasons if "`lock`" in reason]
    assert "a threading.Event, captured from the enclosing function" in of_event
    assert "the default of an argument" in of_lock


def test_a_class_with_what_cannot_be_sent_is_named() -> None:
    class Locked(Counts):
        lock = threading.Lock()

    reasons = diagnose_serialization(Locked)

    assert isinstance(reasons, set)
    [why] = reasons
    assert "`.lock` (a _thread.lock) cannot be pickled" in why


def test_what_cannot_be_called_is_no_trainable() -> None:
    with pytest.raises(TypeError, match="neither a function nor a Trainable class"):
        diagnose_serialization(3)
