"""A driver in a process of its own, for tests that stop it and kill it.

    python -m tests.faults.writer ROOT TIME_TO_LIVE_S COMMITS [SIGNAL WRITES]

Opens the run and commits checkpoints, and says on standard output what it may promise: `open
EPOCH`, `ack NUMBER`, `held WHY`, `lost WHY`, `closed`. With a signal it sends that to itself at its
so-manieth write after it has opened the run, which is as random a moment as any and can be
repeated. Once it has been told to wait (`wait` as first line of input), it tries to open the run
until it can.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path

from holdfast.checkpoint.commit import deliver
from holdfast.control.record.open_run import OpenRun, open_run
from holdfast.core.checkpoint.retention import Retention
from holdfast.errors import LeaseLost, RunHeld
from holdfast.storage.local.disk import PosixDisk
from holdfast.storage.local.store import LocalStore
from holdfast.testing.faults import ALLOW, Step, TappedDisk, Verdict
from tests.runs import save_files

RANKS = 2
KEEP = 3


class SignalAt:
    """Sends this process a signal right before one of its writes."""

    def __init__(self, number: int, write: int) -> None:
        self._signal, self._left = number, write
        self.is_armed = False

    def judge(self, step: Step) -> Verdict:
        if self.is_armed:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), self._signal)
        return ALLOW


def contents(number: int, rank: int, epoch: int) -> dict[str, bytes]:
    """Return what a rank saves: nothing of one commit can be taken for that of another."""
    files = {f"shards/{rank}.bin": f"shard {rank} of {number} in {epoch};".encode() * 100}
    return {**files, "model.pt": f"model {number} in {epoch}".encode()} if rank == 0 else files


def commit(run: OpenRun, folder: Path) -> int:
    slot = run.begin_checkpoint(attempt=1)
    parts = [
        deliver(
            run.store,
            slot,
            rank,
            save_files(folder / f"{slot.number}-{rank}", contents(slot.number, rank, slot.epoch)),
        )
        for rank in range(RANKS)
    ]
    run.commit_checkpoint(slot, parts, world_size=RANKS)
    return slot.number


def say(*words: object) -> None:
    # One write, so that a line is heard whole or not at all.
    os.write(1, (" ".join(map(str, words)).replace("\n", " ") + "\n").encode())


def open_patiently(store: LocalStore, time_to_live_s: float, *, is_patient: bool) -> OpenRun:
    while True:
        try:
            return open_run(store, time_to_live_s=time_to_live_s)
        except RunHeld as held:
            if not is_patient:
                say("held", held)
                sys.exit(3)


def main(root: str, time_to_live_s: float, commits: int, number: int = 0, write: int = 0) -> None:
    is_patient = sys.stdin.readline().strip() == "wait"
    tap = SignalAt(number, write)
    store = LocalStore(root, TappedDisk(PosixDisk(), tap))
    run = open_patiently(store, time_to_live_s, is_patient=is_patient)
    run.journal._segment_bytes = 2000  # noqa: SLF001  # so that compaction has something to do
    say("open", run.lease.epoch)
    tap.is_armed = True
    try:
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(commits):
                say("ack", commit(run, Path(folder)))
                run.retain(Retention(keep=KEEP))
                run.compact()
        run.close()
        say("closed")
    except LeaseLost as lost:
        say("lost", lost)
        sys.exit(4)


if __name__ == "__main__":
    root, time_to_live_s, commits, *how = sys.argv[1:]
    if how:
        number = signal.Signals[how[0]].value
        main(root, float(time_to_live_s), int(commits), number, int(how[1]))
    else:
        main(root, float(time_to_live_s), int(commits))
