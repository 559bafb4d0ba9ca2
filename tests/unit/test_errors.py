from __future__ import annotations

import copy
import pickle
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from holdfast import errors
from holdfast.errors import ConfigError, HoldfastError, StoreError


def _tree(kind: type[HoldfastError]) -> Iterator[type[HoldfastError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _tree(below)


# Only ours: a test may have made an error class of its own.
EVERY = sorted(
    (kind for kind in _tree(HoldfastError) if kind.__module__ == errors.__name__),
    key=lambda kind: kind.code,
)
every_error = pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)


@every_error
@pytest.mark.parametrize("hint", [None, "wait"])
def test_an_error_survives_pickling_whole(kind: type[HoldfastError], hint: str | None) -> None:
    error = kind("x=0: must be at least 1", hint=hint, code="HF999")

    again = pickle.loads(pickle.dumps(error))

    assert type(again) is kind
    assert again.args == error.args == ("x=0: must be at least 1",)
    assert (again.message, again.hint, again.code) == ("x=0: must be at least 1", hint, "HF999")
    assert str(again) == str(error)


@pytest.mark.parametrize(
    "kind", [kind for kind in EVERY if issubclass(kind, StoreError)], ids=lambda kind: kind.__name__
)
def test_a_store_error_keeps_its_key_through_pickling(kind: type[StoreError]) -> None:
    again = pickle.loads(pickle.dumps(kind("gone", key="a/b")))

    assert again.key == "a/b"


def test_an_error_keeps_notes_and_attributes_through_pickling_and_copying() -> None:
    error = HoldfastError("odd")
    error.add_note("seen on rank 3")
    error.__dict__["rank"] = 3

    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert vars(again)["__notes__"] == ["seen on rank 3"]
        assert vars(again)["rank"] == 3


@every_error
def test_the_text_is_message_code_and_hint(kind: type[HoldfastError]) -> None:
    assert str(kind("x=0: too small")) == f"x=0: too small [{kind.code}]"
    assert str(kind("x=0: too small", hint="x=1")) == f"x=0: too small [{kind.code}]\n  Try: x=1"


def test_a_code_given_to_one_error_does_not_change_its_class() -> None:
    ConfigError("odd", code="HF199")

    assert ConfigError.code == "HF100"


def test_every_error_has_a_code_of_its_own() -> None:
    codes = Counter(kind.code for kind in EVERY)

    assert [code for code, times in codes.items() if times > 1] == []
    assert all(re.fullmatch(r"HF\d{3}", code) for code in codes)


def test_an_error_has_a_code_of_its_parents_hundred() -> None:
    astray = [
        kind.__name__
        for kind in EVERY
        for parent in kind.__bases__
        if parent is not HoldfastError
        and issubclass(parent, HoldfastError)
        and kind.code[:3] != parent.code[:3]
    ]

    assert astray == []


def test_a_bad_value_is_a_value_error_too() -> None:
    assert issubclass(ConfigError, ValueError)


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    assert _drawn_tree(errors.__doc__ or "") == {
        kind.__name__: kind.__bases__[0].__name__ for kind in EVERY if kind is not HoldfastError
    }


def _drawn_tree(text: str) -> dict[str, str]:
    """Return child -> parent as drawn: a name's column is its depth."""
    parents: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in text.splitlines():
        match = re.match(r"    [ │├└─]*(?P<name>[A-Z]\w+)", line)
        if not match:
            continue
        column = match.start("name")
        while above and above[-1][0] >= column:
            above.pop()
        if above:
            parents[match["name"]] = above[-1][1]
        above.append((column, match["name"]))
    return parents
