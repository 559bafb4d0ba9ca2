"""The picture: what is longer than what, on which side of the line, and in which colours."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from bench.chart import as_svg, groups_of
from tests.unit.bench import records

SPACE = "{http://www.w3.org/2000/svg}"


def bars(svg: str, kind: str) -> list[tuple[float, float]]:
    """Return where the bars of a kind begin and end, without the key to the colours."""
    found = ET.fromstring(svg).iter(f"{SPACE}rect")
    _, *rest = (one for one in found if one.get("class") == kind)
    places = [(float(one.get("x", "")), float(one.get("width", ""))) for one in rest]
    return [(x, x + width) for x, width in places]


def test_a_bar_is_as_long_as_the_factor_wherever_it_stands() -> None:
    tenfold = records.record("launch", {"holdfast": 1.0, "torchrun": 10.0, "ray": 100.0})

    svg = as_svg([tenfold])

    [(begins, ends)] = bars(svg, "plain")
    [(also_begins, further)] = bars(svg, "ray")
    assert begins == also_begins
    assert further - begins == pytest.approx(2 * (ends - begins), abs=0.2)


def test_a_peer_that_is_ahead_is_on_the_other_side_of_the_line() -> None:
    svg = as_svg([records.record("launch", {"holdfast": 1.0, "torchrun": 0.5, "ray": 2.0})])

    [(_, left_ends)] = bars(svg, "plain")
    [(right_begins, _)] = bars(svg, "ray")
    assert left_ends == pytest.approx(right_begins, abs=0.2)


def test_fewer_trials_a_second_are_a_bar_to_the_right() -> None:
    figures = {"holdfast": 100.0, "optuna-sqlite": 50.0, "ray": 1.0}

    [group] = groups_of([records.record("tune-trials", figures, unit="trials/s")])

    assert dict(group.ratios) == pytest.approx({"plain": 2.0, "ray": 100.0})


def test_a_side_that_lost_nothing_leaves_no_ratio() -> None:
    assert groups_of([records.record("launch", {"holdfast": 0.0, "torchrun": 1.0})]) == []


def test_there_is_a_picture_of_nothing() -> None:
    ET.fromstring(as_svg([]))


def test_it_has_colours_for_light_and_for_dark() -> None:
    svg = as_svg([])

    assert "prefers-color-scheme: dark" in svg
    assert 'class="page"' in svg
