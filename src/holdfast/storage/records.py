"""One line of JSON that knows whether it is whole: the form of every record we keep.

A sealed line is a JSON object whose last member, `"~"`, holds the length and the xxh3-64, in
hexadecimal, of the bytes before it. Any JSON tool reads it; a changed, cut or spliced line does
not pass `unseal`. JSON has no NaN or infinity, so those are kept as `{"$float": "nan"}`; a key of
the user's that begins with `$` gets a second one, so that nothing can be mistaken for ours.
"""

from __future__ import annotations

import json
import json.encoder
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import xxhash

from holdfast.errors import ConfigError, Damaged

_SEAL = re.compile(rb',"~":"([0-9a-f]{8})[0-9a-f]{16}"\}')
_SEAL_BYTES = 32
MARK_TEXT = "$"
MARK = ord(MARK_TEXT)  # one byte, because it is looked for in every line that is read
_encoder = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False
)
_decode = msgspec.json.Decoder().decode


def _strict_encoder() -> Callable[[Any], str]:
    """Return what `_encoder.encode` is; made once, for that makes a new one with every call."""
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
    """Return `record`, which is not empty, as one sealed line without a newline."""
    return seal_body(encode(record)[:-1].encode())


def seal_body(body: bytes) -> bytes:
    """Return the sealed line of a JSON object that is complete but for its last brace."""
    return body + _seal_of(body)


def encode(value: Mapping[str, Any]) -> str:
    """Return `value` as strict JSON, with marks where JSON has no word for it."""
    try:
        text = _text_of(value)
        if not text.isascii():
            text.encode()  # half a character cannot be kept
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"cannot keep this as JSON: {error}",
            hint="keep numbers, strings, lists and dictionaries; use .item() on a scalar array",
        ) from None
    return text


def _text_of(value: Mapping[str, Any]) -> str:
    try:
        text = _encode_strict(value)
    except ValueError:  # NaN or infinity somewhere inside
        return _encode_strict(_marked(value))
    return _encode_strict(_marked(value)) if MARK_TEXT in text else text


def unseal(line: bytes) -> dict[str, Any]:
    """Return the record in a sealed line; raise `Damaged` if a single bit is not as it was."""
    if not is_whole(line):
        raise Damaged("the record does not match its checksum")
    try:
        record: dict[str, Any] = _decode(line)
        del record["~"]
        return unmarked(record) if MARK in line else record
    except (msgspec.DecodeError, RecursionError, TypeError, ValueError) as error:
        raise Damaged(f"the record is sealed but is not JSON: {error}") from error


def is_whole(line: bytes) -> bool:
    """Whether a line is exactly what `seal` returned."""
    return line[-_SEAL_BYTES:] == _seal_of(line[:-_SEAL_BYTES])


def salvage(data: bytes) -> list[bytes]:
    """Return every whole line inside damaged bytes, in order.

    A seal carries the length of what it seals, so a record can be found again even where the
    newline before it was destroyed.
    """
    ends = [(found.start() - int(found[1], 16), found.end()) for found in _SEAL.finditer(data)]
    lines = [data[begin:end] for begin, end in ends if begin >= 0]
    return [line for line in lines if is_whole(line)]


def _seal_of(body: bytes) -> bytes:
    return b',"~":"%08x%016x"}' % (len(body), xxhash.xxh3_64_intdigest(body))


def _marked(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(float(value))}
    if isinstance(value, Mapping):
        return {
            f"${key}" if isinstance(key, str) and key.startswith("$") else key: _marked(inner)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_marked(inner) for inner in value]
    return value


def unmarked(value: Any) -> Any:
    """Return a decoded value as it was before marks were put in; needed only if `MARK` is in it."""
    if isinstance(value, dict):
        if value.keys() == {"$float"}:
            return float(value["$float"])
        return {key.removeprefix("$"): unmarked(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [unmarked(inner) for inner in value]
    return value
