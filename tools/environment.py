"""Make a virtual environment hold what pyproject.toml asks for; do nothing where it does already.

    python3 tools/environment.py .venv          Holdfast as a user gets it: the core, no extras
    python3 tools/environment.py .venv test     and the dependency group `test`
    python3 tools/environment.py .venv-peers peers    what Holdfast is measured beside, without it
    python3 tools/environment.py .venv-quality quality    searches that ours are held against

Needs nothing but Python and pip, whose configuration on this machine is respected.
"""

import sys

PYTHON_MIN = (3, 11)

if sys.version_info < PYTHON_MIN:  # before anything that an old Python could stumble over
    sys.exit(
        "Holdfast needs Python %d.%d or newer; %s is %d.%d\n  Try: make PYTHON=python%d.%d"
        % (*PYTHON_MIN, sys.executable, *sys.version_info[:2], *PYTHON_MIN)
    )

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROJECT = ROOT / "pyproject.toml"
PIP = "pip>=25.1"  # the first that knows dependency groups
CORE = "core"
APART = frozenset({"peers", "quality"})  # groups that are installed without Holdfast


def main(folder: str, group: str = CORE) -> None:
    environment = ROOT / folder
    with one_at_a_time():
        stamp = environment / f"holdfast-{group}.stamp"
        wanted = fingerprint()
        if stamp.is_file() and stamp.read_text() == wanted and is_usable(environment):
            return
        print(f"setting up {folder} for {group}; this takes a minute the first time", flush=True)
        if not is_usable(environment):
            create(environment)
        stamp.unlink(missing_ok=True)
        install(environment, group)
        for done in {CORE, group}:
            (environment / f"holdfast-{done}.stamp").write_text(wanted)


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Keep `make -j` from setting up one environment twice at once."""
    with PROJECT.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def fingerprint() -> str:
    """Return what an installation depends on, and no more: not the settings of the tools."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))
    project.pop("tool", None)
    return hashlib.sha256(json.dumps(project, sort_keys=True).encode()).hexdigest()


def is_usable(environment: Path) -> bool:
    """Whether there is an environment, made for this very place and this version of Python.

    One that came here by `cp -r` still has the old place in its scripts.
    """
    program = "import pip, sys; print(sys.version_info[:2])"
    try:
        made_here = str(environment) in (environment / "bin" / "activate").read_text()
        answer = subprocess.run(
            [python_of(environment), "-c", program], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return False
    return made_here and answer.stdout.strip() == str(sys.version_info[:2])


def create(environment: Path) -> None:
    shutil.rmtree(environment, ignore_errors=True)
    if importlib.util.find_spec("ensurepip"):
        run(sys.executable, "-m", "venv", environment)
        return
    # Debian's python3 without python3-venv: the pip at hand can install another one.
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    run(sys.executable, "-m", "pip", "--python", python_of(environment), "install", "--quiet", PIP)


def install(environment: Path, group: str) -> None:
    pip = (python_of(environment), "-m", "pip", "install", "--quiet")
    run(*pip, "--upgrade", PIP)
    holdfast = () if group in APART else ("--editable", ".")
    run(*pip, *holdfast, *(() if group == CORE else ("--group", group)))


def python_of(environment: Path) -> Path:
    return environment / "bin" / "python"


def run(*command: str | Path) -> None:
    # `user = true` in somebody's pip configuration would miss the environment.
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PIP_USER": "0"}, check=False)
    if done.returncode:
        sys.exit(f"cannot set up the environment: {' '.join(map(str, command))} failed")


if __name__ == "__main__":
    main(*sys.argv[1:])
