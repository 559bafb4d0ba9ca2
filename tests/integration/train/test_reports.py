"""What ranks save, together and apart, and saves that fail."""

from __future__ import annotations

import contextlib
import logging
import math
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import train
from holdfast.control.run import grace
from holdfast.errors import HoldfastError
from holdfast.train import Checkpoint, CheckpointConfig, Result, WorkerGroupError
from holdfast.train.collective import barrier
from tests.integration.train.conftest import Lab
from tests.integration.train.loops import (
    folder_with,
    functions_of,
    is_first,
    note,
    save,
    wait_for,
)
from tests.patience import pause


def contents(checkpoint: Checkpoint | None) -> dict[str, str]:
    assert checkpoint is not None
    with checkpoint.as_directory() as folder:
        return {path.name: path.read_text() for path in sorted(Path(folder).iterdir())}


# ---------------------------------------------------------------------- parts of ranks


def test_what_ranks_save_becomes_one_folder(lab: Lab) -> None:
    def loop() -> None:
        rank = train.get_context().get_world_rank()
        with folder_with({f"shard-{rank}": f"of {rank}"}) as folder:
            train.report({"rank": rank}, checkpoint=Checkpoint.from_directory(folder))

    result = lab.fit(loop, workers=3)

    assert contents(result.checkpoint) == {"shard-0": "of 0", "shard-1": "of 1", "shard-2": "of 2"}
    assert result.metrics == {"rank": 0}


def test_one_rank_may_save_for_all(lab: Lab) -> None:
    def loop() -> None:
        for step in range(3):
            if train.get_context().get_world_rank() == 0:
                save(step)
            else:
                train.report({"step": step, "by": "rank 1"})

    result = lab.fit(loop, workers=2)

    assert [metrics for _, metrics in result.best_checkpoints] == [
        {"step": 0},
        {"step": 1},
        {"step": 2},
    ]


def test_a_rank_that_has_returned_is_not_waited_for(lab: Lab) -> None:
    def loop() -> None:
        if train.get_context().get_world_rank() == 1:
            train.report({"step": 0})
            return
        for step in range(4):
            with folder_with({"shard-0": str(step)}) as folder:
                train.report({"step": step}, checkpoint=Checkpoint.from_directory(folder))

    assert contents(lab.fit(loop, workers=2).checkpoint) == {"shard-0": "3"}


def test_the_lowest_rank_wins_where_ranks_save_the_same_name(lab: Lab) -> None:
    def loop() -> None:
        rank = train.get_context().get_world_rank()
        with folder_with({"model": f"of {rank}"}) as folder:
            train.report({}, checkpoint=Checkpoint.from_directory(folder))

    assert contents(lab.fit(loop, workers=3).checkpoint) == {"model": "of 0"}


class Watched(Checkpoint):
    """A checkpoint that says when its files begin to travel, and waits to be let go."""

    begun: Path
    may_go: Path

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        self.begun.touch()
        wait_for(self.may_go)
        with super().as_directory() as folder:
            yield folder


def save_watched(folder: str, notes: Path) -> None:
    checkpoint = Watched(folder)
    checkpoint.begun, checkpoint.may_go = notes.with_name("begun"), notes.with_name("may go")
    train.report({}, checkpoint=checkpoint)


def test_a_rank_that_raises_while_another_saves_costs_only_that_save(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grace, "FINISH_SAVE_S", 0.5)
    notes = lab.notes

    def loop() -> None:
        rank = train.get_context().get_world_rank()
        first = is_first(notes.with_name(f"start of {rank}"))
        if first:
            save(0)
        if first and rank == 0:
            train.report({})
            wait_for(notes.with_name("begun"))
            raise ValueError("in the middle")
        if first:
            with folder_with({"half": "of a checkpoint"}) as folder:
                save_watched(folder, notes)
        note(notes, what="found", files=sorted(contents(train.get_checkpoint())))

    lab.fit(loop, workers=2, max_failures=1)

    assert [fact["files"] for fact in lab.noted("found")] == [["state.json"], ["state.json"]]


