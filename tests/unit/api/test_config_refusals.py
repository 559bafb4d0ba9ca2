from __future__ import annotations

import math
from typing import Any

import pytest

from holdfast.api.config import (
    CheckpointConfig,
    FailureConfig,
    LoggingConfig,
    RunConfig,
    ScalingConfig,
    SyncConfig,
)
from holdfast.errors import ConfigError


def _problems(kind: type, *given: Any, **named: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        kind(*given, **named)
    first, *lines = caught.value.message.split("\n  - ")

    assert first == f"{kind.__name__} cannot work:"
    return lines


@pytest.mark.parametrize(
    ("kind", "named", "line"),
    [
        (FailureConfig, {"max_failures": -2}, "max_failures=-2: less than -1; it is how many fail"),
        (FailureConfig, {"max_failures": 1.0}, "max_failures=1.0: not a whole number; it is how"),
        (FailureConfig, {"max_failures": True}, "max_failures=True: not a whole number, this is b"),
        (FailureConfig, {"max_failures": None}, "max_failures=None: not a whole number, this is N"),
        (FailureConfig, {"controller_failure_limit": -2}, "controller_failure_limit=-2: less than"),
        (FailureConfig, {"max_preemption_failures": "3"}, "max_preemption_failures='3': not a who"),
        (FailureConfig, {"fail_fast": "rise"}, "fail_fast='rise': must be True, False or 'raise'"),
        (FailureConfig, {"fail_fast": 2}, "fail_fast=2: must be True, False or 'raise'"),
        (FailureConfig, {"preemption_grace_s": -1}, "preemption_grace_s=-1: less than 0; it is"),
        (FailureConfig, {"preemption_grace_s": math.inf}, "preemption_grace_s=inf: must be finite"),
        (FailureConfig, {"relax_collectives_on_preemption": "no"}, "relax_collectives_on_preempti"),
        (FailureConfig, {"hang_timeout_s": 0}, "hang_timeout_s=0: not above 0; it is how long"),
        (
            FailureConfig,
            {"hang_timeout_s": math.nan},
            "hang_timeout_s=nan: not a number of seconds",
        ),
        (FailureConfig, {"backoff_max_s": False}, "backoff_max_s=False: not a number of seconds"),
        (FailureConfig, {"backoff_max_s": math.inf}, "backoff_max_s=inf: must be finite; it is"),
        (CheckpointConfig, {"num_to_keep": 0}, "num_to_keep=0: less than 1; it is how many check"),
        (CheckpointConfig, {"num_to_keep": True}, "num_to_keep=True: not a whole number, this is"),
        (CheckpointConfig, {"checkpoint_score_attribute": ""}, "checkpoint_score_attribute='': em"),
        (CheckpointConfig, {"checkpoint_score_attribute": 5}, "checkpoint_score_attribute=5: not"),
        (CheckpointConfig, {"checkpoint_score_order": "maximum"}, "checkpoint_score_order='maximu"),
        (CheckpointConfig, {"checkpoint_score_order": None}, "checkpoint_score_order=None: must b"),
        (CheckpointConfig, {"checkpoint_frequency": -1}, "checkpoint_frequency=-1: less than 0;"),
        (CheckpointConfig, {"checkpoint_at_end": "yes"}, "checkpoint_at_end='yes': not True or Fa"),
        (LoggingConfig, {"log_level": "loud"}, "log_level='loud': not a level of logging, which"),
        (LoggingConfig, {"log_level": 10}, "log_level=10: must be the name of a level, this is"),
        (SyncConfig, {"sync_period": -1}, "sync_period=-1: less than 0; it is the time between"),
        (SyncConfig, {"sync_timeout": 0}, "sync_timeout=0: not above 0; it is the time after"),
        (SyncConfig, {"upload_dir": ""}, "upload_dir='': empty; it is where files go"),
        (SyncConfig, {"syncer": "cp {source}"}, "syncer='cp {source}': {target} is missing; a c"),
        (SyncConfig, {"sync_on_checkpoint": None}, "sync_on_checkpoint=None: not True or False, "),
        (RunConfig, {"name": "a/b"}, "name='a/b': a name holds no slash; it is one folder"),
        (RunConfig, {"name": "a\x00"}, r"name='a\x00': it holds a NUL character"),
        (RunConfig, {"name": "x" * 201}, f"name='{'x' * 59}…xxxxxxxxx': it has 201 bytes, at most"),
        (RunConfig, {"name": ""}, "name='': a name is not empty and has no space at either end"),
        (RunConfig, {"name": 7}, "name=7: a name is a string, this is int"),
        (RunConfig, {"storage_path": ""}, "the storage path is empty"),
        (RunConfig, {"storage_path": b"x"}, "storage_path=b'x': not a path or a URI, this is byt"),
        (RunConfig, {"storage_path": "s3:lab"}, "the storage path 's3:lab' begins with s3: but is"),
        (RunConfig, {"resume": "yes"}, "resume='yes': must be 'auto', 'must' or 'never'"),
        (RunConfig, {"resume": True}, "resume=True: must be 'auto', 'must' or 'never'"),
        (RunConfig, {"worker_runtime_env": ["x"]}, "worker_runtime_env=['x']: not a dictionary"),
        (RunConfig, {"log_to_file": ("a",)}, "log_to_file=('a',): must be True, False, a file, or"),
        (RunConfig, {"log_to_file": 7}, "log_to_file=7: must be True, False, a file, or a pair"),
        (RunConfig, {"callbacks": 0}, "callbacks=0: must be a list, this is int"),
        (RunConfig, {"callbacks": [1, dict]}, "callbacks[1]=dict: this is the class dict itself, "),
        (RunConfig, {"storage_path": "x", "local_dir": ""}, "local_dir='': empty; it is a folder"),
    ],
)
def test_a_value_that_cannot_work_is_named_with_its_rule(
    kind: type, named: dict[str, Any], line: str
) -> None:
    [problem] = _problems(kind, **named)

    assert problem.startswith(line)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("failure_config", "FailureConfig"),
        ("checkpoint_config", "CheckpointConfig"),
        ("logging_config", "LoggingConfig"),
        ("sync_config", "SyncConfig"),
    ],
)
@pytest.mark.parametrize(
    ("given", "this_is"),
    [
        ({}, "dict"),
        ("auto", "str"),
        (ScalingConfig(), "holdfast.api.scaling.ScalingConfig"),
        (FailureConfig, "the class FailureConfig itself"),
    ],
)
def test_a_nested_config_of_the_wrong_class_is_told_the_right_one(
    name: str, wanted: str, given: object, this_is: str
) -> None:
    [problem] = _problems(RunConfig, **{name: given})

    assert problem == f"{name}={given!r}: must be a {wanted} of Holdfast, this is {this_is}"


