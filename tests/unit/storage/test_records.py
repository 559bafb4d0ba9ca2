from __future__ import annotations

import json
import math
from typing import Any

import pytest
import xxhash

from holdfast.errors import ConfigError, Damaged
from holdfast.journal.segments import Record
from holdfast.storage.records import is_whole, salvage, seal, unseal

LINE = seal({"kind": "committed", "number": 7})


def test_a_sealed_line_is_one_line_of_json_that_any_tool_reads() -> None:
    line = seal({"text": "two\nlines", "number": 7})

    assert b"\n" not in line
    assert json.loads(line)["text"] == "two\nlines"
    assert list(json.loads(line)) == ["text", "number", "~"]


def test_the_bytes_of_a_sealed_line_stay_what_they_are_from_version_to_version() -> None:
    assert LINE == b'{"kind":"committed","number":7,"~":"0000001e35d2963623f9e760"}'


def test_a_record_is_what_it_was_without_the_seal() -> None:
    assert unseal(LINE) == {"kind": "committed", "number": 7}


@pytest.mark.parametrize(
    ("value", "text"),
    [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf")],
)
def test_what_json_lacks_is_kept_in_words_and_comes_back(value: float, text: str) -> None:
    line = seal({"loss": [value]})

    assert json.loads(line)["loss"] == [{"$float": text}]
    assert repr(unseal(line)["loss"]) == f"[{text}]"


@pytest.mark.parametrize(
    "value",
    [
        {"$float": "nan"},
        {"$float": 1.5},
        {"$float": "nan", "other": 1},
        {"$": 1},
        {"$$float": "x"},
        {"a": {"$x": [{"$float": "inf"}]}},
        "$float",
        '"$',
    ],
    ids=str,
)
@pytest.mark.parametrize("beside", [0.0, math.inf])
def test_nothing_of_the_users_is_mistaken_for_ours(value: Any, beside: float) -> None:
    assert unseal(seal({"value": value, "beside": beside})) == {"value": value, "beside": beside}


@pytest.mark.parametrize("last", [2, math.inf])
def test_tuples_come_back_as_lists_and_keys_that_are_numbers_as_text(last: float) -> None:
    assert unseal(seal({"a": (1, (last,)), "b": {3: last}})) == {"a": [1, [last]], "b": {"3": last}}


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({1, 2}, id="a set"),
        pytest.param(b"bytes", id="bytes"),
        pytest.param(object(), id="an object"),
        pytest.param(1j, id="a complex number"),
        pytest.param({("a", "b"): 1}, id="a tuple as key"),
        pytest.param({math.nan: 1}, id="NaN as key"),
        pytest.param(chr(0xD800), id="half a character"),
        pytest.param({chr(0xDCFF): 1}, id="half a character as key"),
        pytest.param(10**5000, id="an endless number"),
    ],
)
@pytest.mark.parametrize("beside", [0.0, math.nan], ids=["plain", "marked"])
def test_what_cannot_be_kept_is_refused_with_a_clear_error(value: Any, beside: float) -> None:
    with pytest.raises(ConfigError, match="cannot store this as JSON"):
        seal({"value": value, "beside": beside})


def test_a_value_that_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)

    with pytest.raises(ConfigError, match="cannot store this as JSON"):
        seal({"value": endless})


def test_every_single_flipped_bit_is_noticed() -> None:
    for position in range(len(LINE) * 8):
        changed = bytearray(LINE)
        changed[position // 8] ^= 1 << position % 8

        with pytest.raises(Damaged, match="does not match its checksum"):
            unseal(bytes(changed))


def test_every_cut_at_either_end_is_noticed() -> None:
    for size in range(len(LINE)):
        assert not is_whole(LINE[:size])
        assert not is_whole(LINE[len(LINE) - size :])


@pytest.mark.parametrize("more", [b"\n", b" ", b"\x00", b"}", LINE])
def test_bytes_before_or_after_are_noticed(more: bytes) -> None:
    assert not is_whole(LINE + more)
    assert not is_whole(more + LINE)


def test_a_sealed_line_that_is_not_json_is_damage_too() -> None:
    body = b'["a list"'
    line = _sealed(body)

    assert is_whole(line)
    with pytest.raises(Damaged, match="is not JSON"):
        unseal(line)


def _sealed(body: bytes) -> bytes:
    return body + b',"~":"%08x%016x"}' % (len(body), xxhash.xxh3_64_intdigest(body))


# ---------------------------------------------------------------------------------- salvage

A, B, C = (seal({"record": name, "more": [1, 2, 3]}) for name in "abc")


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (A, [A]),
        (A + B + C, [A, B, C]),
        (A + b"?" + B, [A, B]),
        (b"\x00" * 40 + A + b"\xff" * 9 + B[5:] + C, [A, C]),
        (A[:-1] + B, [B]),
        (A[1:] + B, [B]),
        (A[:20] + B[20:] + C, [C]),
        (A[:-32] + B[-32:], []),
        (A + A, [A, A]),
        (b"junk", []),
    ],
    ids=str,
)
def test_every_whole_line_in_damaged_bytes_is_found_in_order(
    data: bytes, lines: list[bytes]
) -> None:
    assert salvage(data) == lines


def test_a_seal_that_claims_more_bytes_than_there_are_is_no_line() -> None:
    assert salvage(b',"~":"ffffffff0123456789abcdef"}' + A) == [A]


def test_a_sealed_line_inside_the_text_of_another_is_not_taken_for_a_record() -> None:
    outer = seal({"text": A.decode(), "nested": {"x": 1, "~": "0" * 24}})

    assert salvage(outer) == [outer]


@pytest.mark.parametrize(
    "text",
    [
        '{"$float": "nan"}',
        '{"$float": [1]}',
        '{"a": {"$float": "many"}}',
        '{"a": {"$float": 1' + "0" * 400 + "}}",
    ],
    ids=["the whole record", "a list", "a word", "a number that no float can be"],
)
def test_a_mark_that_nobody_puts_is_damage(text: str) -> None:
    with pytest.raises(Damaged):
        unseal(_sealed(text.removesuffix("}").encode()))


@pytest.mark.parametrize("data", ['{"$float": "nan"}', '{"a": {"$float": []}}'])
def test_a_journal_record_with_a_mark_that_nobody_puts_is_none_of_ours(data: str) -> None:
    line = _sealed(f'{{"seq":1,"time":1.0,"kind":"x","data":{data}'.encode())

    assert Record.from_line(line) is None
