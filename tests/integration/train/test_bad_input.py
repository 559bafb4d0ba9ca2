"""Trainers that cannot work, and what they say."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from holdfast.control.record.open_run import OpenStudy
from holdfast.errors import CannotResume, ConfigError
from holdfast.storage.locate import open_store
from holdfast.train import (
    DataParallelTrainer,
    FailureConfig,
    Result,
    RunConfig,
    ScalingConfig,
    ValidationConfig,
)
from holdfast.tune import Callback
from tests.integration.train.conftest import Lab


def two(a: int, b: int) -> None: ...


def two_with_one_default(a: dict[str, Any], b: int = 3) -> int:
    return b


async def waits() -> None: ...


def waits_not() -> None: ...


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "two arguments": (lambda: DataParallelTrainer(two), "requires 2 arguments (a, b)"),
    "not a function": (lambda: DataParallelTrainer("train"), "'train' is not a function"),  # type: ignore[arg-type]
    "async": (lambda: DataParallelTrainer(waits), "`waits` is `async def`"),
    "half a worker": (lambda: ScalingConfig(num_workers=0.5), "num_workers=0.5"),  # type: ignore[arg-type]
    "less than no worker": (lambda: ScalingConfig(num_workers=-1), "num_workers=-1"),
    "a list for a dataset": (
        lambda: DataParallelTrainer(waits_not, datasets={"train": [1, 2]}),
        "datasets['train'] is builtins.list",
    ),
    "less than unlimited": (lambda: FailureConfig(max_failures=-2), "max_failures=-2"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_work_is_refused_before_anything_runs(case: str) -> None:
    build, message = BAD[case]

    with pytest.raises(ConfigError, match=re.escape(message)):
        build()


def test_an_argument_with_a_default_is_no_obstacle(lab: Lab) -> None:
    assert lab.fit(two_with_one_default).return_value == 3


def test_a_function_that_cannot_travel_leaves_nothing_behind(lab: Lab) -> None:
    lock = threading.Lock()
    before = psutil.Process().children()

    with pytest.raises(ConfigError, match="the variable `lock` it uses"):
        lab.fit(lambda: lock)

    assert not lab.storage.exists()
    assert psutil.Process().children() == before


def test_a_config_that_cannot_travel_leaves_nothing_behind(lab: Lab) -> None:
    with pytest.raises(ConfigError, match=re.escape("train_loop_config['lock']")):
        lab.fit(two_with_one_default, config={"lock": threading.Lock()})

    assert not lab.storage.exists()


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"resources_per_worker": {"CPU": 100_000}}, "100000"),
        ({"use_gpu": True, "resources_per_worker": {"GPU": 1000}}, "GPU"),
        ({"num_workers": 2, "resources_per_worker": {"unicorn": 1}}, "unicorn"),
    ],
)
def test_what_the_machine_can_never_hold_is_said_at_once_and_leaves_nothing_behind(
    lab: Lab, wanted: dict[str, Any], said: str
) -> None:
    before = psutil.Process().children()
    trainer = DataParallelTrainer(
        two_with_one_default,
        scaling_config=ScalingConfig(**wanted),
        run_config=RunConfig("run", str(lab.storage)),
    )

    with pytest.raises(ConfigError, match=said):
        trainer.fit()

    assert not lab.storage.exists()
    assert psutil.Process().children() == before


@pytest.mark.parametrize("callback", ["print", Callback()], ids=["text", "of tune"])
def test_a_callback_that_would_hear_nothing_is_refused(lab: Lab, callback: object) -> None:
    with pytest.raises(ConfigError, match=re.escape("callbacks[0]=")) as refused:
        lab.fit(two_with_one_default, callbacks=[callback])

    assert "UserCallback" in str(refused.value.hint)
    assert not lab.storage.exists()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_validation_that_cannot_travel_leaves_nothing_behind(lab: Lab, workers: int) -> None:
    lock = threading.Lock()
    trainer = DataParallelTrainer(
        two_with_one_default,
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig("run", str(lab.storage)),
        validation_config=ValidationConfig(lambda checkpoint: {"locked": lock.locked()}),
    )

    with pytest.raises(
        ConfigError, match=r"the validation function .* the variable `lock` it uses"
    ):
        trainer.fit()

    assert not lab.storage.exists()


def test_a_study_is_not_taken_for_a_run(lab: Lab) -> None:
    OpenStudy.open(open_store(lab.run)).close()

    for use in (lambda: lab.fit(waits_not), lambda: Result.from_path(lab.run)):
        with pytest.raises(CannotResume, match="there is a study at"):
            use()
    assert not (lab.run / ".holdfast" / "trainer.json").exists()


def test_what_is_given_again_to_restore_must_be_what_it_should(lab: Lab) -> None:
    lab.fit(two_with_one_default)

    with (
        pytest.warns(DeprecationWarning, match="restore"),
        pytest.raises(ConfigError, match="run_config=3: must be a RunConfig"),
    ):
        DataParallelTrainer.restore(lab.run, run_config=3)
