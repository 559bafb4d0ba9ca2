"""How values are written as JSON, value by value and codec by codec: what is on storage stays so.

`plain_data.json` says, for each codec, what each value became on 18 November 2026, before all of
them were one, or the class of the error that refused it. A new codec or value adds lines:
`python -m tests.compat.test_plain_data`. Lines that are there stay as they are.
"""

from __future__ import annotations

import collections
import contextlib
import datetime as dt
import decimal
import enum
import hashlib
import io
import json
import math
import pathlib
import random
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from holdfast.air import CheckpointConfig, FailureConfig
from holdfast.api.plain_data import from_plain, to_plain
from holdfast.cli.output import print_json
from holdfast.core.config_data import Mark, config_from_data, config_to_data
from holdfast.storage.records import seal, unseal
from holdfast.tune import TuneConfig, choice, grid_search, loguniform, quniform, randint, uniform
from holdfast.tune.logger import json_text
from holdfast.tune.schedulers import AsyncHyperBandScheduler, PopulationBasedTraining
from holdfast.tune.search.objects import Objects
from holdfast.tune.search.searcher_state import from_data, to_data
from holdfast.tune.search.stored_space import space_from_data, space_to_data
from holdfast.worker.metrics import plain_metrics

STORED = Path(__file__).with_name("plain_data.json")


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Word(str):
    __slots__ = ()


class Pair(NamedTuple):
    left: int
    right: int


class Items(list[Any]):
    pass


class View(Mapping[Any, Any]):
    def __init__(self, values: dict[Any, Any]) -> None:
        self._values = values

    def __getitem__(self, key: Any) -> Any:
        return self._values[key]

    def __iter__(self) -> Any:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


@dataclass
class Point:
    x: int
    y: Any = None


class Mute:
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Thing:
    def __str__(self) -> str:
        return "a thing"


def train(config: dict[str, Any]) -> None: ...


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def circle() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["self"] = value
    return value


def drawn(kind: str) -> Any:
    generator = getattr(np.random, kind)(7)
    return np.random.Generator(generator)