def deliver_into_the_gap(notes: Path) -> None:
    """Save one shard of two; let the files go once the driver has heard of the other's death."""
    main = threading.main_thread().ident
    assert main is not None

    def tell_when_delivered() -> None:
        wait_for(notes.with_name("may go"))
        while "_await_commit" not in functions_of(main):
            pause()
        notes.with_name("delivered").touch()

    threading.Thread(target=tell_when_delivered, daemon=True).start()
    with folder_with({"shard-0": "of 0"}) as folder:
        save_watched(folder, notes)


def test_a_shard_whose_neighbour_died_does_not_become_a_checkpoint(lab: Lab) -> None:
    """The shard arrives after the driver has heard of the death and before it ends the group.

    That gap is held open by a log handler: the driver logs the death before it acts on it.
    """
    notes = lab.notes

    def loop() -> None:
        if not is_first(notes.with_name(f"start of {train.get_context().get_world_rank()}")):
            return
        if train.get_context().get_world_rank() == 1:
            wait_for(notes.with_name("begun"))
            raise ValueError("before its own report")
        deliver_into_the_gap(notes)

    class Gap(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "rank 1 raised" in record.getMessage():
                notes.with_name("may go").touch()
                wait_for(notes.with_name("delivered"))

    handler = Gap()
    logging.getLogger("holdfast").addHandler(handler)
    try:
        lab.fit(loop, workers=2, max_failures=1)
    finally:
        logging.getLogger("holdfast").removeHandler(handler)

    assert lab.committed() == []


# ---------------------------------------------------------------------- saves that fail


class Unreadable(Checkpoint):
    """A checkpoint whose files cannot be had, for a reason that is not one of ours."""

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        raise PermissionError("not yours")
        yield ""


def report_missing() -> None:
    train.report({}, checkpoint=Checkpoint.from_directory("/no/such/folder"))


def report_unreadable() -> None:
    train.report({}, checkpoint=Unreadable.from_directory("/"))


def report_with_name(name: str) -> None:
    with folder_with({"model": "m"}) as folder:
        train.report({}, checkpoint=Checkpoint.from_directory(folder), checkpoint_dir_name=name)


FAILURES = {
    "missing folder": (report_missing, "does not exist"),
    "unreadable": (report_unreadable, "not yours"),
    "name too long": (lambda: report_with_name("n" * 300), "at most 255 are allowed"),
    "name of ours": (lambda: report_with_name("checkpoint_000007"), "cannot be named"),
    "not a checkpoint": (lambda: train.report({}, checkpoint="/tmp"), "not a Checkpoint"),  # type: ignore[arg-type]
    "metrics not a dict": (lambda: train.report(0.5), "metrics are a dictionary"),  # type: ignore[arg-type]
    "metric of a strange kind": (
        lambda: train.report({"loss": object()}),
        "metric 'loss' is of type object",
    ),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failed_report_raises_in_user_code_and_leaves_report_usable(
    lab: Lab, failure: str
) -> None:
    attempt, message = FAILURES[failure]

    def loop() -> str:
        save(0)
        try:
            attempt()
        except (HoldfastError, OSError) as error:
            failed = str(error)
        else:
            failed = "it did not fail"
        save(1)
        save(2)
        return failed

    result = lab.fit(loop, workers=2)

    assert message in result.return_value
    assert [metrics["step"] for _, metrics in result.best_checkpoints] == [0, 1, 2]


def test_a_failed_save_of_one_rank_fails_for_all_who_save(lab: Lab) -> None:
    """However late the others come: the parts of some are not a checkpoint."""
    notes = lab.notes

    def loop() -> str | None:
        rank = train.get_context().get_world_rank()
        failed = None
        if rank == 1:
            wait_for(notes.with_name("failed"))
        try:
            if rank == 0:
                report_missing()
            else:
                report_with_name("mine")
        except HoldfastError as error:
            failed = str(error)
        notes.with_name("failed").touch()
        note(notes, what="failed", rank=rank, error=failed)
        save(1)
        return failed

    result = lab.fit(loop, workers=2)

    assert result.return_value is not None
    assert all("does not exist" in str(fact["error"]) for fact in lab.noted("failed"))
    assert [metrics for _, metrics in result.best_checkpoints] == [{"step": 1}]


def test_a_checkpoint_that_somebody_deleted_does_not_stop_retention(lab: Lab) -> None:
    run = lab.run

    def loop() -> None:
        for step in range(4):
            save(step)
            if step == 1:
                shutil.rmtree(run / "checkpoint_000001")

    result = lab.fit(loop, checkpoint_config=CheckpointConfig(num_to_keep=1))

    assert result.metrics == {"step": 3}
    assert lab.committed() == ["checkpoint_000003"]


def test_a_name_of_the_users_own_is_the_folder(lab: Lab) -> None:
    result = lab.fit(lambda: report_with_name("epoch=3"))

    assert contents(result.checkpoint) == {"model": "m"}
    assert (lab.run / "epoch=3" / "model").read_text() == "m"


def test_a_reported_folder_is_the_users_again(lab: Lab) -> None:
    """It may be changed or deleted as soon as `report` has returned, without a trace."""

    def loop() -> None:
        with folder_with({"model": "saved"}) as folder:
            train.report({}, checkpoint=Checkpoint.from_directory(folder))
            Path(folder, "model").write_text("changed")

    assert contents(lab.fit(loop).checkpoint) == {"model": "saved"}


# ---------------------------------------------------------------------- metrics


class Scalar:
    """A number as array libraries have them."""

    def __init__(self, value: float) -> None:
        self._value = value

    def item(self) -> float:
        return self._value


class Array:
    size = 3

    def item(self) -> float:
        raise ValueError("only arrays of one number")

    def tolist(self) -> list[float]:
        return [1.0, 2.0, 3.0]


def metrics_after(lab: Lab, metrics: dict[str, Any]) -> dict[str, Any]:
    def loop() -> None:
        with folder_with({}) as folder:
            train.report(metrics, checkpoint=Checkpoint.from_directory(folder))

    lab.fit(loop)
    found = Result.from_path(lab.run).metrics  # as it rests on the disk
    assert found is not None
    return found


def test_metrics_come_back_as_what_they_were(lab: Lab) -> None:
    metrics = {"loss": 0.1 + 0.2, "steps": 2**60, "note": "día ✓", "done": True, "none": None}

    found = metrics_after(lab, metrics)

    assert found == metrics
    assert {name: type(value) for name, value in found.items()} == {
        "loss": float,
        "steps": int,
        "note": str,
        "done": bool,
        "none": type(None),
    }


def test_nan_and_infinity_are_metrics_like_any_other(lab: Lab) -> None:
    found = metrics_after(lab, {"nan": math.nan, "up": math.inf, "down": [-math.inf]})

    assert math.isnan(found["nan"])
    assert (found["up"], found["down"]) == (math.inf, [-math.inf])


def test_numbers_of_array_libraries_become_plain_ones(lab: Lab) -> None:
    nested = {"train": {"loss": Scalar(0.5)}, "all": [Scalar(1.0), Scalar(2.0)], "grid": Array()}

    found = metrics_after(lab, nested)

    assert found == {"train": {"loss": 0.5}, "all": [1.0, 2.0], "grid": [1.0, 2.0, 3.0]}


def test_an_error_in_metrics_says_what_they_are_to_be(lab: Lab) -> None:
    def loop() -> None:
        train.report([("loss", 1)])  # type: ignore[arg-type]

    with pytest.raises(WorkerGroupError, match=r"metrics are a dictionary of names and values"):
        lab.fit(loop)


def test_reports_without_a_checkpoint_wait_for_nobody(lab: Lab) -> None:
    """Rank 1 makes all its reports while rank 0 has made none."""
    notes = lab.notes

    def loop() -> None:
        if train.get_context().get_world_rank() == 1:
            for step in range(1000):
                train.report({"step": step})
            notes.touch()
        wait_for(notes)
        barrier()

    lab.fit(loop, workers=2)
