"""How a script and the bench talk: small files in one folder, each written whole."""

from __future__ import annotations

import json
import os
import time
from typing import Any

POLL_S = 0.002


def mark(folder: str, name: str, **facts: Any) -> None:
    """Leave a file that says when, and by whom, this was reached."""
    facts = {"time": time.time(), "pid": os.getpid(), **facts}
    with open(f"{folder}/.{name}.{os.getpid()}", "w") as file:
        json.dump(facts, file)
    os.replace(file.name, f"{folder}/{name}")


def read(folder: str, name: str) -> dict[str, Any] | None:
    """Return what a mark says, None if it is not there."""
    try:
        with open(f"{folder}/{name}") as file:
            found: dict[str, Any] = json.load(file)
    except FileNotFoundError:
        return None
    return found


def await_mark(folder: str, name: str) -> dict[str, Any]:
    """Return what a mark says, as soon as it is there."""
    while (found := read(folder, name)) is None:
        time.sleep(POLL_S)
    return found


def first_free(folder: str, name: str) -> int:
    """Return how often `name-0`, `name-1` … has been marked."""
    number = 0
    while os.path.exists(f"{folder}/{name}-{number}"):
        number += 1
    return number
