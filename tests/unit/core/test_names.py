from __future__ import annotations

import pytest

from holdfast.core.names import broken_name_rule, broken_path_rule, shown


@pytest.mark.parametrize(
    "name",
    [
        "bert-7",
        "a",
        "two words",
        ".hidden",
        "…",
        "größe",
        "-x",
        "~",
        "x" * 200,
        "é" * 100,
        "a.json",
        "line\nbreak",
    ],
)
def test_a_name_that_every_backend_can_hold_is_accepted(name: str) -> None:
    assert broken_name_rule(name) is None


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("", "not empty"),
        (" x", "no space at either end"),
        ("x\n", "no space at either end"),
        ("a/b", "no slash"),
        ("/", "no slash"),
        ("a\\b", "no slash"),
        (".", "'.' or '..'"),
        ("..", "'.' or '..'"),
        ("x\x00y", "NUL"),
        ("x" * 201, "it has 201 bytes, at most 200"),
        ("x" * 300, "it has 300 bytes, at most 200"),
        ("é" * 101, "it has 202 bytes, at most 200"),
        (chr(0xD800), "not valid Unicode"),
        (chr(0xDCFF), "not valid Unicode"),
        (7, "is a string, this is int"),
        (None, "is a string, this is NoneType"),
        (b"x", "is a string, this is bytes"),
    ],
)
def test_a_name_that_some_backend_cannot_hold_is_refused(name: object, rule: str) -> None:
    assert rule in (broken_name_rule(name) or "accepted")


@pytest.mark.parametrize(
    "path",
    [
        "model.pt",
        "shards/0/weights.bin",
        "a\\b",
        " x ",
        "...",
        "..a/b..",
        "x" * 255,
        "/".join(["x" * 99] * 10),
    ],
)
def test_a_path_inside_a_checkpoint_is_accepted(path: str) -> None:
    assert broken_path_rule(path) is None


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("", "not empty"),
        ("/", "relative"),
        ("/etc/passwd", "relative"),
        ("../../etc/passwd", "'.' or '..'"),
        ("a/../../b", "'.' or '..'"),
        ("a/..", "'.' or '..'"),
        ("a/./b", "'.' or '..'"),
        ("a//b", "may be empty"),
        ("a/", "may be empty"),
        ("a/b\x00", "NUL"),
        ("a/" + "x" * 256, "it has 256 bytes, at most 255"),
        ("x" * 256, "it has 256 bytes, at most 255"),
        ("/".join(["x" * 99] * 10) + "/y", "at most 1000 bytes"),
        ("a/" + chr(0xDCFF), "not valid Unicode"),
        ("a/" + chr(0xD800), "not valid Unicode"),
        (b"model.pt", "is a string, this is bytes"),
        (None, "is a string, this is NoneType"),
    ],
)
def test_a_path_that_leaves_its_folder_or_some_backend_is_refused(path: object, rule: str) -> None:
    assert rule in (broken_path_rule(path) or "accepted")


def test_an_error_shows_a_name_as_it_was_written() -> None:
    assert shown("a\nb") == r"'a\nb'"
    assert shown(7) == "7"


def test_an_error_shows_only_the_ends_of_a_very_long_name() -> None:
    assert shown("x" * 1000) == "'" + "x" * 59 + "…" + "x" * 9 + "'"
