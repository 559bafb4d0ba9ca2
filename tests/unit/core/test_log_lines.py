"""Lines of workers: cut, merged and counted."""

from __future__ import annotations

import pytest

from holdfast.core import log_lines
from holdfast.core.log_lines import (
    LeftOut,
    Line,
    LineCutter,
    Together,
    ranks_text,
    shown_plainly,
)

# ---------------------------------------------------------------------- cutting


def test_a_line_is_held_until_it_is_complete() -> None:
    cutter = LineCutter()

    assert cutter.feed(b"one\ntw") == ["one"]
    assert cutter.feed(b"o") == []
    assert cutter.feed(b"\nthree") == ["two"]
    assert cutter.finish() == ["three"]
    assert cutter.finish() == []


def test_blank_lines_are_left_out_and_windows_newlines_are_newlines() -> None:
    assert LineCutter().feed(b"\n  \na\r\n\r\n\tb \n") == ["a", "\tb"]


def test_a_letter_that_comes_in_two_parts_is_one_letter() -> None:
    cutter = LineCutter()
    first, second = "é".encode()[:1], "é".encode()[1:]

    assert cutter.feed(first) + cutter.feed(second + b"\n") == ["é"]


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    assert LineCutter().feed(b"a\xffb\n") == ["a�b"]


def test_a_progress_bar_is_reduced_to_its_last_state() -> None:
    cutter = LineCutter()

    assert cutter.feed(b"\r 10%\r 20%\r 30%") == []
    assert cutter.progress() == " 30%"
    assert cutter.progress() is None
    assert cutter.feed(b"\r 40%\r100%\n") == ["100%"]


def test_a_final_state_that_was_shown_already_is_not_shown_again() -> None:
    cutter = LineCutter()
    cutter.feed(b"\r 99%\r100%")

    assert cutter.progress() == "100%"
    assert cutter.feed(b"\ndone\n") == ["done"]


def test_a_bar_that_ends_its_states_with_a_return_is_shown_too() -> None:
    cutter = LineCutter()
    cutter.feed(b"10%\r20%\r")

    assert cutter.progress() == "20%"
    assert cutter.feed(b"       \rafter the bar\n") == ["after the bar"]


def test_an_unfinished_line_without_returns_is_no_progress() -> None:
    cutter = LineCutter()
    cutter.feed(b"loading")

    assert cutter.progress() is None


def test_a_bar_of_a_million_states_is_not_remembered() -> None:
    cutter = LineCutter()
    for number in range(2000):
        cutter.feed(b"\rstate %05d" % number * 50)

    assert len(cutter._rest) < 50  # noqa: SLF001


def test_a_line_that_never_ends_is_shown_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "LINE_BYTES_MAX", 10)
    cutter = LineCutter()

    assert cutter.feed(b"a" * 8) == []
    assert cutter.feed(b"b" * 8) == ["aaaaaaaabb …"]
    assert cutter.feed(b"c\n") == ["c"]


def test_after_bytes_were_left_out_lines_begin_at_the_next_newline() -> None:
    cutter = LineCutter()
    cutter.feed(b"begun")
    cutter.skip()

    assert cutter.feed(b"the rest of") == []
    assert cutter.feed(b" something\nwhole\n") == ["whole"]


# ---------------------------------------------------------------------- showing


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m and \x1b[1;4mbold", "red and bold"),
        ("up\x1b[A\x1b[2Kdown", "updown"),
        ("\x1b]0;a title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("bell\x07 back\x08 null\x00 tab\t", "bell back null tab\t"),
        ("half an escape \x1b", "half an escape "),
        ("\x1b(Bcharset\x1b7", "charset"),
        ("naïve 你好 █", "naïve 你好 █"),
    ],
)
def test_no_code_of_a_terminal_is_shown_where_there_is_none(text: str, plain: str) -> None:
    assert shown_plainly(text, keeps_colour=False) == plain


def test_on_a_terminal_colours_stay_and_end_with_their_line() -> None:
    assert shown_plainly("\x1b[31mred\x1b[2K", keeps_colour=True) == "\x1b[31mred\x1b[0m"
    assert shown_plainly("a\x1b[5Ab", keeps_colour=True) == "ab"


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([1], "rank 1"),
        ([0, 1, 2, 3], "ranks 0-3"),
        ([3, 0, 2], "ranks 0,2-3"),
        ([9, 11], "ranks 9,11"),
    ],
)
def test_ranks_are_told_in_few_words(ranks: list[int], text: str) -> None:
    assert ranks_text(ranks) == text


