"""Converts values to plain data for JSON, and back: one traversal for everything that is stored.

Plain data is None, True, False, numbers, strings, lists, and dicts whose keys are strings. A
`Writer` turns values into plain data, a `Reader` turns them back. What JSON cannot express, such as
a tuple, is written as a dict with one marked key, `{"$tuple": [...]}`. Each writer names the types
that have such a form; the layers above add their own, such as classes by name or the domains of a
search space.

A writer has one of two policies for values without a form: it refuses them (`refused` raises
`NotPlain`), or, where the output is only for people, writes them as text (`as_loose_json`).

NaN and infinities are ordinary floats here; `storage` decides how a line of JSON spells them. This
module is pure: paths are only values, and nothing is opened.
"""

from __future__ import annotations

import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Steps = tuple[Any, ...]  # the keys and places that lead from the outermost value to one inside
Form = Callable[["Writer", Any, Steps], Any]

LEAVES: frozenset[type] = frozenset({type(None), bool, int, float, str})
DEPTH_MAX = 100
_FORMS_MAX = 200  # a writer remembers the forms of this many types, and looks up the others
_TEXTS = frozenset({str})
_PATHS: dict[str, type[pathlib.PurePath]] = {
    "Path": type(pathlib.Path()),  # the class of paths on this machine
    "PurePosixPath": pathlib.PurePosixPath,
    "PureWindowsPath": pathlib.PureWindowsPath,
}
_PATH_NAMES = {kind: name for name, kind in _PATHS.items()}


class NotPlain(Exception):
    """A value has no form as data.

    Attributes:
        steps: Where the value is.
        reason: What the value is, or what is wrong with it.
    """

    def __init__(self, reason: str, steps: Steps = ()) -> None:
        super().__init__(reason)
        self.reason, self.steps = reason, steps


class KeyStep:
    """A step to a key itself, not to its value."""


class Writer:
    """Turns values into plain data.

    Args:
        forms: How values of exactly these types are written.
        families: How values of other types are written, by a type they derive from; the first
            that fits counts.
        otherwise: How all other values are written: the policy.
        leaves: Types whose values are data already.
        depth_max: How deeply containers may be nested, None for no limit.
        too_deep: How containers that are nested more deeply are written.
    """

    def __init__(
        self,
        *,
        forms: Mapping[type, Form],
        otherwise: Form,
        families: Sequence[tuple[Any, Form]] = (),
        leaves: frozenset[type] = LEAVES,
        depth_max: int | None = None,
        too_deep: Form | None = None,
    ) -> None:
        self._forms, self._families, self._otherwise = dict(forms), tuple(families), otherwise
        self.leaves = leaves
        self._depth_max = math.inf if depth_max is None else depth_max
        self._too_deep = too_deep or otherwise

    def __call__(self, value: Any, steps: Steps = ()) -> Any:
        kind = type(value)
        if kind in self.leaves:
            return value
        if len(steps) > self._depth_max:
            return self._too_deep(self, value, steps)
        form = self._forms.get(kind)
        if form is None:
            form = self._form_of(value)
        return form(self, value, steps)

    def _form_of(self, value: Any) -> Form:
        fitting = (form for family, form in self._families if isinstance(value, family))
        form = next(fitting, self._otherwise)
        kind = type(value)
        if value.__class__ is kind and len(self._forms) < _FORMS_MAX:
            self._forms[kind] = form
        return form


class Reader:
    """Turns what a writer wrote back into values.

    Args:
        forms: For each marked key, the function that makes the value of a dict with that key.
        escape: The prefix of keys that could be mistaken for marks.
        finish: Called with every dict that is not a form; what it returns takes the dict's place.
    """

    def __init__(
        self,
        forms: Mapping[str, Callable[[Reader, dict[str, Any]], Any]],
        *,
        escape: str = "",
        finish: Callable[[dict[Any, Any]], Any] | None = None,
    ) -> None:
        self._forms, self._marks = dict(forms), frozenset(forms)
        self._escape, self.finish = escape, finish

    def __call__(self, data: Any) -> Any:
        if isinstance(data, list):
            return [item if type(item) in LEAVES else self(item) for item in data]
        if not isinstance(data, dict):
            return data
        if not self._marks.isdisjoint(data):
            for key in data:
                if key in self._forms:
                    return self._forms[key](self, data)
        if escape := self._escape:
            values = {
                key.removeprefix(escape): inner if type(inner) in LEAVES else self(inner)
                for key, inner in data.items()
            }
        else:
            values = {
                key: inner if type(inner) in LEAVES else self(inner) for key, inner in data.items()
            }
        return values if self.finish is None else self.finish(values)