def test_ending_at_the_first_failure_and_retrying_contradict_each_other() -> None:
    [problem] = _problems(FailureConfig, max_failures=3, fail_fast=True)

    assert problem == "fail_fast=True: ends at the first failure, but max_failures=3 retries it"


@pytest.mark.parametrize("given", [True, False, 0, 1, "raise", "RAISE"])
def test_the_ways_to_fail_fast_are_kept_as_given(given: bool | str) -> None:
    assert FailureConfig(fail_fast=given).fail_fast == given


def test_all_problems_are_told_at_once_with_what_to_try() -> None:
    bad: dict[str, Any] = {"failure_config": {}, "callbacks": [dict], "resume": "yes"}
    with pytest.raises(ValueError, match="cannot work") as caught:
        RunConfig("a/b", "s3:lab", **bad)

    assert str(caught.value) == (
        "RunConfig cannot work:\n"
        "  - name='a/b': a name holds no slash; it is one folder, not a path\n"
        "  - the storage path 's3:lab' begins with s3: but is not a URI\n"
        "  - failure_config={}: must be a FailureConfig of Holdfast, this is dict\n"
        "  - callbacks[0]=dict: this is the class dict itself, not an instance\n"
        "  - resume='yes': must be 'auto', 'must' or 'never' [HF100]\n"
        "  Try: write s3:// for a URI, or ./s3:lab for a folder of that name;"
        " write failure_config=FailureConfig(…); write dict()"
    )
