"""Starts a study of some system, hears how far it is, and leaves nothing of it behind."""

from __future__ import annotations

import itertools
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.peers import peers_python, why_no_peer
from bench.program import SCRIPTS, SHORT, Program
from bench.question import Setting, Side

STUDY = "tune_study.py"
_RAY = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}


@dataclass(frozen=True)
class System:
    """How a study is run: the script, in whose environment, and what it is told besides.

    Attributes:
        package: What must be in the peers' environment, "" for a script of ours.
        is_slow: Whether it takes so long that a quick run is without it.
    """

    script: str
    options: Mapping[str, Any]
    package: str = ""
    is_slow: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    def command(self) -> Sequence[str]:
        python = str(peers_python()) if self.package else sys.executable
        return [python, str(SCRIPTS / self.script)]

    def why_not(self, setting: Setting) -> str:
        """Return why it cannot be measured, "" if it can."""
        if not self.package:
            return ""
        return setting.why_no_slow(self.package) if self.is_slow else why_no_peer(self.package)


def _study(system: str, *, reuses: bool, **more: Any) -> System:
    return System(STUDY, {"system": system, "reuses": reuses}, **more)


def _optuna(storage: str, *, is_slow: bool) -> System:
    return System("optuna_study.py", {"storage": storage}, "optuna", is_slow)


SYSTEMS: Mapping[str, System] = {
    "holdfast": _study("holdfast", reuses=False),
    "holdfast-reused": _study("holdfast", reuses=True),
    "ray": _study("ray", reuses=False, package="ray", is_slow=True, environment=_RAY),
    "ray-reused": _study("ray", reuses=True, package="ray", is_slow=True, environment=_RAY),
    "optuna-memory": _optuna("memory", is_slow=True),
    "optuna-sqlite": _optuna("sqlite", is_slow=True),
    "optuna-journal": _optuna("journal", is_slow=False),
    "fork": System("bare_trials.py", {"reuses": False}),
    "fork-reused": System("bare_trials.py", {"reuses": True}),
}


@contextmanager
def studying(system: str, folder: Path, options: Mapping[str, Any]) -> Iterator[Program]:
    """Start a study with these options; kill what is left of it afterwards.

    A folder that has been used is used again: its marks and its study are still there.
    """
    known = SYSTEMS[system]
    folder.mkdir(exist_ok=True)
    short = tempfile.mkdtemp(prefix="hf-", dir=SHORT)
    given = {**options, **known.options, "folder": str(folder), "sockets": short}
    program = Program(
        [*known.command(), json.dumps(given)],
        folder,
        environment={**known.environment, "TMPDIR": short},
    )
    try:
        yield program
    finally:
        program.kill()
        shutil.rmtree(short, ignore_errors=True)


def rates(
    setting: Setting,
    options: Mapping[str, Any],
    counts: Mapping[str, int],
    rounds: Mapping[str, int],
) -> Callable[[str], Side]:
    """Return what makes a side of a system: how many trials a second its studies finish.

    `counts` says of which systems fewer trials are asked for, and `rounds` of which fewer rounds.
    What comes before the first trial of a slow system is not counted: with more trials it would
    weigh less.
    """
    numbers = itertools.count()

    def rate(system: str) -> float:
        folder = setting.folder / f"{system}-{next(numbers)}"
        count = min(counts.get(system, options["count"]), options["count"])
        with studying(system, folder, {**options, "count": count}) as program:
            [over] = program.await_marks("over")
            begun = float(over["begun"])
            if SYSTEMS[system].script == STUDY and SYSTEMS[system].is_slow:
                [first] = program.await_marks("first")
                begun = float(first["time"])
            return float(count / (float(over["ended"]) - begun))

    def side(system: str) -> Side:
        return Side(
            system,
            lambda: rate(system),
            left_out=SYSTEMS[system].why_not(setting),
            rounds_max=rounds.get(system),
        )

    return side
