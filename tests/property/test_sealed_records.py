from __future__ import annotations

import math
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.storage.records import is_whole, salvage, seal, unseal

numbers = (
    st.integers(-(2**80), 2**80)
    | st.floats()
    | st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 5e-324, 2**53 + 1, 2**63, 2**64])
)
texts = st.text(st.characters(codec="utf-8")) | st.sampled_from(
    ["$", "$float", "$$float", "~", '"$', "\x00", "\n", "\u2028", "\\", '"', "nan"]
)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
# "~" is the one name that a record of ours cannot use at its top.
records = st.dictionaries(texts.filter(lambda key: key != "~"), values, min_size=1, max_size=4)


def is_same(one: Any, other: Any) -> bool:
    """Equality that knows NaN, the sign of zero, and an integer from a float."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return repr(one) == repr(other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return bool(one == other)


@given(records)
def test_any_record_comes_back_as_it_was(record: dict[str, Any]) -> None:
    line = seal(record)

    assert b"\n" not in line
    assert is_same(unseal(line), record)


@given(records, st.data())
def test_any_flipped_bit_is_refused(record: dict[str, Any], data: st.DataObject) -> None:
    line = bytearray(seal(record))
    position = data.draw(st.integers(0, 8 * len(line) - 1), label="bit")

    line[position // 8] ^= 1 << position % 8

    assert not is_whole(bytes(line))


@given(records, st.data())
def test_any_part_of_a_line_is_refused(record: dict[str, Any], data: st.DataObject) -> None:
    line = seal(record)
    begin = data.draw(st.integers(0, len(line)), label="begin")
    end = data.draw(st.integers(begin, len(line)), label="end")
    assume((begin, end) != (0, len(line)))

    assert not is_whole(line[begin:end])
    assert not is_whole(line[:begin] + line[end:]) or begin == end


@given(records, records, st.data())
def test_any_splice_of_two_lines_is_refused(
    one: dict[str, Any], other: dict[str, Any], data: st.DataObject
) -> None:
    first, second = seal(one), seal(other)
    cut = data.draw(st.integers(0, len(first)), label="cut in the first")
    go_on = data.draw(st.integers(0, len(second)), label="where the second goes on")

    spliced = first[:cut] + second[go_on:]

    assert is_whole(spliced) == (spliced in (first, second))


@given(st.lists(st.tuples(records, st.binary(max_size=40)), max_size=5), st.data())
def test_every_whole_line_is_found_whatever_lies_between(
    pieces: list[tuple[dict[str, Any], bytes]], data: st.DataObject
) -> None:
    lines = [seal(record) for record, _ in pieces]

    assert (
        salvage(b"".join(line + junk for line, (_, junk) in zip(lines, pieces, strict=True)))
        == lines
    )


@given(st.lists(records, min_size=2, max_size=5), st.data())
def test_a_flipped_bit_costs_only_the_line_it_is_in(
    found: list[dict[str, Any]], data: st.DataObject
) -> None:
    lines = [seal(record) for record in found]
    hit = data.draw(st.integers(0, len(lines) - 1), label="line")
    position = data.draw(st.integers(0, 8 * len(lines[hit]) - 1), label="bit")
    damaged = bytearray(lines[hit])

    damaged[position // 8] ^= 1 << position % 8

    glued = b"".join([*lines[:hit], bytes(damaged), *lines[hit + 1 :]])
    assert salvage(glued) == [*lines[:hit], *lines[hit + 1 :]]
