"""The tables on how good searches are: their figures, and when there are none."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from bench import quality
from bench.landscapes import LANDSCAPES
from bench.quality import SIDES, Found, as_markdown, command_of, main, measure, rank_of_median


@pytest.mark.parametrize(
    ("count", "left_out"), [(1, 0), (5, 0), (6, 0), (10, 1), (20, 5), (30, 9), (80, 30), (100, 39)]
)
def test_the_interval_of_a_median_is_that_of_the_tables(count: int, left_out: int) -> None:
    """Ranks from tables of the sign test: of 80 values the 31st to the 50th."""
    assert rank_of_median(count) == left_out


def test_a_table_has_a_row_for_every_side() -> None:
    found = [Found(side, "branin", "1.2", tuple(at / 100 for at in range(80))) for side in SIDES]
    table = as_markdown(found, "the command")

    assert table.startswith("Made by `the command`.")
    assert "| random | 0.395 | 0.300 to 0.490 | 0.200 to 0.590 | 0.000 to 0.790 |" in table
    assert "| HpBandSter, BOHB's original 1.2 | 0.395 |" in table
    assert "Hartmann" not in table


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("branin", {"x": math.pi, "y": 2.275}),
        ("hartmann", dict(zip([f"x{at}" for at in range(6)],
                              [0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573],
                              strict=True))),
    ],
)  # fmt: skip
def test_the_lowest_values_are_where_the_books_say(name: str, config: dict[str, float]) -> None:
    landscape = LANDSCAPES[name]

    assert set(config) == set(landscape.bounds)
    assert landscape.function(config) == pytest.approx(landscape.lowest, abs=1e-5)


def test_a_side_is_asked_in_a_process_of_its_own() -> None:
    found = measure(SIDES[0], "branin", trials=5, seeds=3, first=7)

    assert len(found.regrets) == 3
    assert list(found.regrets) == sorted(found.regrets)
    assert found == measure(SIDES[0], "branin", trials=5, seeds=3, first=7)


def test_without_its_peers_nothing_is_published(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("as it was")
    monkeypatch.setattr(quality, "PEERS", tmp_path / "python")
    monkeypatch.setattr(quality, "PAGE", page)
    monkeypatch.setattr(quality, "SIDES", (SIDES[0], SIDES[2]))

    assert main(["--seeds", "2", "--trials", "3", "--publish"]) == 1
    told = capsys.readouterr().err
    assert "hyperopt cannot be asked" in told
    assert f"Try: {quality.HINT}" in told
    assert page.read_text() == "as it was"


@pytest.mark.parametrize("given", [["--seeds", "0"], ["--trials", "-1"], ["--publish", "--only"]])
def test_what_makes_no_table_is_refused(
    given: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        main(given)

    assert refused.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_the_command_in_the_page_makes_the_page() -> None:
    assert command_of({"--seeds": (80, 80)}) == "python -m bench.quality --publish"
    assert command_of({"--seeds": (9, 80)}) == "python -m bench.quality --seeds 9 --publish"
