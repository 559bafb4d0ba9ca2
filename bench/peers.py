"""Where the systems are that Holdfast is measured beside, and what is left out without them."""

from __future__ import annotations

import functools
import importlib.util
import subprocess
from pathlib import Path

ENVIRONMENT = Path(__file__).parent.parent / ".venv-peers"
HINT = "python3 tools/environment.py .venv-peers peers"


def peers_python() -> Path:
    """Return the interpreter of the peers' own environment, which may not be there."""
    return ENVIRONMENT / "bin" / "python"


@functools.cache
def why_no_peer(package: str) -> str:
    """Return why a peer cannot be measured, "" if it can."""
    looks = f"import importlib.util as u, sys; sys.exit(u.find_spec({package!r}) is None)"
    try:
        there = subprocess.run([peers_python(), "-c", looks], check=False).returncode == 0
    except OSError:
        there = False
    return "" if there else f"{package} is not in {ENVIRONMENT.name}; try: {HINT}"


def version_of_peer(package: str) -> str:
    """Return which version of a peer is there, "" for none."""
    asks = f"from importlib.metadata import version; print(version({package!r}))"
    try:
        ran = subprocess.run(
            [peers_python(), "-c", asks], capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return ran.stdout.strip()


@functools.cache
def why_no_torch() -> str:
    """Return why training cannot be measured at all, "" if it can."""
    there = importlib.util.find_spec("torch") is not None
    return "" if there else "torch is not installed in this environment; try: make bench"
