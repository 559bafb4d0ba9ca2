"""What people are told of a run, in words that help."""

from __future__ import annotations

import errno
import logging
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast import train
from holdfast.channel import Channel
from holdfast.control.host import log_quota
from holdfast.errors import ConfigError
from holdfast.train import FailureConfig, RunConfig, ScalingConfig, TrainRunContext, UserCallback
from holdfast.train.trainer import DataParallelTrainer
from tests.integration.train.conftest import Lab
from tests.integration.train.hang_clock import watch_for_hangs_while
from tests.integration.train.loops import STATE, begin, is_first, note, save

HERE = Path(__file__).name


def damage(lab: Lab, checkpoint: str) -> None:
    file = lab.run / checkpoint / STATE
    file.write_text(file.read_text().replace("1", "7"))


def test_a_run_whose_newest_checkpoint_is_damaged_says_which_one_it_carries_on_from(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    notes = lab.notes

    def loop() -> None:
        for step in range(begin(notes), 2):
            save(step)

    lab.fit(loop)
    damage(lab, "checkpoint_000001")
    lab.fit(loop)

    told = "run 'run' carries on from checkpoint_000000 instead of from checkpoint_000001, which is"
    assert any(line.startswith(told) for line in caplog.messages)
    assert [fact["step"] for fact in lab.begun()] == [None, 0]


def test_a_run_without_a_whole_checkpoint_says_that_it_begins_again(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    lab.fit(lambda: save(1))
    damage(lab, "checkpoint_000000")
    lab.fit(lambda: save(1))

    assert "run 'run' begins again instead of from checkpoint_000000, which is" in caplog.text


def test_a_run_that_carries_on_as_announced_says_no_more(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    lab.fit(lambda: save(1))
    lab.fit(lambda: save(2))

    assert "instead" not in caplog.text


def test_after_a_failure_the_same_command_is_recommended_and_nothing_deprecated(lab: Lab) -> None:
    def loop() -> None:
        save(0)
        raise ConnectionError("no")

    with pytest.raises(train.WorkerGroupError) as caught:
        lab.fit(loop)

    assert caught.value.hint == "the same command again, which carries on from checkpoint_000000"
    assert "restore(" not in str(caught.value)


def test_after_a_bug_the_line_is_named_and_the_same_command_only_then(lab: Lab) -> None:
    def loop() -> None:
        save(0)
        dict[str, float]()["loss"]

    with pytest.raises(train.WorkerGroupError) as caught:
        lab.fit(loop)

    line = loop.__code__.co_firstlineno + 2
    then = "the same command then carries on from checkpoint_000000"
    assert caught.value.hint == f"fix the code at {HERE}:{line}; {then}"


class Broken(UserCallback):
    def after_report(self, run_context: TrainRunContext, *_: Any) -> None:
        raise ValueError("not a number")


def test_a_callback_that_fails_is_named_as_its_author_named_it(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    lab.fit(lambda: save(0), callbacks=[Broken()])

    assert "Broken.after_report failed; the run goes on" in caplog.messages
    assert "CallbackObserver" not in caplog.messages
    assert "ValueError: not a number" in caplog.text


def test_a_disk_that_is_full_again_is_not_called_a_bug(lab: Lab) -> None:
    def loop() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(train.WorkerGroupError) as caught:
        lab.fit(loop, max_failures=1)

    shown = " ".join(str(caught.value).split())
    assert "2 times in a row, at the same place: it will not go away by itself" in shown
    assert "bug" not in shown


def test_of_a_hang_the_users_frames_are_shown_and_nothing_below_the_worker(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = lab.notes
    watch_for_hangs_while(monkeypatch, lambda: lab.noted("hangs"))

    def loop() -> None:
        note(notes, what="hangs")
        threading.Event().wait()

    hanging = DataParallelTrainer(
        loop,
        scaling_config=ScalingConfig(num_workers=1),
        run_config=RunConfig(
            name="run",
            storage_path=str(lab.storage),
            failure_config=FailureConfig(hang_timeout_s=1.0),
        ),
    )
    with pytest.raises(train.WorkerGroupError) as caught:
        hanging.fit()

    shown = str(caught.value).split("most recent call first):")[1].split("\n\n")[0].splitlines()[1:]
    assert f'/{HERE}", line ' in shown[-1] and shown[-1].endswith(" in loop")
    assert all("/threading.py" in line for line in shown[:-1])
    stacks = (lab.run / "logs" / "attempt-1" / "stacks.txt").read_text()
    assert "worker/entry.py" in stacks, "in the file is everything"


def test_a_run_that_prints_without_end_does_not_fill_the_disk(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_LOG_BYTES", str(1 << 20))
    monkeypatch.setattr(log_quota, "LOOK_EVERY_S", 0.0)
    path = lab.run / "logs" / "attempt-1" / "rank-0.log"

    def loop() -> None:
        sys.stdout.write("the beginning\n")
        while b"cut out here" not in path.read_bytes():
            sys.stdout.write(f"{'x' * 60_000}\n")
            train.report({})
        sys.stdout.write("the end\n")

    lab.fit(loop)

    told = path.read_text()
    assert told.startswith("the beginning\n") and told.endswith("the end\n")


class OnGpu:
    """What pickles in a worker and cannot be had back here, as a tensor on a GPU."""

    def __reduce__(self) -> tuple[object, ...]:
        return _refuse, ()


def _refuse() -> None:
    raise RuntimeError("Attempting to deserialize object on a CUDA device")


def test_a_run_succeeds_whose_value_cannot_be_unpickled(lab: Lab) -> None:
    with pytest.warns(UserWarning, match=r"return_value is None: RuntimeError: Attempting"):
        result = lab.fit(OnGpu)

    assert result.return_value is None
    assert result.error is None


def test_a_value_that_is_too_large_to_be_sent_is_told_of(
    lab: Lab, capfd: pytest.CaptureFixture[str]
) -> None:
    def loop() -> bytes:
        Channel.MESSAGE_BYTES_MAX = 4096  # in this worker alone
        return bytes(8192)

    result = lab.fit(loop)

    assert result.return_value is None
    assert "what the function returned takes 0.0 GiB, more than can be" in capfd.readouterr().err


def test_a_function_that_is_too_large_to_be_sent_is_refused(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = bytes(1 << 20)
    monkeypatch.setattr(Channel, "MESSAGE_BYTES_MAX", 1 << 19)

    with pytest.raises(ConfigError, match=r"(?s)the function with its config .*holdfast\.put"):
        lab.fit(lambda: len(held))


def test_a_value_that_cannot_come_home_is_told_of(
    lab: Lab, capfd: pytest.CaptureFixture[str]
) -> None:
    result = lab.fit(lambda: {"lock": threading.Lock()})

    assert result.return_value is None
    assert "what the function returned cannot be pickled" in capfd.readouterr().err


def test_a_score_that_no_checkpoint_has_is_told_of_once(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    def loop() -> None:
        for step in range(3):
            save(step)

    lab.fit(
        loop,
        checkpoint_config=train.CheckpointConfig(1, checkpoint_score_attribute="loss"),
    )

    assert caplog.text.count("ranked by 'loss', and none has a number for it") == 1


def test_a_run_that_is_to_be_quiet_says_nothing(
    lab: Lab, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Though a worker prints and fails, and there is something to warn of."""
    notes = lab.notes

    def loop() -> None:
        os.write(1, b"hello\n")
        save(0)
        if is_first(notes):
            raise ValueError("once")

    lab.fit(
        loop,
        max_failures=1,
        logging_config=train.LoggingConfig("error"),
        checkpoint_config=train.CheckpointConfig(checkpoint_score_attribute="loss"),
    )

    assert capfd.readouterr() == ("", "")
    assert caplog.text == ""
    assert logging.getLogger("holdfast").level == logging.NOTSET


class Stubborn:
    def __reduce__(self) -> Any:
        return int, ("not a number",)


def test_a_function_that_cannot_be_unpickled_is_told_apart_from_one_that_raises(lab: Lab) -> None:
    stubborn = Stubborn()

    with pytest.raises(
        train.WorkerGroupError, match="with all it holds, was unpickled in the worker"
    ):
        lab.fit(lambda: stubborn)


def test_a_loss_that_is_nan_is_told_once_with_rank_and_report(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    def loop() -> None:
        rank = train.get_context().get_world_rank()
        for step in range(1, 5):
            train.report({"loss": float("nan") if (rank, step >= 3) == (1, True) else 0.5})

    lab.fit(loop, workers=2)

    told = [line for line in caplog.messages if "nan" in line]
    assert told == ["loss=nan in report 3 of rank 1; training goes on, warned once per metric"]
