"""Every requirement that is claimed is named by a test, and every name is a requirement."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.requirements import CLAIMED, KNOWN

TESTS = Path(__file__).parents[1]


def test_every_id_named_by_a_test_is_a_requirement() -> None:
    strangers = {f"{path}: {name}" for path, name in _named() if name not in KNOWN}

    assert not strangers


def test_every_claimed_id_is_a_requirement() -> None:
    strangers = [name for batch in CLAIMED.values() for name in batch if name not in KNOWN]

    assert not strangers


def test_no_requirement_is_claimed_by_two_batches() -> None:
    claims = Counter(name for batch in CLAIMED.values() for name in batch)

    assert [name for name, times in claims.items() if times > 1] == []


def test_every_claimed_requirement_is_named_by_a_test() -> None:
    named = {name for _, name in _named()}
    missing = {name: says for batch in CLAIMED.values() for name, says in batch.items()}
    for name in named:
        missing.pop(name, None)

    assert not missing


def test_ids_are_found_however_the_mark_is_written() -> None:
    source = """
pytestmark = [pytest.mark.req("T-001"), pytest.mark.s3]

@pytest.mark.req("T-002", "T-003")
def test_one(): ...

@pytest.mark.parametrize("case", [pytest.param(1, marks=mark.req("U-001"))])
def test_two(case): ...
"""

    assert sorted(_named_in(source)) == ["T-001", "T-002", "T-003", "U-001"]


def _named() -> Iterator[tuple[str, str]]:
    """Yield each id with the file that names it.

    The source is read, not run, so that a test that is left out by a filter or a missing server
    still counts.
    """
    for path in sorted(TESTS.rglob("test_*.py")):
        for name in _named_in(path.read_text(encoding="utf-8")):
            yield str(path.relative_to(TESTS.parent)), name


def _named_in(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(value=holder, attr="req"), args=ids) if (
                ast.unparse(holder).split(".")[-1] == "mark"
            ):
                # Only plain strings can be found this way; anything else counts as unknown.
                yield from (
                    found.value
                    if isinstance(found, ast.Constant) and isinstance(found.value, str)
                    else ast.unparse(found)
                    for found in ids
                )