VALUES: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "booleans": lambda: [True, False],
    "integers": lambda: [0, -1, 2**53 + 1, 2**63, -(2**63), 2**64, 10**30],
    "floats": lambda: [0.0, -0.0, 0.1, 1e300, 5e-324, 1e22],
    "not finite": lambda: [math.nan, math.inf, -math.inf],
    "not finite in a dict": lambda: {"loss": math.nan, "deep": {"x": [math.inf]}},
    "texts": lambda: ["", "a", "ä €", '\n\t"\\/', "\x00\x7f\u2028", "🙂"],
    "half a character": lambda: "\ud800",
    "half a character in a key": lambda: {"\ud800": 1},
    "empty containers": lambda: [[], {}, ()],
    "tuple": lambda: (1, (2, [3])),
    "named tuple": lambda: Pair(1, 2),
    "list of another class": lambda: Items([1, 2]),
    "text of another class": lambda: Word("w"),
    "key of another class": lambda: {Word("w"): 1},
    "set": lambda: {3, 1, 2},
    "frozenset": lambda: frozenset({"a"}),
    "deque": lambda: collections.deque([1, 2]),
    "deque with an end": lambda: collections.deque([1, 2], 3),
    "counter": lambda: collections.Counter("aab"),
    "ordered dict": lambda: collections.OrderedDict(b=1, a=2),
    "default dict": lambda: collections.defaultdict(list, {"a": [1]}),
    "default dict without": lambda: collections.defaultdict(None, {1: 2}),
    "default dict of ours": lambda: collections.defaultdict(lambda: 3, a=1),
    "mapping": lambda: View({"a": 1, "b": (2,)}),
    "mapping with other keys": lambda: View({1: 1}),
    "whole keys": lambda: {1: "a", 2: {3: "b"}},
    "keys of all kinds": lambda: {None: 1, True: 2, 2.5: 3, "x": 4, -7: 5},
    "keys not finite": lambda: {math.nan: 1, math.inf: 2},
    "tuple keys": lambda: {(1, "a"): 1},
    "numpy keys": lambda: {np.int64(3): 1, np.str_("s"): 2},
    "enum keys": lambda: {Colour.RED: 1},
    "keys with marks": lambda: {"$tuple": [1], "$x": 1, "a$": 2, "@path": "p", "@y": {"$z": 3}},
    "float mark of a user": lambda: {"$float": "nan"},
    "path": lambda: pathlib.Path("/data/a b"),
    "pure path": lambda: pathlib.PurePosixPath("x/y"),
    "windows path": lambda: pathlib.PureWindowsPath("c:\\x"),
    "path that is no text": lambda: pathlib.Path("/\udcff"),
    "bytes": lambda: b"abc",
    "bytearray": lambda: bytearray(b"abc"),
    "datetime": lambda: dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
    "date": lambda: dt.date(2026, 1, 2),
    "timedelta": lambda: dt.timedelta(seconds=90),
    "decimal": lambda: decimal.Decimal("1.50"),
    "uuid": lambda: uuid.UUID(int=5),
    "complex": lambda: 1 + 2j,
    "range": lambda: range(3),
    "enum": lambda: Colour.RED,
    "int enum": lambda: Level.HIGH,
    "dataclass": lambda: Point(1, (2, 3)),
    "dataclass of ours": lambda: FailureConfig(max_failures=3),
    "dataclasses of ours": lambda: TuneConfig(metric="loss", mode="min", num_samples=4),
    "checkpoint config": lambda: CheckpointConfig(num_to_keep=2),
    "scheduler": lambda: AsyncHyperBandScheduler(max_t=9, metric="loss", mode="min"),
    "scheduler with a space": lambda: PopulationBasedTraining(
        hyperparam_mutations={"lr": [1, (2, 3)]}, quantile_fraction=0.25
    ),
    "object": Thing,
    "object without a text": Mute,
    "class": lambda: Point,
    "builtin class": lambda: dict,
    "function": lambda: train,
    "lambda": lambda: lambda: 1,
    "module": lambda: math,
    "numpy numbers": lambda: [np.float32(0.5), np.float64(0.1), np.int8(3), np.bool_(True)],
    "numpy not finite": lambda: [np.float32("nan"), np.float64("inf")],
    "numpy text": lambda: np.str_("s"),
    "numpy bytes": lambda: np.bytes_(b"s"),
    "numpy complex": lambda: np.complex64(1 + 2j),
    "numpy datetime": lambda: np.datetime64("2026-01-02"),
    "numpy array": lambda: np.array([[1, 2], [3, 4]], dtype=np.int16),
    "numpy floats": lambda: np.array([0.5, math.nan]),
    "numpy array of one": lambda: np.array([1.5]),
    "numpy array of none": lambda: np.array([]),
    "numpy array without axes": lambda: np.array(2),
    "numpy array of objects": lambda: np.array([Thing(), None], dtype=object),
    "numpy array of texts": lambda: np.array(["a", "bc"]),
    "tensor": lambda: torch.tensor([[1.0, 2.0]]),
    "tensor of one": lambda: torch.tensor([3]),
    "tensor without axes": lambda: torch.tensor(0.25),
    "tensor without numbers": lambda: torch.empty(2, device="meta"),
    "random": lambda: random.Random(1),
    "numpy random state": lambda: np.random.RandomState(1),
    "numpy generator": lambda: drawn("PCG64"),
    "numpy generator of arrays": lambda: drawn("MT19937"),
    "mark": lambda: Mark(("a", 1, (2,), "b"), "Model"),
    "mixed": lambda: {"a": [1, (2.5, None)], "b": {"c": pathlib.Path("p"), 7: {"d": "e"}}},
    "90 deep": lambda: nested(90),
    "120 deep": lambda: nested(120),
    "circle": circle,
    "space": lambda: {
        "lr": loguniform(1e-4, 1e-1),
        "wd": uniform(0, 1),
        "q": quniform(0, 1, 0.25),
        "n": randint(1, 9),
        "act": choice(["relu", ("a", 1), {"k": uniform(1, 2)}]),
        "g": grid_search([1, (2,), {"x": None}]),
        "$odd": {1: uniform(0, 1)},
        "t": (uniform(0, 1), [choice([1])]),
        "e": {"eval": "1 + 1"},
    },
}


