"""`docs/architecture.md` names modules that exist, and every layer is on it or in CONTRIBUTING."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "holdfast"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MODULES = {path.name for path in PACKAGE.rglob("*.py")}
PATH = re.compile(r"[\w.]+(?:/[\w.]+)*/?")


def _paths(page: str) -> set[str]:
    """Return what looks like a file or folder among the words in backticks."""
    quoted = set(re.findall(r"`([^`\n]+)`", page))
    paths = {text for text in quoted if PATH.fullmatch(text)}
    return {text for text in paths if text.endswith(".py") or "/" in text}


def _exists(path: str) -> bool:
    if "/" not in path:
        return path in MODULES
    return any((home / path).exists() for home in (PACKAGE, ROOT))


@pytest.mark.parametrize("path", sorted(_paths(PAGE)))
def test_a_path_on_the_page_exists(path: str) -> None:
    assert _exists(path), f"docs/architecture.md names `{path}`, which does not exist"


def test_paths_are_told_from_other_words_in_backticks() -> None:
    page = "`worker/reporting.py`, `wire.py`, `control/run/`, `advance`, `Tuner(...)`, `a/b c`"

    assert _paths(page) == {"worker/reporting.py", "wire.py", "control/run/"}


def test_a_module_that_is_gone_is_noticed() -> None:
    assert not _exists("control/run/gone.py")
    assert not _exists("gone.py")


@pytest.mark.parametrize(
    "layer", sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
)
def test_every_layer_is_on_the_page_or_in_the_table_of_layers(layer: str) -> None:
    assert re.search(rf"\b{layer}\b", PAGE + CONTRIBUTING)
