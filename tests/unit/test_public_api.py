"""The exported names and their signatures equal a stored list, so that none changes by accident.

A module is public if it declares `__all__`; so are `holdfast` and `holdfast.errors`. After a change
that was meant, write the list anew and look at the difference:

    .venv/bin/python -m tests.unit.test_public_api
"""

from __future__ import annotations

import ast
import difflib
import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from enum import Enum
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
STORED = Path(__file__).with_name("public_api.txt")
ALWAYS_PUBLIC = {"holdfast", "holdfast.errors"}


def test_the_public_api_is_the_stored_one() -> None:
    stored = STORED.read_text(encoding="utf-8").splitlines()

    change = "\n".join(difflib.unified_diff(stored, list(_api()), "stored", "now", lineterm=""))

    assert not change, f"{change}\n  Try: python -m tests.unit.test_public_api, if this was meant"


def test_every_exported_name_exists() -> None:
    missing = [
        f"{module}.{name}"
        for module in _public_modules()
        for name in _exports(module)
        if not hasattr(importlib.import_module(module), name)
    ]

    assert not missing


def test_signatures_are_written_as_in_the_source() -> None:
    def sample(a: list[str], *, b: int | None = None, c: object = object()) -> None: ...

    assert _signature(sample) == (
        "(a: list[str], *, b: int | None = None, c: object = <object object>) -> None"
    )


def _api() -> Iterator[str]:
    listed: dict[int, str] = {}
    for module in _public_modules():
        for name in _exports(module):
            value = getattr(importlib.import_module(module), name)
            full = f"{module}.{name}"
            first = listed.setdefault(id(value), full)
            if callable(value) and first != full:
                yield f"{full} is {first}"
            else:
                yield from _lines(full, value)


def _public_modules() -> list[str]:
    found = set(ALWAYS_PUBLIC)
    for path in SOURCE.rglob("*.py"):
        if _declares_all(path):
            parts = path.relative_to(SOURCE).with_suffix("").parts
            found.add(".".join(parts).removesuffix(".__init__"))
    return sorted(found)


def _declares_all(path: Path) -> bool:
    return any(
        isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign)
        and any(isinstance(name, ast.Name) and name.id == "__all__" for name in ast.walk(node))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    )


def _exports(module: str) -> list[str]:
    loaded = importlib.import_module(module)
    if hasattr(loaded, "__all__"):
        return sorted(loaded.__all__)
    return sorted(
        name
        for name, value in vars(loaded).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module
    )


def _lines(name: str, value: object) -> Iterator[str]:
    if inspect.isclass(value):
        yield from _class_lines(name, value)
    elif callable(value):
        yield f"{name}{_signature(value)}"
    elif inspect.ismodule(value):
        yield f"{name}: module"
    else:
        yield f"{name}: {type(value).__name__}"


def _class_lines(name: str, kind: type) -> Iterator[str]:
    bases = ", ".join(base.__name__ for base in kind.__bases__ if base is not object)
    yield f"class {name}({bases})" if bases else f"class {name}"
    if issubclass(kind, Enum):
        yield from (f"{name}.{member}" for member in kind.__members__)
        return
    if "__init__" in vars(kind) or is_dataclass(kind):
        yield f"{name}.__init__{_signature(kind.__init__)}"
    for member, value in sorted(vars(kind).items()):
        if member.startswith("_"):
            continue
        match value:
            case property():
                yield f"{name}.{member}: property -> {_returned(value)}"
            case classmethod() | staticmethod():
                yield f"{name}.{member}{_signature(value.__func__)}  [{type(value).__name__}]"
            case _ if inspect.isfunction(value):
                yield f"{name}.{member}{_signature(value)}"


def _returned(value: property) -> str:
    return _as_written(inspect.signature(value.fget).return_annotation) if value.fget else "?"


def _signature(function: object) -> str:
    """Return the signature with annotations as they stand in the source."""
    assert callable(function)
    plain = inspect.signature(function)
    parameters = [
        parameter.replace(annotation=_AsWritten(parameter.annotation))
        if parameter.annotation is not parameter.empty
        else parameter
        for parameter in plain.parameters.values()
    ]
    returned = plain.return_annotation
    if returned is not plain.empty:
        returned = _AsWritten(returned)
    shown = str(plain.replace(parameters=parameters, return_annotation=returned))
    return re.sub(r" at 0x[0-9a-f]+", "", shown)  # a default without a repr of its own


def _as_written(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


class _AsWritten:
    """An annotation that is shown without quotes."""

    def __init__(self, annotation: object) -> None:
        self._text = _as_written(annotation)

    def __repr__(self) -> str:
        return self._text


if __name__ == "__main__":
    STORED.write_text("".join(f"{line}\n" for line in _api()), encoding="utf-8")
