"""`num_workers=0`: the function runs in the process that calls fit."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from typing import Any

import pytest

from holdfast import train
from holdfast.engine import inline
from tests.integration.train.conftest import Lab
from tests.integration.train.loops import begin, save


def test_the_function_runs_in_this_very_thread_and_its_checkpoints_are_kept(lab: Lab) -> None:
    seen: list[object] = []

    def loop(config: dict[str, int]) -> str:
        context = train.get_context()
        seen.extend([os.getpid(), threading.get_ident(), context.get_world_size()])
        for step in range(begin(lab.notes), config["steps"]):
            save(step)
        return "done"

    first = lab.fit(loop, workers=0, config={"steps": 2})
    again = lab.fit(loop, workers=0, config={"steps": 4})

    assert seen == [os.getpid(), threading.get_ident(), 1] * 2
    assert (first.return_value, first.metrics) == ("done", {"step": 1})
    assert again.metrics == {"step": 3}
    assert [fact["step"] for fact in lab.begun()] == [None, 1]


def test_what_the_function_raises_is_raised_as_it_is(lab: Lab) -> None:
    error = ValueError("loss is nan")

    def loop() -> None:
        save(0)
        raise error

    with pytest.raises(ValueError, match="loss is nan") as caught:
        lab.fit(loop, workers=0)

    assert caught.value is error
    assert lab.committed() == ["checkpoint_000000"]
    assert train.Result.from_path(lab.run).metrics == {"step": 0}


def test_nothing_of_the_run_is_left_in_the_process(lab: Lab) -> None:
    before = {thread.name for thread in threading.enumerate()}

    lab.fit(lambda: save(0), workers=0)

    assert {thread.name for thread in threading.enumerate()} <= before
    with pytest.raises(RuntimeError, match="only inside a training function"):
        train.get_context()


def test_a_function_that_raises_is_not_tried_again_in_this_process(lab: Lab) -> None:
    def loop() -> None:
        raise ValueError("loss is nan")

    with pytest.raises(ValueError, match="loss is nan"):
        lab.fit(loop, workers=0, max_failures=3)


def test_a_function_that_holds_what_cannot_travel_runs_in_this_process(lab: Lab) -> None:
    lock = threading.Lock()

    def loop(config: dict[str, Any]) -> bool:
        return lock.acquire(blocking=False) and config["lock"] is lock

    result = lab.fit(loop, workers=0, config={"lock": lock})

    assert result.return_value is True
    assert lock.locked(), "it was the very one"


def test_ctrl_c_interrupts_the_function_where_it_is(
    lab: Lab, capfd: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []

    def loop() -> None:
        save(0)
        try:
            signal.raise_signal(signal.SIGINT)
            seen.append("went on")
        except KeyboardInterrupt:
            seen.append("interrupted")
            raise

    with pytest.raises(KeyboardInterrupt):
        lab.fit(loop, workers=0)

    assert seen == ["interrupted"]
    assert (
        "was stopped; the same command carries on from checkpoint_000000" in capfd.readouterr().err
    )
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_machine_that_goes_away_ends_it_resumable(lab: Lab) -> None:
    def loop() -> None:
        signal.raise_signal(signal.SIGTERM)
        for step in itertools.count():
            if train.should_checkpoint():
                save(step)

    with pytest.raises(train.Interrupted) as leaving:
        lab.fit(loop, workers=0)

    assert leaving.value.code == 75
    assert leaving.value.result is not None and leaving.value.result.checkpoint is not None


def test_a_function_that_never_reports_is_interrupted_when_its_machine_goes(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inline, "STOP_GRACE_S", 0.0)
    seen: list[str] = []

    def loop() -> None:
        save(0)
        signal.raise_signal(signal.SIGTERM)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            seen.append("interrupted")
            raise

    failures = train.FailureConfig(preemption_notice_s=0.0)
    with pytest.raises(train.Interrupted) as leaving:
        lab.fit(loop, workers=0, failure_config=failures)

    assert (leaving.value.code, seen) == (75, ["interrupted"])
    assert lab.committed() == ["checkpoint_000000"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_function_that_runs_another_goes_on_with_its_own_run(lab: Lab) -> None:
    def inner() -> str:
        train.report({"inner": 1})
        return train.get_context().get_experiment_name()

    def outer() -> tuple[str, str]:
        name = lab.fit(inner, workers=0, name="inner").return_value
        train.report({"outer": 1})
        return name, train.get_context().get_experiment_name()

    result = lab.fit(outer, workers=0)

    assert result.return_value == ("inner", "run")
    assert result.metrics == {"outer": 1}
