"""The record of a trainer: its contents, when it is written, and failures to write it."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.control.record.open_run import OpenRun, open_run
from holdfast.errors import FormatTooNew, LeaseLost, StoreFull
from holdfast.storage.local.disk import PosixDisk
from holdfast.storage.local.store import LocalStore
from holdfast.storage.records import seal, unseal
from holdfast.testing.faults import Fuse, PowerCut, TappedDisk
from holdfast.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig, SyncConfig
from holdfast.train.restore import record as module
from holdfast.train.restore.pickled import FOLDER
from holdfast.train.restore.record import (
    FORMAT,
    TRAINER_KEY,
    RecordBuilder,
    StoredTrainer,
    read_trainer,
    store_trainer,
)
from holdfast.train.restore.references import CannotRestore, find_function
from tests.unit.train.restore.plain_things import train


@pytest.fixture
def run(tmp_path: Path) -> OpenRun:
    return open_run(LocalStore(tmp_path / "run"), name="run", beats=False)


def recording(
    function: Callable[..., Any] | None = train, config: dict[str, Any] | None = None
) -> Callable[[RecordBuilder], StoredTrainer]:
    def make(keeper: RecordBuilder) -> StoredTrainer:
        return StoredTrainer(
            trainer="a:B", function=keeper.function(function), config=keeper.config(config)
        )

    return make


def pickles(run: OpenRun) -> list[str]:
    return [entry.key for entry in run.store.entries(FOLDER)]


@pytest.mark.req("T-089")
def test_a_function_that_can_be_imported_leaves_no_pickle(run: OpenRun) -> None:
    store_trainer(run, recording(train, {"lr": 0.1, "betas": (0.9, 0.99)}))

    assert pickles(run) == []
    assert read_trainer(run.store).function["name"] == "train"


@pytest.mark.parametrize(
    ("function", "config", "count"),
    [
        (lambda: None, None, 1),
        (lambda: None, {"x": {1, 2}}, 2),
        (train, {"x": np.float32(3)}, 1),
        (train, {"x": 3}, 0),
        (None, None, 0),
    ],
)
def test_only_what_has_no_other_form_is_pickled(
    run: OpenRun, function: Any, config: dict[str, Any] | None, count: int
) -> None:
    store_trainer(run, recording(function, config))

    assert len(pickles(run)) == count


def test_the_record_is_one_line_that_any_tool_reads(run: OpenRun, tmp_path: Path) -> None:
    store_trainer(run, recording(train, {"lr": 0.1}))

    [line] = (tmp_path / "run" / TRAINER_KEY).read_text().splitlines()
    record = json.loads(line)
    assert record["format"] == FORMAT
    assert record["config"] == {"kind": "plain", "value": {"lr": 0.1}}


def test_the_fields_of_a_config_are_kept_if_they_were_set() -> None:
    keeper = RecordBuilder()
    config = RunConfig(
        "bert-7",
        "s3://lab/runs?access_key=AKIA&secret_key=hush",
        failure_config=FailureConfig(max_failures=3),
        checkpoint_config=CheckpointConfig(2, "loss", "min"),
        callbacks=[object()],
        worker_runtime_env={"env_vars": {"API_TOKEN": "hush"}},
        sync_config=SyncConfig(upload_dir="s3://lab/x?secret_key=hush"),
        resume="never",
    )

    fields = keeper.fields(config)

    assert set(fields) == {"failure_config", "checkpoint_config", "sync_config"}
    assert keeper.not_kept == ["RunConfig.callbacks", "RunConfig.worker_runtime_env"]
    assert "hush" not in repr(fields)
    assert keeper.fields(ScalingConfig()) == {}
    assert keeper.fields(ScalingConfig(num_workers=(1, 4))) == {"num_workers": {"@tuple": [1, 4]}}


def test_the_same_launch_again_writes_nothing(run: OpenRun, tmp_path: Path) -> None:
    store_trainer(run, recording())
    before = (tmp_path / "run" / TRAINER_KEY).stat().st_ino

    store_trainer(run, recording())

    assert (tmp_path / "run" / TRAINER_KEY).stat().st_ino == before


def test_a_lost_pickle_is_written_again(run: OpenRun) -> None:
    function = lambda: None  # noqa: E731  # the same object twice, for the same bytes
    store_trainer(run, recording(function))
    [key] = pickles(run)
    run.store.delete(key)

    store_trainer(run, recording(function))

    assert pickles(run) == [key]


def test_a_new_pickle_takes_the_place_of_the_old_one(run: OpenRun) -> None:
    store_trainer(run, recording(lambda: "one"))
    [first] = pickles(run)
    store_trainer(run, recording(lambda: "two"))
    [second] = pickles(run)
    store_trainer(run, recording())

    assert first != second
    assert pickles(run) == []


def test_a_death_at_any_moment_leaves_a_record_whose_pickle_is_there(tmp_path: Path) -> None:
    """The second launch has another function; the power is cut before each of its writes."""
    function: list[Any] = []
    for moment in itertools.count(1):
        folder = tmp_path / str(moment)
        store = LocalStore(folder)
        run = open_run(store, name="run", beats=False)
        store_trainer(run, recording(lambda: "one"))
        run.store = LocalStore(folder, TappedDisk(PosixDisk(), Fuse(moment)))
        try:
            store_trainer(run, recording(lambda: "two"))
        except PowerCut:
            is_over = False
        else:
            is_over = True
        function.append(find_function(store, read_trainer(store).function)())
        if is_over:
            break

    assert len(function) > 4
    assert function == sorted(function)
    assert {function[0], function[-1]} == {"one", "two"}


def test_a_failure_to_write_is_told_and_does_no_harm(
    run: OpenRun, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreFull("no space left")

    monkeypatch.setattr(LocalStore, "put", full)
    with caplog.at_level(logging.WARNING, logger=module.__name__):
        store_trainer(run, recording())

    [message] = caplog.messages
    assert "restore(" in message
    assert "no space left" in message
    assert "the same command resumes it" in message


def test_a_driver_that_was_replaced_writes_nothing(run: OpenRun, tmp_path: Path) -> None:
    run.lease.release(0)
    open_run(LocalStore(tmp_path / "run"), beats=False)

    with pytest.raises(LeaseLost):
        store_trainer(run, recording())

    with pytest.raises(CannotRestore, match="has no"):
        read_trainer(run.store)


def test_what_is_too_large_is_not_kept_and_says_so(
    run: OpenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT_BYTES_MAX", 1 << 20)
    table = bytes(2 << 20)

    store_trainer(run, recording(lambda: table))

    assert pickles(run) == []
    assert "2 MB" in read_trainer(run.store).function["why"]


def test_every_change_of_a_byte_is_noticed(run: OpenRun) -> None:
    store_trainer(run, recording(train, {"lr": 0.1}))
    whole = run.store.get(TRAINER_KEY).data
    for place in range(len(whole) - 1):
        changed = whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :]
        run.store.put(TRAINER_KEY, changed)

        with pytest.raises(CannotRestore) as refused:
            read_trainer(run.store)

        assert refused.value.hint


@pytest.mark.parametrize(
    ("record", "error"),
    [({"format": FORMAT + 1}, FormatTooNew), ({"format": FORMAT}, CannotRestore)],
)
def test_a_record_of_another_kind_is_refused(
    run: OpenRun, record: dict[str, Any], error: type[Exception]
) -> None:
    run.store.put(TRAINER_KEY, seal(record) + b"\n")

    with pytest.raises(error):
        read_trainer(run.store)


def test_a_record_comes_back_as_it_was() -> None:
    record = StoredTrainer(
        trainer="a:B",
        function={"kind": "none"},
        config={"kind": "plain", "value": {"lr": float("nan")}},
        run_config={"verbose": 1},
        arguments={"@x": 1, "$y": [2]},
        datasets=["train"],
        not_kept=["RunConfig.callbacks"],
    )

    assert repr(StoredTrainer.from_record(unseal(seal(record.to_record())))) == repr(record)