# ---------------------------------------------------------------------- forms of containers


def as_it_is(_writer: Writer, value: Any, _steps: Steps) -> Any:
    """Leave a value as it is."""
    return value


def items(writer: Writer, values: Any, steps: Steps) -> list[Any]:
    """Write a list of the items."""
    leaves = writer.leaves
    return [
        item if type(item) in leaves else writer(item, (*steps, place))
        for place, item in enumerate(values)
    ]


def values_by(name: Callable[[Any], str]) -> Form:
    """Return the form of dicts whose keys `name` turns into strings."""

    def write(writer: Writer, value: Any, steps: Steps) -> dict[str, Any]:
        leaves = writer.leaves
        if not _TEXTS.issuperset(map(type, value)):
            value = {name(key): inner for key, inner in value.items()}
        return {
            key: inner if type(inner) in leaves else writer(inner, (*steps, key))
            for key, inner in value.items()
        }

    return write


def marked_items(mark: str) -> Form:
    """Return the form of tuples and the like: `{mark: [...]}`."""
    return lambda writer, value, steps: {mark: items(writer, value, steps)}


def marked_pairs(mark: str) -> Form:
    """Return the form of dicts whose keys are not strings: `{mark: [[key, value], ...]}`."""
    return lambda writer, value, steps: {mark: pairs(writer, value, steps)}


def pairs(writer: Writer, value: Any, steps: Steps) -> list[list[Any]]:
    """Write a dict as a list of pairs of key and value."""
    return [
        [writer(key, (*steps, KeyStep)), writer(inner, (*steps, key))]
        for key, inner in value.items()
    ]


def dict_or_pairs(mark: str) -> Form:
    """Return a form that writes dicts as dicts, and only ambiguous ones as `marked_pairs`.

    Ambiguous are those with a key that is not a string, or one that begins like `mark`.
    """
    first, as_pairs, as_dict = mark[0], marked_pairs(mark), values_by(str)

    def write(writer: Writer, value: Any, steps: Steps) -> Any:
        is_plain = _TEXTS.issuperset(map(type, value)) and (
            first not in "".join(value) or not any(key.startswith(first) for key in value)
        )
        return as_dict(writer, value, steps) if is_plain else as_pairs(writer, value, steps)

    return write


def read_items(mark: str, make: Callable[[list[Any]], Any]) -> dict[str, Any]:
    """Return the entry of a reader's forms that reads `marked_items`."""
    return {mark: lambda reader, data: make(reader(data[mark]))}


def read_pairs(mark: str, make: Callable[[dict[Any, Any]], Any] = dict) -> dict[str, Any]:
    """Return the entry of a reader's forms that reads `marked_pairs`."""

    def read(reader: Reader, data: dict[str, Any]) -> Any:
        values = make({reader(key): reader(inner) for key, inner in data[mark]})
        return values if reader.finish is None else reader.finish(values)

    return {mark: read}


# ---------------------------------------------------------------------- leaves


def is_flat(value: Mapping[Any, Any]) -> bool:
    """Whether a dict is plain data with nothing nested in it."""
    return LEAVES.issuperset(map(type, value.values())) and _TEXTS.issuperset(map(type, value))


def is_json_leaf(value: object) -> bool:
    """Whether `value` is None or of a type that JSON returns unchanged."""
    return type(value) in LEAVES


def is_plain_leaf(value: object) -> bool:
    """Whether `value` is a JSON leaf, or a path that JSON can hold.

    It cannot hold a path whose bytes are not UTF-8.
    """
    return type(value) in LEAVES or (type(value) in _PATH_NAMES and is_text(str(value)))


