"""What is published of several runs: each question with the figures, the day and the machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bench import publishing, record
from bench.record import Record
from bench.report import COMMAND, MARKS, figure
from tests.unit.bench import records

ORDER = ("launch", "recovery-worker", "memory")


def place(name: str) -> str:
    return "\n".join(mark.format(name, COMMAND) for mark in MARKS)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    page = tmp_path / "page.md"
    marks = "\n\n".join(place(name) for name in ("chart", "headline", "measured", "sides"))
    page.write_text(f"# Before\n\n{marks}\n\nAfter.\n")
    return page


def publish(page: Path, *found: Record) -> str:
    publishing.publish(
        found,
        ORDER,
        pages=[page],
        kept=page.parent / "published.json",
        picture=page.parent / "docs" / "picture.svg",
    )
    return page.read_text()


@pytest.fixture(autouse=True)
def _docs(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()


def test_a_run_of_one_question_leaves_the_others_as_they_were(page: Path) -> None:
    publish(
        page,
        records.record("launch", {"holdfast": 2.0, "torchrun": 4.0}, measured="2026-01-01"),
        records.record("memory", {"holdfast": 250.0, "torchrun": 500.0}, unit="MiB"),
    )
    text = publish(
        page,
        records.record("launch", {"holdfast": 1.0, "torchrun": 4.0}, measured="2026-02-02"),
    )

    assert "| launch, until 2 workers train | 1.00 s | 4.00 s (torchrun) | – |" in text
    assert "250 MiB" in text
    assert "Measured on 2026-02-02, on: processor a slow one; holdfast 0.1.0: `launch`" in text
    assert "Measured on 2026-01-01, on: processor a slow one; holdfast 0.1.0: `memory`" in text


def test_what_is_around_the_tables_stays(page: Path) -> None:
    once = publish(page, records.record("launch", {"holdfast": 2.0, "torchrun": 4.0}))
    twice = publish(page, records.record("launch", {"holdfast": 2.0, "torchrun": 4.0}))

    assert once == twice
    assert once.startswith("# Before\n")
    assert once.endswith("\n\nAfter.\n")


def test_a_page_without_places_is_not_touched(page: Path) -> None:
    page.write_text("nothing here\n")

    assert publish(page, records.record("launch", {"holdfast": 2.0})) == "nothing here\n"


def test_a_question_that_is_no_longer_asked_goes(page: Path) -> None:
    kept = page.parent / "published.json"
    record.write(kept, [records.record("an-old-one", {"holdfast": 2.0, "torchrun": 4.0})])

    text = publish(page, records.record("launch", {"holdfast": 2.0, "torchrun": 4.0}))

    assert "an-old-one" not in text
    assert [found.name for found in record.read(kept)] == ["launch"]


def test_questions_stand_in_the_order_in_which_they_are_asked(page: Path) -> None:
    publish(page, records.record("memory", {"holdfast": 250.0}, unit="MiB"))
    publish(page, records.record("launch", {"holdfast": 2.0}))

    kept = record.read(page.parent / "published.json")
    assert [found.name for found in kept] == ["launch", "memory"]


def test_a_quick_run_is_refused_and_nothing_is_written(page: Path) -> None:
    before = page.read_text()

    with pytest.raises(ValueError, match="quick: launch"):
        publish(page, records.record("launch", {"holdfast": 2.0}, is_quick=True))

    assert page.read_text() == before
    assert not (page.parent / "published.json").exists()


def test_a_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    found = records.record("memory", {"holdfast": 250.0, "holdfast processes": 4.0, "ray": 1800.0})

    record.write(tmp_path / "results.json", [found])

    assert record.read(tmp_path / "results.json") == [found]


def test_results_of_another_version_are_refused(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text('{"machine": {}, "questions": {}}')

    with pytest.raises(ValueError, match=r"old\.json: version None of the results"):
        record.read(tmp_path / "old.json")


def test_what_a_peer_printed_when_it_failed_stays_out_of_the_tree(page: Path) -> None:
    failed = "failed in round 1: the script ended with code 3:\n  in the file of somebody"
    found = replace(records.record("launch", {"holdfast": 2.0}), left_out={"ray": failed})

    publish(page, found)

    kept = (page.parent / "published.json").read_text()
    assert "ended with code 3" in kept
    assert "somebody" not in kept


def test_a_second_figure_stands_beside_the_first(page: Path) -> None:
    figures = {"holdfast": 250.0, "holdfast processes": 4.0, "ray": 1800.0, "ray processes": 16.0}

    text = publish(page, records.record("memory", figures, unit="MiB"))

    assert "| 250 MiB in 4 processes | – | 1,800 MiB in 16 processes |" in text


def test_the_picture_is_found_from_the_page_and_says_in_words_what_it_shows(page: Path) -> None:
    text = publish(page, records.record("launch", {"holdfast": 2.0, "torchrun": 5.0, "ray": 50.0}))

    assert "launch of 2 workers: plain 2.5×, Ray 25×" in text
    assert "](docs/picture.svg)" in text
    ET.parse(page.parent / "docs" / "picture.svg")


@pytest.mark.parametrize(
    ("number", "shown"), [(0.12345, "0.123"), (9.876, "9.88"), (12.34, "12.3"), (12345.6, "12,346")]
)
def test_a_figure_has_as_many_digits_as_are_of_use(number: float, shown: str) -> None:
    assert figure(number) == shown
