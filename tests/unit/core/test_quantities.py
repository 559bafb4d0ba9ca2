"""Durations and counts are short and easy to read."""

from __future__ import annotations

from holdfast.core.quantities import counted, duration, elapsed


def test_a_duration_has_one_unit_and_few_digits() -> None:
    seconds = (-1, 0, 0.00001, 0.0011629, 0.5, 5.04, 9.96, 12.3, 119, 1900, 7500, 86400, 200000)
    assert [duration(each) for each in seconds] == [
        "0 s", "0 s", "0 s", "0.0012 s", "0.5 s", "5 s", "10 s", "12 s", "119 s",
        "32 min", "2.1 h", "24 h", "2.3 d",
    ]  # fmt: skip


def test_what_has_elapsed_has_its_two_largest_units() -> None:
    assert [elapsed(seconds) for seconds in (0, 59, 61, 3600, 90061)] == [
        "0 s", "59 s", "1 min 1 s", "1 h", "1 d 1 h",
    ]  # fmt: skip


def test_a_count_of_one_is_singular() -> None:
    assert [counted(n, "trial") for n in (0, 1, 2)] == ["0 trials", "1 trial", "2 trials"]
    assert counted(2, "entry", "entries") == "2 entries"
