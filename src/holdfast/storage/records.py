"""Stored records: sealed lines of JSON, and checks that a record has the expected shape.

A sealed line is a JSON object whose last member, `"~"`, holds the length and the xxh3-64, in
hexadecimal, of the bytes before it. Any JSON tool reads it; a changed, cut or spliced line does
not pass `unseal`. JSON has no NaN or infinity, so those are stored as `{"$float": "nan"}`; a user's
key that begins with `$` gets a second one, so that it cannot be mistaken for such a mark.

A seal proves that a record is as it was written, not that Holdfast wrote it: there may be text in
place of a number, a list in place of a dictionary, a path that leads out of the run's folder. `fit`
treats that as damage. Unknown members are ignored; a later version may have added them.
"""

from __future__ import annotations

import json
import json.encoder
import math
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

import msgspec
import xxhash

from holdfast.core.plain_data import LEAVES, Reader, Steps, Writer, as_it_is, items
from holdfast.errors import ConfigError, Damaged

T = TypeVar("T")
DEPTH_MAX = 200

Count = Annotated[int, msgspec.Meta(ge=0)]
# A file or folder inside a run's folder: relative, without `.` and `..`.
Inside = Annotated[
    str,
    msgspec.Meta(
        pattern=r"\A(?!/)(?!(.*/)?\.{1,2}(/|\Z))(?!.*//)[^\x00-\x1f]+(?<!/)\Z", max_length=4096
    ),
]

_SEAL = re.compile(rb',"~":"([0-9a-f]{8})[0-9a-f]{16}"\}')
_SEAL_BYTES = 32
MARK_TEXT = "$"
MARK = ord(MARK_TEXT)  # one byte, because every line that is read is searched for it
_encoder = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False
)
_decode = msgspec.json.Decoder().decode


def _strict_encoder() -> Callable[[Any], str]:
    """Return the equivalent of `_encoder.encode`, which builds a C encoder on every call."""
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return _encoder.encode
    chunks = make(
        markers=None,
        default=_encoder.default,
        encoder=json.encoder.encode_basestring,
        indent=None,
        key_separator=":",
        item_separator=",",
        sort_keys=False,
        skipkeys=False,
        allow_nan=False,
    )
    return lambda value: "".join(chunks(value, 0))


_encode_strict = _strict_encoder()


def seal(record: Mapping[str, Any]) -> bytes:
    """Return the non-empty `record` as one sealed line without a newline."""
    return seal_body(encode(record)[:-1].encode())


def seal_body(body: bytes) -> bytes:
    """Return the sealed line of a JSON object that lacks only its last brace."""
    return body + _seal_of(body)


def encode(value: Mapping[str, Any]) -> str:
    """Return `value` as strict JSON, with marks for what JSON cannot express."""
    try:
        text = _text_of(value)
        if not text.isascii():
            text.encode()  # raises for a lone surrogate
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"cannot store this as JSON: {error}",
            hint="use only numbers, strings, lists and dictionaries; use .item() on a scalar array",
        ) from None
    return text


def _text_of(value: Mapping[str, Any]) -> str:
    try:
        text = _encode_strict(value)
    except ValueError:  # NaN or infinity somewhere inside
        return _encode_strict(_marked(value))
    return _encode_strict(_marked(value)) if MARK_TEXT in text else text


def unseal(line: bytes) -> dict[str, Any]:
    """Return the record in a sealed line; raise `Damaged` if a single bit has changed."""
    if not is_whole(line):
        raise Damaged("the record does not match its checksum")
    try:
        record: dict[str, Any] = _decode(line)
        del record["~"]
    except (msgspec.DecodeError, RecursionError, TypeError, ValueError) as error:
        raise Damaged(f"the record is sealed but is not JSON: {error}") from error
    return unmarked(record) if MARK in line else record


def is_whole(line: bytes) -> bool:
    """Whether a line is exactly what `seal` returned."""
    return line[-_SEAL_BYTES:] == _seal_of(line[:-_SEAL_BYTES])


def salvage(data: bytes) -> list[bytes]:
    """Return every whole line inside damaged bytes, in order.

    A seal holds the length of what it seals, so a record is found even if the newline before it was
    destroyed.
    """
    spans = [(match.start() - int(match[1], 16), match.end()) for match in _SEAL.finditer(data)]
    lines = [data[begin:end] for begin, end in spans if begin >= 0]
    return [line for line in lines if is_whole(line)]


def _seal_of(body: bytes) -> bytes:
    return b',"~":"%08x%016x"}' % (len(body), xxhash.xxh3_64_intdigest(body))


def _float(_writer: Writer, value: float, _steps: Steps) -> float | dict[str, str]:
    return value if math.isfinite(value) else {"$float": repr(float(value))}


def _escaped(writer: Writer, value: Mapping[Any, Any], steps: Steps) -> dict[Any, Any]:
    return {
        f"${key}" if isinstance(key, str) and key.startswith("$") else key: writer(inner, steps)
        for key, inner in value.items()
    }


_marked = Writer(
    forms={float: _float, dict: _escaped, list: items},
    families=[(float, _float), (Mapping, _escaped), (list | tuple, items)],
    otherwise=as_it_is,  # the encoder refuses it
    leaves=LEAVES - {float},
)
_read_marks = Reader({"$float": lambda _reader, data: float(data["$float"])}, escape=MARK_TEXT)


def unmarked(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a decoded object without marks; needed only if its line contains `MARK`.

    Raises:
        Damaged: A mark is malformed, or stands in place of the whole object.
    """
    try:
        value = _read_marks(record)
    except (ArithmeticError, RecursionError, TypeError, ValueError) as error:
        raise Damaged(f"it is not the expected record: {error}") from error
    if not isinstance(value, dict):
        raise Damaged(f"it is not the expected record: the number {value!r:.40}")
    return value


def fit(data: object, shape: type[T]) -> T:
    """Return `data` as `shape`, a dataclass or typed dictionary; raise `Damaged` if it is not."""
    try:
        return msgspec.convert(data, shape)
    except (msgspec.ValidationError, OverflowError, RecursionError) as error:
        raise Damaged(f"it is not the expected record: {error}") from None


def is_too_deep(value: object) -> bool:
    """Whether data is nested deeper than `DEPTH_MAX`."""
    level = [value]
    for _ in range(DEPTH_MAX):
        level = [
            inner
            for node in level
            if isinstance(node, dict | list | tuple)
            for inner in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return False
    return True


def known_format(record: dict[str, Any]) -> int:
    """Return the format number of a record; raise `Damaged` if it is not an integer."""
    number = record.get("format", 0)
    if type(number) is not int:
        raise Damaged(f"it is not the expected record: its format is {number!r:.40}")
    return number
