"""The examples of the guides as scripts: translated as a user would, launched, and watched.

The texts beside this file are the examples as they were written for Ray. What runs is the same text
with its import lines changed and nothing else.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.examples.seeds.sitecustomize import FAULT
from tests.families import end_family
from tests.patience import pause, wait_until

FOLDER = Path(__file__).parent
MARK = "HOLDFAST_TEST_EXAMPLE"
_IMPORT = re.compile(r"^([ \t]*)import ray((?:\.\w+)*)$", re.MULTILINE)
_FROM = re.compile(r"^([ \t]*from )ray((?:\.\w+)* import )", re.MULTILINE)


def seed(name: str) -> str:
    """Return the text of an example."""
    return (FOLDER / f"{name}.py.txt").read_text()


def names() -> list[str]:
    return sorted(path.name.removesuffix(".py.txt") for path in FOLDER.glob("*.py.txt"))


def translated(text: str) -> str:
    """Return an example as a script for Holdfast.

    `import ray.train` becomes `import holdfast as ray` and `import holdfast.train`; `from ray.train
    import x` becomes `from holdfast.train import x`. No other line is changed.
    """
    text = _IMPORT.sub(
        lambda found: (
            f"{found[1]}import holdfast as ray"
            + (f"\n{found[1]}import holdfast{found[2]}" if found[2] else "")
        ),
        text,
    )
    return _FROM.sub(r"\1holdfast\2", text)


class Machine:
    """A machine to run an example on: a home, a folder for temporary files, and nothing else."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.home, self.temporary = folder / "home", folder / "tmp"
        self.marks = folder / "marks"
        for one in (self.home, self.temporary, self.marks):
            one.mkdir(parents=True)
        self._variables = variables
        self._mark = secrets.token_hex(8)
        self.launched: list[subprocess.Popen[str]] = []

    def write(self, name: str, replacing: Mapping[str, str] | None = None) -> Path:
        """Put an example on this machine; `replacing` is what its user has filled in."""
        text = seed(name)
        for old, new in (replacing or {}).items():
            assert text.count(old) == 1, f"{old!r} is there {text.count(old)} times"
            text = text.replace(old, new)
        script = self.home / f"{name}.py"
        script.write_text(translated(text))
        return script

    def launch(
        self, script: Path, *arguments: str, fault: Mapping[str, Any] | None = None
    ) -> subprocess.Popen[str]:
        ours = ("RAY_", "HOLDFAST_")
        plain = {name: one for name, one in os.environ.items() if not name.startswith(ours)}
        beside = os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")])
        met = {} if fault is None else {FAULT: json.dumps({**fault, "marks": str(self.marks)})}
        process = subprocess.Popen(
            [sys.executable, str(script), *arguments],
            env={
                **plain,
                **self._variables,
                **met,
                MARK: self._mark,
                "HOME": str(self.home),
                "TMPDIR": str(self.temporary),
                "TORCHINDUCTOR_CACHE_DIR": str(self.home / "torch"),
                "PYTHONPATH": beside,
                "PYTHONWARNINGS": "default",
            },
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.launched.append(process)
        return process

    def run(
        self, script: Path, *arguments: str, fault: Mapping[str, Any] | None = None
    ) -> tuple[str, str]:
        """Run a script to its good end; return what it printed, and what was said."""
        process = self.launch(script, *arguments, fault=fault)
        output, errors = process.communicate()
        assert process.returncode == 0, errors
        return output, errors

    def interrupt(
        self,
        script: Path,
        *arguments: str,
        workers: int,
        event: str,
        count: int,
        number: int = signal.SIGKILL,
    ) -> int:
        """Launch a script and signal it once every worker has come to the `count`th `event`.

        Return how it ended; by then all that it started is gone, too.
        """
        fault = {"event": event, "count": count, "does": "wait"}
        process = self.launch(script, *arguments, fault=fault)
        while len(os.listdir(self.marks)) < workers:
            assert process.poll() is None, process.communicate()[1]
            pause()
        end_family(process, number)
        for mark in self.marks.iterdir():
            mark.unlink()
        return process.returncode

    def processes(self) -> list[int]:
        """Return what runs of everything that was launched here."""
        mark = f"{MARK}={self._mark}".encode()
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (process / "environ").read_bytes():
                    found.append(int(process.name))
            except OSError:
                continue  # it has ended, or is another user's
        return found

    def close(self) -> None:
        for process in self.launched:
            process.kill()
            process.communicate()
        wait_until(lambda: not self.processes(), "something outlives its driver")


def printed(run: Path) -> dict[tuple[int, int], list[str]]:
    """Return what the workers of a run printed, by attempt and rank."""
    found = {}
    for log in run.glob("logs/attempt-*/rank-*.log"):
        attempt, rank = int(log.parent.name.split("-")[1]), int(log.stem.split("-")[1])
        found[attempt, rank] = log.read_text().splitlines()
    return found
