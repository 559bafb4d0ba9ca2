"""Pages of documentation as programs: their code blocks, what those print, their commands.

A page's `python` blocks are one script, in order. An `output` block after one is what it prints; a
block without one prints nothing. A `console` block has commands, with what they print below them,
where … stands for anything.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
MARK = "\x1e"  # no page prints it


@dataclass(frozen=True)
class Block:
    """A fenced block; `line` is that of its fence."""

    language: str
    line: int
    text: str


def blocks_in(page: str) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    found: list[Block] = []
    inside: tuple[str, int, list[str]] | None = None
    for number, line in enumerate(page.splitlines(), 1):
        if inside is None:
            if line.startswith("```"):
                inside = line.removeprefix("```").strip(), number, []
        elif line == "```":
            language, fence, lines = inside
            found.append(Block(language, fence, "\n".join(lines)))
            inside = None
        else:
            inside[2].append(line)
    assert inside is None, "the last block does not end"
    return found


def script_of(blocks: list[Block]) -> str:
    """Return all Python of a page as one script, each line at its number in the page.

    In place of its fence, each block says that it begins.
    """
    lines: list[str] = []
    for block in blocks:
        if block.language == "python":
            lines += [""] * (block.line - 1 - len(lines))
            lines += [f"print({MARK + str(block.line)!r}, flush=True)", *block.text.splitlines()]
    return "\n".join(lines) + "\n"


def expected_of(blocks: list[Block]) -> dict[int, str]:
    """Return what each block of Python is said to print, by its line."""
    expected: dict[int, str] = {}
    before: Block | None = None
    for block in blocks:
        if block.language == "python":
            expected[block.line] = ""
        elif block.language == "output":
            assert before is not None and before.language == "python", (
                f"line {block.line}: of what?"
            )
            expected[before.line] = block.text
        before = block
    return expected


def printed_by(output: str) -> dict[int, str]:
    """Return what each block has printed, by its line."""
    parts = output.split(MARK)[1:]
    pairs = (part.partition("\n") for part in parts)
    return {int(line): text.rstrip("\n") for line, _, text in pairs}


def run_python(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script in a folder, as a user would."""
    path = folder / "page.py"
    path.write_text(script, encoding="utf-8")
    command = [sys.executable, "-X", "utf8", path.name]
    return subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", check=False)


def commands_in(block: Block) -> Iterator[tuple[str, str]]:
    """Yield the commands of a console, each with what it is said to print."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output.rstrip("\n")


def run_command(command: str, folder: Path) -> str:
    """Run a `holdfast` command that must succeed, and return what it prints."""
    program, *arguments = shlex.split(command)
    assert program == "holdfast"
    ran = subprocess.run(
        [sys.executable, "-X", "utf8", "-m", "holdfast.cli", *arguments],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.rstrip("\n")


def is_like(output: str, said: str) -> bool:
    """Whether an output is as a page says; … stands for anything, spaces for some spaces."""
    parts = [r"\s+".join(map(re.escape, re.split(r"\s+", part))) for part in said.split("…")]
    return re.fullmatch(".*".join(parts), output, re.DOTALL) is not None
