"""When whom to kill, and what was made of it."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest

from bench.goodput import MEAN_S, SEED, WINDOW_S, kills_of, steps_made
from bench.runner import SideFailed


def test_kills_are_the_same_every_time() -> None:
    assert kills_of(3, 60, 600) == kills_of(3, 60, 600)
    assert kills_of(3, 60, 600) != kills_of(4, 60, 600)


def test_kills_come_in_order_within_the_window_and_hit_both_workers() -> None:
    kills = kills_of(0, 1, 1000)
    times = [at for at, _ in kills]

    assert times == sorted(times)
    assert times[0] > 0
    assert times[-1] < 1000
    assert {rank for _, rank in kills} == {0, 1}


def test_kills_are_as_far_apart_as_they_should_be_on_average() -> None:
    kills = kills_of(1, 60, 60 * 10_000)

    assert len(kills) == pytest.approx(10_000, rel=0.05)


def test_the_window_that_is_measured_holds_as_many_kills_as_expected() -> None:
    assert len(kills_of(SEED, MEAN_S, WINDOW_S)) == WINDOW_S / MEAN_S


def test_a_step_that_was_cut_off_while_it_was_written_down_is_not_counted(tmp_path: Path) -> None:
    (tmp_path / "steps").write_bytes(array("d", [0.5, 0.25]).tobytes() + b"\x00\x01")

    assert list(steps_made(tmp_path)) == [0.5, 0.25]


def test_a_run_without_a_step_has_failed(tmp_path: Path) -> None:
    (tmp_path / "steps").write_bytes(b"")

    with pytest.raises(SideFailed, match="not a single step"):
        steps_made(tmp_path)
