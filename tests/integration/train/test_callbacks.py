"""Code of the user's that the driver calls."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from holdfast import train
from holdfast.testing.suites.engine import state_of
from holdfast.train import (
    BackendConfig,
    Checkpoint,
    DataConfig,
    DataParallelTrainer,
    RunConfig,
    ScalingConfig,
    TrainRunContext,
    UserCallback,
)
from holdfast.worker import entry
from tests.integration.train.conftest import Lab
from tests.integration.train.loops import begin, die, is_first, save
from tests.patience import pause


class Diary(UserCallback):
    def __init__(self) -> None:
        self.reports: list[tuple[list[Any], str | None]] = []
        self.failures: list[dict[int, str]] = []
        self.names: set[str] = set()
        self.contexts: list[TrainRunContext] = []

    def after_report(
        self,
        run_context: TrainRunContext,
        metrics: list[dict[str, Any]],
        checkpoint: Checkpoint | None,
    ) -> None:
        self.names.add(run_context.get_run_config().name)
        self.contexts.append(run_context)
        saved = None if checkpoint is None else checkpoint.path.rpartition("/")[2]
        self.reports.append((metrics, saved))

    def after_exception(
        self, run_context: TrainRunContext, worker_exceptions: dict[int, BaseException]
    ) -> None:
        self.failures.append({rank: str(one) for rank, one in worker_exceptions.items()})


def test_a_callback_hears_of_every_report_of_all_ranks_in_order(lab: Lab) -> None:
    diary = Diary()

    def loop() -> None:
        rank = train.get_context().get_world_rank()
        train.report({"rank": rank, "i": 0})
        save(1, rank=rank)
        train.report({"rank": rank, "i": 2})

    lab.fit(loop, workers=2, callbacks=[diary])

    assert diary.reports == [
        ([{"rank": 0, "i": 0}, {"rank": 1, "i": 0}], None),
        ([{"step": 1, "rank": 0}, {"step": 1, "rank": 1}], "checkpoint_000000"),
        ([{"rank": 0, "i": 2}, {"rank": 1, "i": 2}], None),
    ]
    assert diary.names == {"run"}


def test_a_callback_hears_of_failures_before_another_attempt(lab: Lab) -> None:
    diary, notes = Diary(), lab.notes

    def loop() -> None:
        begin(notes)
        if is_first(notes.with_name("one")):
            raise ValueError("loss is nan")
        if is_first(notes.with_name("two")):
            die("SIGKILL")

    lab.fit(loop, max_failures=2, callbacks=[diary])

    raised, died = diary.failures
    assert raised == {0: "loss is nan"}
    assert "SIGKILL" in died[0]


def test_a_callback_that_raises_does_not_end_the_run(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(UserCallback):
        def after_report(self, *facts: object) -> None:
            raise RuntimeError("a bug of the callback's")

    diary = Diary()

    result = lab.fit(lambda: save(0), callbacks=[Broken(), diary])

    assert result.metrics == {"step": 0}
    assert len(diary.reports) == 1, "the others hear of it all the same"
    assert "a bug of the callback's" in caplog.text


def test_a_callback_knows_how_the_run_was_configured(lab: Lab) -> None:
    diary, backend, data = Diary(), BackendConfig(), DataConfig(datasets_to_split=[])
    scaling, run = ScalingConfig(num_workers=1), RunConfig("run", lab.storage, callbacks=[diary])

    DataParallelTrainer(
        lambda config: train.report({}),
        train_loop_config={"lr": 0.1},
        backend_config=backend,
        dataset_config=data,
        scaling_config=scaling,
        run_config=run,
    ).fit()

    [told] = diary.contexts
    assert (told.run_config, told.scaling_config) == (run, scaling)
    assert (told.backend_config, told.dataset_config) == (backend, data)
    assert told.train_loop_config == {"lr": 0.1} and told.run_id


class Slow(UserCallback):
    """Takes as long as the function, and until its process waits or is gone."""

    def __init__(self, done: Path) -> None:
        self._done = done

    def after_report(self, run_context: object, metrics: Any, checkpoint: object) -> None:
        while not (self._done.exists() and self._done.read_text()):
            pause()
        while state_of(int(self._done.read_text())) not in ("S", ""):
            pause()


def test_what_a_function_said_last_reaches_a_driver_however_busy_that_is(lab: Lab) -> None:
    """Far more waits then than a socket holds."""
    done = lab.folder / "done"

    def loop() -> None:
        entry.FLUSH_TIMEOUT_S = 0.0  # it is not what counts
        for step in range(100):
            train.report({"step": step, "much": "x" * 10_000})
        done.write_text(str(os.getpid()))

    result = lab.fit(loop, callbacks=[Slow(done)])

    assert result.metrics is not None
    assert result.metrics["step"] == 99