def is_text(value: str) -> bool:
    """Whether a string can be encoded: it holds no lone surrogate."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def own(value: Any) -> Any:
    """Return a number or string of numpy as Python's own, everything else as it is."""
    kind = type(value)
    if kind.__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return value.item()
    return value


def array_data(value: Any) -> Any:
    """Return the numbers of an array or a tensor, everything else as it is.

    Raises what the array's library raises.
    """
    if hasattr(value, "item"):
        if getattr(value, "size", 1) in (1, None):
            return value.item()
        count = getattr(value, "numel", None)
        if callable(count) and count() == 1:
            return value.item()
    return value.tolist() if hasattr(value, "tolist") else value


def _path(_writer: Writer, value: pathlib.PurePath, steps: Steps) -> dict[str, str]:
    if not is_plain_leaf(value):
        raise NotPlain("a path whose name is not text", steps)
    return {"$path": str(value), "kind": _PATH_NAMES[type(value)]}


def _read_path(_reader: Reader, data: dict[str, Any]) -> pathlib.PurePath:
    return _PATHS.get(data.get("kind", ""), pathlib.Path)(data["$path"])


PATH_FORMS: dict[type, Form] = dict.fromkeys(_PATH_NAMES, _path)
PATH_READER = {"$path": _read_path}


# ---------------------------------------------------------------------- the two policies


def refused(_writer: Writer, value: Any, steps: Steps) -> Any:
    """Raise `NotPlain`: the form of values that cannot be stored."""
    raise NotPlain(kind_of(value), steps)


def kind_of(value: object) -> str:
    """Return the type of `value` as an error message names it."""
    if isinstance(value, type):
        return f"the class {value.__qualname__} itself"
    kind = type(value)
    name = kind.__qualname__
    return name if kind.__module__ == "builtins" else f"{kind.__module__}.{name}"


def stand_in(value: Any) -> Any:
    """Return what people see in place of a value that JSON cannot express; never raises.

    Numbers of numpy become numbers, arrays lists, sets sorted lists, and anything else its text.
    """
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    try:
        data = array_data(value)
    except Exception:  # noqa: BLE001  # it has no numbers, or its device is gone
        return text_of(value)
    is_data = data is not value and isinstance(data, str | int | float | list | None)
    return data if is_data else text_of(value)


def text_of(value: object) -> str:
    """Return the text of any value; never raises."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001  # a broken __str__ must not cost a row
        return f"<{type(value).__name__}>"


def _stand_in_form(writer: Writer, value: Any, steps: Steps) -> Any:
    data = stand_in(value)
    return data if type(data) in writer.leaves else writer(data, (*steps, ""))


def _clean(_writer: Writer, value: str, _steps: Steps) -> str:
    return value.encode(errors="replace").decode()


def _finite(_writer: Writer, value: float, _steps: Steps) -> float | str:
    return value if math.isfinite(value) else repr(value)


def _text_writer(kind: type, form: Form, otherwise: Form) -> Writer:
    """Return a writer with a form of its own for `kind`, which cuts values that hold themselves."""
    return Writer(
        forms={kind: form},
        families=[
            (kind, form),
            (bool | int | float | str, as_it_is),
            (Mapping, values_by(text_of)),
            (list | tuple, items),
        ],
        otherwise=otherwise,
        leaves=LEAVES - {kind},
        depth_max=DEPTH_MAX,
        too_deep=lambda _writer, _value, _steps: "…",
    )


# For files that people and programs look at: NaN stays NaN, which Python's JSON reader accepts.
as_loose_json = _text_writer(str, _clean, _stand_in_form)
# For strict JSON: floats that are not finite become text, and the encoder refuses other types.
as_strict_json = _text_writer(float, _finite, as_it_is)


def same(one: Any, other: Any) -> bool:
    """Whether two pieces of plain data are equal, in type too; NaN equals NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and math.isnan(one):
        return math.isnan(other)
    return bool(one is other or one == other)
