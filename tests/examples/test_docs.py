"""Every code block of the docs runs as it stands, and prints what the page says."""

from __future__ import annotations

import inspect
import re
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest

from holdfast.core.study.trial import Status
from holdfast.train import FailureConfig
from holdfast.tune import Tuner, schedulers
from holdfast.tune.search import create
from tests.examples.pages import (
    ROOT,
    Block,
    blocks_in,
    commands_in,
    expected_of,
    is_like,
    printed_by,
    run_command,
    run_python,
    script_of,
)

PAGES = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(name for name in PAGES if "```python" in PAGES[name]))
def test_the_code_of_a_page_runs_and_prints_what_it_says(page: str, tmp_path: Path) -> None:
    blocks = blocks_in(PAGES[page])

    ran = run_python(script_of(blocks), tmp_path)

    assert ran.returncode == 0, ran.stderr
    assert printed_by(ran.stdout) == expected_of(blocks)
    for command, said in _commands(blocks):
        output = run_command(command, tmp_path)
        assert is_like(output, said), f"$ {command}\n{output}"


def _commands(blocks: list[Block]) -> list[tuple[str, str]]:
    consoles = [block for block in blocks if block.language == "console"]
    return [pair for block in consoles for pair in commands_in(block)]


def test_checkpoints_without_a_trainer_carry_on_when_the_code_runs_again(tmp_path: Path) -> None:
    code = script_of(blocks_in(PAGES["storage.md"]))

    for _ in range(2):
        ran = run_python(code, tmp_path)
        assert ran.returncode == 0, ran.stderr
    kept = sorted(path.name for path in (tmp_path / "runs" / "bert-7").glob("checkpoint_*"))
    assert kept == ["checkpoint_000000", "checkpoint_000001"]


def test_the_loop_for_schedulers_goes_on_after_75_and_ends_after_anything_else(
    tmp_path: Path,
) -> None:
    [block] = [block for block in blocks_in(PAGES["train.md"]) if block.language == "sh"]

    for codes, left in (("75 75 0", 0), ("75 1 75", 1)):
        (tmp_path / "codes").write_text(codes)
        (tmp_path / "python").write_text(
            '#!/bin/sh\nread -r code rest < codes; echo "$rest" > codes; exit "$code"\n'
        )
        (tmp_path / "python").chmod(0o755)
        program = f"PATH=.:$PATH\n{block.text}"
        ended = subprocess.run(["sh", "-c", program], cwd=tmp_path, check=False).returncode
        assert (ended, len((tmp_path / "codes").read_text().split())) == (left, left)


def test_the_guide_tells_of_every_field_of_failure_config_and_its_default() -> None:
    table = PAGES["train.md"].partition("`FailureConfig` in full:\n\n")[2].partition("\n\n")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines()[2:]]
    told = {name.strip(" `"): value.strip(" `") for name, value in rows}

    assert told == {
        one.name: f"{one.default:g}" if type(one.default) is float else str(one.default)
        for one in fields(FailureConfig)
    }


def test_the_guide_to_searching_names_every_scheduler_searcher_and_flag() -> None:
    page = PAGES["tune.md"]
    names = {*schedulers.__all__} - {"TrialScheduler", "create_scheduler"}
    names |= {kind for _, kind in create._HOMES.values()}  # noqa: SLF001  the list there is
    names |= {"Repeater", "ConcurrencyLimiter"}
    told = {name for line in page.splitlines() for name in re.findall(r"\w+", line[:80])}

    assert names <= told
    flags = [name for name in inspect.signature(Tuner.restore).parameters if name.endswith("ed")]
    going_on = page.partition("\n## Going on\n")[2].partition("\n## ")[0]
    assert flags == ["resume_unfinished", "resume_errored", "restart_errored"]
    assert all(f"`{name}=" in going_on for name in flags)
    assert all(f"\n| {status} |" in going_on for status in Status)


def test_links_between_pages_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")]:
        text = page.read_text(encoding="utf-8")
        headings = {_anchor(line) for line in text.splitlines() if line.startswith("#")}
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, anchor = target.partition("#")
            if path.startswith(("http:", "https:")):
                continue
            if not path:
                assert anchor in headings, f"{page.name}: {target}"
            else:
                assert (page.parent / path).exists(), f"{page.name}: {target}"


def _anchor(heading: str) -> str:
    words = re.sub(r"[^\w\- ]", "", heading.lstrip("#").strip().lower())
    return words.replace(" ", "-")


# ---------------------------------------------------------------------- the reading of pages


PAGE = """\
# Title

```python
print("one")
```

```output
one
```

```python
x = 1
```

```console
$ holdfast ls runs
NAME  AGE
a     … ago
```
"""


def test_a_script_has_its_lines_where_the_page_has_them() -> None:
    lines = script_of(blocks_in(PAGE)).splitlines()

    assert lines[3] == 'print("one")'
    assert lines[11] == "x = 1"


def test_each_block_is_held_to_what_follows_it_or_to_silence() -> None:
    assert expected_of(blocks_in(PAGE)) == {3: "one", 11: ""}


def test_what_a_block_prints_is_told_from_what_others_print(tmp_path: Path) -> None:
    ran = run_python(script_of(blocks_in(PAGE)), tmp_path)

    assert printed_by(ran.stdout) == {3: "one", 11: ""}


@pytest.mark.parametrize(
    ("output", "is_good"),
    [
        ("NAME  AGE\na     3 s ago", True),
        ("NAME   AGE\na      12 min ago", True),
        ("NAME  AGE\na     3 s", False),
        ("NAME  AGE\nb     3 s ago", False),
    ],
)
def test_the_output_of_a_command_is_compared(output: str, is_good: bool) -> None:
    [block] = [block for block in blocks_in(PAGE) if block.language == "console"]
    [(command, said)] = commands_in(block)

    assert command == "holdfast ls runs"
    assert is_like(output, said) is is_good