def _printed(value: Any) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        print_json({"value": value})
    return out.getvalue()


def _sealed(value: Any) -> str:
    return seal({"value": value}).decode()


def _in_space(value: Any) -> str:
    space, _ = Objects.of({"value": value})
    return json.dumps(space_to_data(space))


CODECS: dict[str, Callable[[Any], str]] = {
    "configs of studies": lambda value: json.dumps(config_to_data({"value": value})),
    "memory of searchers": lambda value: json.dumps(to_data(value, "self.value")),
    "search spaces": _in_space,
    "records of trainers": lambda value: json.dumps(to_plain(value)),
    "metrics": lambda value: json.dumps(plain_metrics({"value": value})),
    "lines of loggers": lambda value: json_text.encoded({"value": value}).decode(),
    "files of loggers": lambda value: json_text.encoded_lines({"value": value}).decode(),
    "texts of loggers": lambda value: json_text.encode({"value": value}),
    "sealed lines": _sealed,
    "commands": _printed,
}

READERS: dict[str, Callable[[str], str]] = {
    "configs of studies": lambda text: _described(config_from_data(json.loads(text))),
    "memory of searchers": lambda text: _described(from_data(json.loads(text))),
    "search spaces": lambda text: _described(space_from_data(json.loads(text), Objects())),
    "records of trainers": lambda text: _described(from_plain(json.loads(text))),
    "sealed lines": lambda text: _described(unseal(text.encode())),
}


def _described(value: Any) -> str:
    """Return a value and all types in it, as text that is the same in every process."""
    match value:
        case random.Random():
            return f"Random({value.random()})"
        case np.random.RandomState() | np.random.Generator():
            return f"{type(value).__name__}({value.random()})"
        case np.ndarray():
            return f"array({value.dtype}, {value.tolist()})"
        case set() | frozenset():
            return f"{type(value).__name__}({', '.join(sorted(map(_described, value)))})"
        case collections.deque():
            return f"deque({', '.join(map(_described, value))}; {value.maxlen})"
        case list() | tuple():
            return f"{type(value).__name__}({', '.join(map(_described, value))})"
        case dict():
            inner = [f"{_described(key)}: {_described(each)}" for key, each in value.items()]
            return f"{type(value).__name__}({', '.join(inner)})"
        case type() | None | bool() | int() | float() | str() | np.generic() | pathlib.PurePath():
            return repr(value)
        case _ if hasattr(value, "made_with"):
            return f"{type(value).__name__}{value.made_with}"
        case _ if " at 0x" in repr(value):
            return type(value).__name__
        case _:
            return repr(value)


def _outcome(step: Callable[[Any], str], given: Any) -> str:
    try:
        return re.sub("0x[0-9a-f]{6,}", "0x…", step(given))
    except Exception as error:  # noqa: BLE001  # its class is what the table has
        return f"! {type(error).__name__}"


def _written(codec: str, name: str) -> dict[str, str]:
    entry = {"written": _outcome(CODECS[codec], VALUES[name]())}
    if codec in READERS and not entry["written"].startswith("!"):
        entry["read"] = _outcome(READERS[codec], entry["written"])
    return {step: _short(text) for step, text in entry.items()}


def _short(text: str) -> str:
    """Return a text, or the digest of a long one, such as the state of a random generator."""
    return text if len(text) < 1500 else hashlib.sha256(text.encode()).hexdigest()


def _stored() -> dict[str, dict[str, dict[str, str]]]:
    return json.loads(STORED.read_text()) if STORED.exists() else {}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", VALUES)
def test_a_value_is_written_as_it_always_was(codec: str, name: str) -> None:
    assert _written(codec, name) == _stored()[codec][name]


def add_new() -> None:
    stored = _stored()
    for codec in CODECS:
        lines = stored.setdefault(codec, {})
        for name in VALUES:
            if name not in lines:
                lines[name] = _written(codec, name)
    STORED.write_text(json.dumps(stored, indent=1, ensure_ascii=True) + "\n")


if __name__ == "__main__":
    # Classes are written by the name of their module, which must not be __main__.
    import_module("tests.compat.test_plain_data").add_new()