# ---------------------------------------------------------------------- together


def shown(taken: list[Line | LeftOut]) -> list[tuple[str, str]]:
    return [(ranks_text(item.ranks), item.text) for item in taken if isinstance(item, Line)]


def left_out(taken: list[Line | LeftOut]) -> list[LeftOut]:
    return [item for item in taken if isinstance(item, LeftOut)]


def of(ranks: int, lines_max: int = 200) -> Together:
    return Together(range(ranks), window_s=0.5, lines_max=lines_max)


def test_a_line_that_all_ranks_print_is_shown_once_and_at_once() -> None:
    together = of(4)
    for rank in range(4):
        together.add(rank, "epoch 1", 0.1 * rank)

    assert shown(together.take(0.3)) == [("ranks 0-3", "epoch 1")]


def test_a_line_of_some_ranks_is_shown_after_a_while() -> None:
    together = of(4)
    together.add(0, "epoch 1", 0.0)
    together.add(2, "epoch 1", 0.4)

    assert together.take(0.49) == []
    assert shown(together.take(0.5)) == [("ranks 0,2", "epoch 1")]


def test_equal_lines_that_are_further_apart_are_two() -> None:
    together = of(2)
    together.add(0, "epoch 1", 0.0)
    together.add(1, "epoch 1", 0.6)

    assert shown(together.take(1.2)) == [("rank 0", "epoch 1"), ("rank 1", "epoch 1")]


def test_lines_that_differ_in_a_digit_are_different_lines() -> None:
    together = of(2)
    together.add(0, "loss 0.1", 0.0)
    together.add(1, "loss 0.2", 0.0)

    assert shown(together.take(0.5)) == [("rank 0", "loss 0.1"), ("rank 1", "loss 0.2")]


def test_what_a_rank_prints_stays_in_order_even_if_another_prints_it_the_other_way_round() -> None:
    together = of(2)
    for rank, text in ((0, "a"), (0, "b"), (1, "b"), (1, "a")):
        together.add(rank, text, 0.0)

    assert shown(together.take(0.5)) == [("rank 0", "a"), ("ranks 0-1", "b"), ("rank 1", "a")]


def test_what_is_printed_twice_by_each_is_shown_twice() -> None:
    together = of(2)
    for rank in (0, 0, 1, 1):
        together.add(rank, "again", 0.0)

    assert shown(together.take(0.0)) == [("ranks 0-1", "again")] * 2


def test_at_the_end_everything_is_shown() -> None:
    together = of(2)
    together.add(0, "last words", 0.0)

    assert shown(together.take(0.0, is_end=True)) == [("rank 0", "last words")]
    assert together.take(9.0, is_end=True) == []


def test_of_too_many_lines_the_rest_is_counted_and_the_next_second_begins_anew() -> None:
    together = of(1, lines_max=3)
    for number in range(10):
        together.add(0, f"line {number}", 10.0)

    assert [text for _, text in shown(together.take(10.0))] == ["line 0", "line 1", "line 2"]
    assert together.take(10.9) == []
    [rest] = left_out(together.take(11.0))
    assert (rest.ranks, rest.lines, rest.size_bytes) == ({0}, 7, 0)
    together.add(0, "on we go", 11.5)
    assert shown(together.take(11.5)) == [("rank 0", "on we go")]


def test_lines_that_are_shown_as_one_count_as_one() -> None:
    together = of(4, lines_max=3)
    for number in range(4):
        for rank in range(4):
            together.add(rank, f"line {number}", 10.0)

    taken = together.take(10.0) + together.take(11.0)

    assert len(shown(taken)) == 3
    assert left_out(taken)[0].lines == 4


def test_a_flood_waits_in_bounded_memory_and_what_is_dropped_is_counted() -> None:
    together = of(2, lines_max=5)
    for number in range(1000):
        together.add(0, f"line {number}", 10.0)
    together.skipped(1, 12345, 10.0)
    held = len(together._queue)  # noqa: SLF001

    taken = together.take(10.0, is_end=True)

    assert held == 50
    *lines, rest = taken
    assert isinstance(rest, LeftOut)
    assert len(shown(lines)) == 5
    assert (rest.ranks, rest.lines, rest.size_bytes) == ({0, 1}, 995, 12345)
