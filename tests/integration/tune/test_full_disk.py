"""A study on a disk that is really full: it says so, and goes on when there is room again."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.errors import StoreFull
from holdfast.tune import Tuner
from tests.integration.train.loops import is_first
from tests.integration.tune.conftest import Lab, last
from tests.integration.tune.trainables import Counter, begin, save


class SmallDisk:
    """A disk of 16 MiB, which can be filled to its last byte."""

    def __init__(self, top: Path) -> None:
        self.top = top

    def fill(self) -> None:
        with (self.top / "filler").open("wb", buffering=0) as filler:
            try:
                while filler.write(b"x" * 4096):
                    pass
            except OSError:
                pass  # now it is

    def free(self) -> None:
        (self.top / "filler").unlink()


@pytest.fixture
def disk(lab: Lab) -> Iterator[SmallDisk]:
    lab.storage.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(lab.storage)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("a disk cannot be mounted here")
    try:
        yield SmallDisk(lab.storage)
    finally:
        subprocess.run(["umount", str(lab.storage)], check=True)


@pytest.mark.req("U-005")
def test_a_study_that_cannot_be_written_down_stops_and_goes_on_when_there_is_room(
    lab: Lab, disk: SmallDisk
) -> None:
    class Fills(tune.Callback):
        def on_trial_result(
            self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any
        ) -> None:
            if result["count"] == 20 and is_first(lab.notes):
                disk.fill()

    def drive() -> None:
        try:
            lab.fit(
                Counter,
                {"x": tune.grid_search([0, 1, 2])},
                stop={"count": 300},
                callbacks=[Fills()],  # long before anything is saved, so the journal fails first
            )
        except StoreFull as full:
            (lab.folder / "said").write_text("\n".join(full.__notes__))

    driver = multiprocessing.get_context("fork").Process(target=drive)
    driver.start()
    driver.join()
    said = (lab.folder / "said").read_text()
    assert said == f"To go on: Tuner.restore('{lab.study}', Counter).fit()"
    with pytest.raises(StoreFull, match="free some space"):
        lab.restore(Counter)
    disk.free()
    results = lab.restore(Counter)

    assert [last(one)["count"] for one in results] == [300, 300, 300]
    assert results.num_errors == 0
    for number in range(3):
        assert [row["count"] for row in lab.rows(f"0000{number}")] == list(range(1, 301))


@pytest.mark.req("U-005", "U-039")
def test_trials_that_could_not_save_go_on_from_what_they_had_saved(
    lab: Lab, disk: SmallDisk
) -> None:
    notes = lab.notes

    def train(config: dict[str, Any]) -> None:
        for step in range(begin(notes), 5):
            if step == 3 and is_first(notes.with_name("full")):
                disk.fill()
                with (disk.top / "filler").open("r+b") as filler:  # room for a journal
                    filler.truncate((disk.top / "filler").stat().st_size - 64 * 1024)
                big = disk.top / "big"
                try:
                    big.write_bytes(b"x" * 200_000)
                except OSError:
                    big.unlink()
                    raise
            save(step)

    results = lab.fit(train)
    assert results.num_errors == 1
    assert "No space left" in str(results.errors[0])
    disk.free()
    [result] = Tuner.restore(str(lab.study), train, resume_errored=True).fit()

    assert result.error is None and last(result)["step"] == 4
    assert [fact["step"] for fact in lab.noted("began")] == [None, 2]
    assert [row["step"] for row in lab.rows("00000")] == [1, 2, 3, 4]


def test_an_error_is_told_also_if_the_log_cannot_be_written(lab: Lab) -> None:
    def fails(config: dict[str, Any]) -> None:
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, 1)
        os.dup2(full, 2)
        raise ValueError("told all the same")

    results = lab.fit(fails)

    assert "told all the same" in str(results.errors[0])
