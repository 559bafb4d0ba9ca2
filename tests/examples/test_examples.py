"""Every example and every code block of the README runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_readme_runs_and_carries_on_when_it_runs_again(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 2

    for checkpoints in (1, 2):
        subprocess.run([sys.executable, "-c", "\n".join(blocks)], cwd=tmp_path, check=True)
        kept = sorted(path.name for path in (tmp_path / "runs" / "bert-7").glob("checkpoint_*"))
        assert kept == [f"checkpoint_{number:06d}" for number in range(checkpoints)]


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_the_demo_survives_its_kills() -> None:
    command = [sys.executable, str(ROOT / "examples" / "survive_kill.py"), "--kills", "2"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)

    assert ran.stdout.count("kill -9 while step") == 2
    assert ran.stdout.splitlines()[-1].startswith("Done: 2 kills in the middle of a save")
