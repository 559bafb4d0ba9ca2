"""All packages that load their names when first used do it by `lazy_exports`."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
LAZY = [
    path
    for path in sorted((SOURCE / "holdfast").rglob("*.py"))
    if "__all__, __getattr__, __dir__ = " in path.read_text(encoding="utf-8")
    and path.stem != "lazy_exports"
]
NOT_LISTED = {"checkpoint", "errors"}  # submodules of holdfast, shown to editors


def _name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def _shown_to_type_checkers(path: Path) -> dict[str, str]:
    """Return the modules that names are imported from under `TYPE_CHECKING`, by name."""
    [block] = [
        statement
        for statement in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING"
    ]
    imports = [statement for statement in block.body if isinstance(statement, ast.ImportFrom)]
    return {alias.name: str(statement.module) for statement in imports for alias in statement.names}


@pytest.mark.parametrize("path", LAZY, ids=_name)
def test_type_checkers_are_shown_the_names_there_are(path: Path) -> None:
    module = importlib.import_module(_name(path))
    shown = _shown_to_type_checkers(path)
    if "*" in shown:
        home = shown.pop("*")
        shown = dict.fromkeys(importlib.import_module(home).__all__, home)

    assert set(shown) - NOT_LISTED == set(module.__all__) - {"__version__"}
    for name, home in shown.items():
        assert getattr(module, name) is getattr(importlib.import_module(home), name)


def test_the_mechanism_is_found_where_it_is_used() -> None:
    assert {"holdfast", "holdfast.train", "holdfast.train.torch"} <= set(map(_name, LAZY))


@pytest.mark.parametrize("path", LAZY, ids=_name)
def test_an_unknown_name_is_an_attribute_error(path: Path) -> None:
    module = importlib.import_module(_name(path))

    with pytest.raises(AttributeError, match=f"{module.__name__!r} has no attribute 'missing'"):
        module.missing  # noqa: B018
