"""Values as data for JSON, and back: one traversal for everything that Holdfast writes down.

Plain data is None, True, False, numbers, texts, and lists and dicts of them, the keys being texts.
A `Writer` turns values into plain data, a `Reader` makes the values again. What JSON has no word
for, such as a tuple, is written as a dict with a key that begins with a mark, `{"$tuple": [...]}`.
Which kinds of values have such a form is said by each writer: the layers above add what only they
know, such as classes by their names or the domains of a search space.

There are two policies for what has no form: a writer refuses it (`refused` raises `NotPlain`), or
says it as text (`as_loose_json`), where what is written is only looked at.

NaN and infinities are floats like others; how a line of JSON spells them is `storage`'s business.
This module is pure: paths are values here, and nothing is opened.
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
_FORMS_MAX = 200  # of so many types a writer remembers the form; more are looked up each time
_TEXTS = frozenset({str})
_PATHS: dict[str, type[pathlib.PurePath]] = {
    "Path": type(pathlib.Path()),  # whatever class paths have on the machine they are on
    "PurePosixPath": pathlib.PurePosixPath,
    "PureWindowsPath": pathlib.PureWindowsPath,
}
_PATH_NAMES = {kind: name for name, kind in _PATHS.items()}


class NotPlain(Exception):
    """A value has no form as data.

    Attributes:
        steps: Where it is.
        reason: What it is, or what is wrong with it.
    """

    def __init__(self, reason: str, steps: Steps = ()) -> None:
        super().__init__(reason)
        self.reason, self.steps = reason, steps


class KeyStep:
    """A step to a key itself, not to what is under it."""


class Writer:
    """Turns values into plain data.

    Args:
        forms: How values of exactly these types are written.
        families: How values of other types are written, by a type they derive from; the first
            that fits counts.
        otherwise: What becomes of all others: the policy.
        leaves: Types whose values are data already.
        depth_max: How deeply containers may be nested, None for as deeply as Python can.
        too_deep: What becomes of those that are nested more deeply.
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
    """Makes values from what a writer wrote.

    Args:
        forms: What makes the value of a dict that has this key.
        escape: What was put before keys that could be mistaken for marks.
        finish: Called with every dict that is no form, for the last word on it.
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
            made = {
                key.removeprefix(escape): inner if type(inner) in LEAVES else self(inner)
                for key, inner in data.items()
            }
        else:
            made = {
                key: inner if type(inner) in LEAVES else self(inner) for key, inner in data.items()
            }
        return made if self.finish is None else self.finish(made)


# ---------------------------------------------------------------------- forms of containers


def as_it_is(_writer: Writer, value: Any, _steps: Steps) -> Any:
    """Leave a value as it is."""
    return value


def items(writer: Writer, values: Any, steps: Steps) -> list[Any]:
    """Write a list of what is inside."""
    leaves = writer.leaves
    return [
        item if type(item) in leaves else writer(item, (*steps, place))
        for place, item in enumerate(values)
    ]


def values_by(name: Callable[[Any], str]) -> Form:
    """Return the form of dicts whose keys become texts by `name`."""

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
    """Return the form of dicts whose keys are not texts: `{mark: [[key, value], ...]}`."""
    return lambda writer, value, steps: {mark: pairs(writer, value, steps)}


def pairs(writer: Writer, value: Any, steps: Steps) -> list[list[Any]]:
    """Write what is in a dict as pairs of a key and a value."""
    return [
        [writer(key, (*steps, KeyStep)), writer(inner, (*steps, key))]
        for key, inner in value.items()
    ]


def dict_or_pairs(mark: str) -> Form:
    """Return the form of dicts of which only those have pairs that JSON's reader could mistake.

    They have a key that is no text, or one that begins like `mark` does.
    """
    first, as_pairs, as_dict = mark[0], marked_pairs(mark), values_by(str)

    def write(writer: Writer, value: Any, steps: Steps) -> Any:
        is_plain = _TEXTS.issuperset(map(type, value)) and (
            first not in "".join(value) or not any(key.startswith(first) for key in value)
        )
        return as_dict(writer, value, steps) if is_plain else as_pairs(writer, value, steps)

    return write


def read_items(mark: str, make: Callable[[list[Any]], Any]) -> dict[str, Any]:
    """Return what reads `marked_items`, for a reader's forms."""
    return {mark: lambda reader, data: make(reader(data[mark]))}


def read_pairs(mark: str, make: Callable[[dict[Any, Any]], Any] = dict) -> dict[str, Any]:
    """Return what reads `marked_pairs`, for a reader's forms."""

    def read(reader: Reader, data: dict[str, Any]) -> Any:
        made = make({reader(key): reader(inner) for key, inner in data[mark]})
        return made if reader.finish is None else reader.finish(made)

    return {mark: read}


# ---------------------------------------------------------------------- leaves


def is_flat(value: Mapping[Any, Any]) -> bool:
    """Whether a dict is plain data with nothing nested in it."""
    return LEAVES.issuperset(map(type, value.values())) and _TEXTS.issuperset(map(type, value))


def is_json_leaf(value: object) -> bool:
    """Whether `value` is None, or of a type of which JSON gives back the very same."""
    return type(value) in LEAVES


def is_plain_leaf(value: object) -> bool:
    """Whether `value` has a form as data, and nothing inside: what JSON gives back, or a path.

    A path whose name is no text (of bytes that are not UTF-8) has none: no JSON can hold it.
    """
    return type(value) in LEAVES or (type(value) in _PATH_NAMES and is_text(str(value)))


def is_text(value: str) -> bool:
    """Whether a text can be encoded: it holds no half of a character."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def own(value: Any) -> Any:
    """Return a number or text of numpy as Python's own, everything else as it is."""
    kind = type(value)
    if kind.__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return value.item()
    return value


def array_data(value: Any) -> Any:
    """Return the numbers of an array or a tensor; raise what its library raises.

    What is no array is returned as it is.
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
    """Refuse what has no form as data; raises `NotPlain`."""
    raise NotPlain(kind_of(value), steps)


def kind_of(value: object) -> str:
    """Return words for what kind of thing `value` is."""
    if isinstance(value, type):
        return f"the class {value.__qualname__} itself"
    kind = type(value)
    name = kind.__qualname__
    return name if kind.__module__ == "builtins" else f"{kind.__module__}.{name}"


def stand_in(value: Any) -> Any:
    """Return what stands for a value that JSON has no word for, to be looked at; never raises.

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
    """Return the text of anything, also of what has none."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001  # what has no text must not cost a row
        return f"<{type(value).__name__}>"


def _said(writer: Writer, value: Any, steps: Steps) -> Any:
    data = stand_in(value)
    return data if type(data) in writer.leaves else writer(data, (*steps, ""))


def _clean(_writer: Writer, value: str, _steps: Steps) -> str:
    return value.encode(errors="replace").decode()


def _finite(_writer: Writer, value: float, _steps: Steps) -> float | str:
    return value if math.isfinite(value) else repr(value)


def _text_writer(kind: type, form: Form, otherwise: Form) -> Writer:
    """Return a writer that has a form of its own for `kind`, and cuts what goes in circles."""
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


# For files that people and programs look at: NaN keeps its name, as Python's reader takes it.
as_loose_json = _text_writer(str, _clean, _said)
# For what must be JSON to every reader: what is not finite is text, and the encoder refuses others.
as_strict_json = _text_writer(float, _finite, as_it_is)


def same(one: Any, other: Any) -> bool:
    """Whether two pieces of plain data are the same, in type too; NaN is the same as NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and math.isnan(one):
        return math.isnan(other)
    return bool(one is other or one == other)
