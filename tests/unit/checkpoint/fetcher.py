"""A process that fetches one copy, started by tests with arguments.

    python -m tests.unit.checkpoint.fetcher ROOT LOG [--stuck] [--stall SECONDS]

Writes `fill <pid>` to LOG when it makes the copy itself, prints the copy's path, and ends when its
standard input does. With --stuck it stops in the middle of making the copy, for ever.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from holdfast.checkpoint.fetch import fetch_once
from holdfast.core.checkpoint.manifest import FileEntry

FILES = (FileEntry("weights.bin", 1000, ""), FileEntry("inner/config", 3, ""))


def fetch(root: Path, log: Path, stuck: bool, stall_s: float) -> Path:
    def fill(folder: str) -> None:
        with log.open("a") as lines:
            lines.write(f"fill {os.getpid()}\n")
        Path(folder, "inner").mkdir()
        Path(folder, "weights.bin").write_bytes(b"w" * 500)
        if stuck:
            print("stuck", flush=True)
            signal.pause()
        Path(folder, "weights.bin").write_bytes(b"w" * 1000)
        Path(folder, "inner", "config").write_bytes(b"abc")

    return fetch_once("some-checkpoint", fill, FILES, root=root, stall_s=stall_s)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("log", type=Path)
    parser.add_argument("--stuck", action="store_true")
    parser.add_argument("--stall", type=float, default=60.0)
    chosen = parser.parse_args()
    print(fetch(chosen.root, chosen.log, chosen.stuck, chosen.stall), flush=True)
    sys.stdin.read()
