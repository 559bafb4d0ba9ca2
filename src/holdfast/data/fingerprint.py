"""The fingerprint of a dataset: its sources, and the steps that determine its rows.

It is saved with a position, as plain JSON, because a position is meaningless in other data. Its
paths are relative, so that data may be moved as a whole. Making one runs no step and reads no file.
For rows in memory it covers column names and a sample of the values: whole numbers and strings by a
digest, other numbers by a sum, because another processor may compute a different last bit.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast.core.names import shown
from holdfast.data.plan import Plan
from holdfast.errors import ConfigError

VERSION = 1
FILES_MAX = 1000  # named one by one; a digest covers the others
SAMPLE_ROWS = 32
DIFFERENCES_MAX = 5  # in one message

Entry = dict[str, Any]
Fingerprint = dict[str, Any]
File = tuple[str, int | None, int | None, int | None]  # name, bytes, rows and row groups

_EXACT = (bool, int, str, bytes, type(None))


def fingerprint_of(plan: Plan) -> Fingerprint:
    """Return the fingerprint of a dataset, as JSON data.

    `rows` are the steps that determine the rows and their order, `values` those that only change
    the contents of rows.
    """
    steps = list(_steps(plan))
    return {
        "version": VERSION,
        "rows": [_entry(step) for step in steps if not step.keeps_rows],
        "values": [_entry(step) for step in steps if step.keeps_rows],
    }


def seed_from(fingerprint: Fingerprint) -> int:
    """Return a seed that is the same for the same data in every process."""
    exact = [
        {name: value for name, value in entry.items() if name not in ("label", "floats")}
        for entry in fingerprint["rows"]
    ]
    text = json.dumps(exact, sort_keys=True).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=4).digest(), "big")


def differences(before: Sequence[Entry], now: Sequence[Entry]) -> list[str]:
    """Return the differences between the steps of two datasets, in words; [] if none."""
    texts: list[str] = []
    matcher = difflib.SequenceMatcher(
        None, [entry["kind"] for entry in before], [entry["kind"] for entry in now], autojunk=False
    )
    for operation, low, high, low_now, high_now in matcher.get_opcodes():
        old, new = list(before[low:high]), list(now[low_now:high_now])
        if operation == "equal":
            for entry, entry_now in zip(old, new, strict=True):
                texts += _entry_differences(entry, entry_now)
            continue
        while old and new:
            texts.append(f"{old.pop(0)['label']} is now {new.pop(0)['label']}")
        texts += [f"{entry['label']} is not there any more" for entry in old]
        texts += [f"{entry['label']} is new" for entry in new]
    return texts


def joined_differences(texts: Sequence[str]) -> str:
    """Return the first `DIFFERENCES_MAX` differences as one text."""
    rest = len(texts) - DIFFERENCES_MAX
    return "; ".join(texts[:DIFFERENCES_MAX]) + (f"; and {rest} more" if rest > 0 else "")


def checked_fingerprint(value: object) -> Fingerprint:
    """Return a valid fingerprint; raise `ConfigError` if it is none."""
    if isinstance(value, Mapping) and value.get("version") not in (None, VERSION):
        raise ConfigError(
            f"a fingerprint of version {shown(value['version'])}: this Holdfast reads version"
            f" {VERSION}",
            hint="a newer Holdfast may have written it",
        )
    if not isinstance(value, Mapping) or not all(
        isinstance(value.get(part), list) and all(map(_is_entry, value[part]))
        for part in ("rows", "values")
    ):
        raise ConfigError(f"this is not the state of an iterator: data is {shown(value)}")
    return dict(value)


def _is_entry(value: object) -> bool:
    return (
        isinstance(value, Mapping)
        and isinstance(value.get("kind"), str)
        and isinstance(value.get("label"), str)
        and isinstance(value.get("floats", 0.0), int | float)
        and isinstance(value.get("count", 0), int)
        and isinstance(value.get("files", []), list)
        and all(map(_is_file, value.get("files", [])))
    )


def _is_file(value: object) -> bool:
    return isinstance(value, list) and len(value) == 4 and isinstance(value[0], str)


# ---------------------------------------------------------------------- entries of sources


def describe_files(files: Sequence[File]) -> Entry:
    """Return the part of an entry that identifies files."""
    text = json.dumps([list(file) for file in files]).encode()
    return {
        "count": len(files),
        "files": [list(file) for file in files[:FILES_MAX]],
        "digest": hashlib.blake2b(text, digest_size=16).hexdigest(),
    }


def describe_values(rows: Iterator[Mapping[str, Any]]) -> Entry:
    """Return the part of an entry that identifies the contents of rows."""
    digest, floats = hashlib.blake2b(digest_size=16), 0.0
    columns: dict[str, None] = {}
    for number, row in enumerate(rows, 1):
        for name, value in row.items():
            columns[name] = None
            digest.update(f"{name!r}=".encode())
            floats += number * _add(value, digest)
    return {"columns": list(columns), "values": digest.hexdigest(), "floats": floats}


def sample_of(rows: int) -> range:
    """Return the numbers of an evenly spread sample of rows."""
    return range(0, rows, max(1, rows // SAMPLE_ROWS))


def _add(value: Any, digest: Any) -> float:
    """Add a value to a digest; return the sum of the floats in it."""
    if isinstance(value, float):
        if math.isfinite(value):
            digest.update(b"float,")
            return abs(value)
        digest.update(f"{value!r},".encode())
        return 0.0
    if isinstance(value, _EXACT):
        digest.update(f"{value!r},".encode())
        return 0.0
    if isinstance(value, Mapping):
        digest.update(f"{list(value)!r}:".encode())
        return sum(_add(inner, digest) for inner in value.values())
    if isinstance(value, list | tuple):
        digest.update(f"{len(value)}:".encode())
        return sum(_add(inner, digest) for inner in value)
    if hasattr(value, "tolist") and hasattr(value, "shape") and hasattr(value, "dtype"):
        digest.update(f"{tuple(value.shape)}{value.dtype}:".encode())
        inner = value.tolist()
        return _add(inner, digest) if type(inner) is not type(value) else 0.0
    digest.update(f"{type(value).__qualname__},".encode())  # its repr may contain an address
    return 0.0


# ---------------------------------------------------------------------- making and comparing


def _steps(plan: Plan) -> Iterator[Plan]:
    for source in plan.inputs:
        yield from _steps(source)
    yield plan


def _entry(plan: Plan) -> Entry:
    return {"kind": plan.kind, "label": plan.described(), **plan.identity()}


def _entry_differences(before: Entry, now: Entry) -> list[str]:
    if before.get("digest") != now.get("digest") and {"files", "count"} <= before.keys():
        return _file_differences(before, now)
    texts = []
    for name in before.keys() | now.keys():
        old, new = before.get(name), now.get(name)
        if name in ("kind", "label", "floats") or old == new:
            continue
        if name == "function":
            texts.append(f"{now['kind']} had {old}, now it has {new}")
        elif name == "columns":
            texts.append(f"{before['label']} had the columns {_listed(old)}, now {_listed(new)}")
        elif name != "values":
            texts.append(f"{before['label']} had {name}={old}, now it has {name}={new}")
    has_other_values = before.get("values") != now.get("values") or not math.isclose(
        before.get("floats", 0.0), now.get("floats", 0.0), rel_tol=1e-6, abs_tol=1e-12
    )
    if has_other_values and not texts:
        texts.append(f"{before['label']} had other values")
    return sorted(texts)


def _file_differences(before: Entry, now: Entry) -> list[str]:
    if max(before["count"], now["count"]) > FILES_MAX and before["count"] != now["count"]:
        return [f"there were {before['count']} files, now {now['count']}"]
    old = {file[0]: file for file in before["files"]}
    new = {file[0]: file for file in now["files"]}
    texts = [f"file {name!r} is not there any more" for name in old if name not in new]
    texts += [f"file {name!r} is new" for name in new if name not in old]
    for name, file in old.items():
        if name in new and file != new[name]:
            texts.append(f"file {name!r} had {_size(file)}, now it has {_size(new[name])}")
    if not texts:
        for file, file_now in zip(before["files"], now["files"], strict=False):
            if file[0] != file_now[0]:
                return [f"the files are in another order: {file_now[0]!r} is where {file[0]!r} was"]
    return texts or [f"one of the files after the first {len(old)} is different"]


def _size(file: Sequence[Any]) -> str:
    _, size, rows, groups = file
    return f"{size} bytes" if rows is None else f"{rows} rows in {groups} groups, {size} bytes"


def _listed(names: Any) -> str:
    return ", ".join(map(repr, names or [])) or "none"
