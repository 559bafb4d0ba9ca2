"""A checkpoint survives `kill -9` in the middle of a save, and the same command carries on.

    python examples/survive_kill.py            watch it happen
    python examples/survive_kill.py --work D   only do the work, in folder D; kill it as you like

The worker counts to ten and saves 32 MB after every step. It is killed three times, each time while
a save is half written. It never starts again from more than one step back, nothing that was
acknowledged is lost, and no half checkpoint is ever seen.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from holdfast.checkpoint.commit import deliver
from holdfast.control.record.litter import sweep
from holdfast.control.record.open_run import open_run
from holdfast.control.record.run_view import look, verify
from holdfast.core.checkpoint.retention import Retention
from holdfast.storage.locate import open_store

STEPS = 10
SIZE = 32 << 20


def work(folder: str) -> None:
    """Count to STEPS, saving after each; begin where the last acknowledged save left off."""
    store = open_store(folder)
    with open_run(store, name="counting") as run:
        sweep(run)
        newest = run.newest_good()  # every byte verified before it is used
        done = newest.step or 0 if newest else 0
        print(f"resumed {done}", flush=True)
        for step in range(done + 1, STEPS + 1):
            slot = run.begin_checkpoint(attempt=run.lease.epoch)
            with tempfile.TemporaryDirectory() as files:
                Path(files, "weights.bin").write_bytes(random.Random(step).randbytes(SIZE))
                print(f"saving {step} {slot.staging(0)}", flush=True)
                part = deliver(store, slot, 0, files)
            run.commit_checkpoint(slot, [part], step=step, metrics={"loss": 1 / step})
            print(f"saved {step}", flush=True)
            run.retain(Retention(keep=2))


def watch(kills: int) -> None:
    """Run the worker, kill it in the middle of saves, and say what became of the run."""
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as top:
        folder = os.path.join(top, "counting")
        saved, cut = 0, None  # steps: the last one acknowledged, the one that was cut off
        for life in range(1, kills + 2):
            begun = time.perf_counter()
            target = saved + random.randint(1, 2) if life <= kills else None
            saved, cut = live_once(folder, life, begun, (saved, cut), target)
            if cut is not None:
                inspect(folder, saved, cut)
        result = verify(look(open_store(folder)))
        newest = look(open_store(folder)).record.usable()[0]
        assert not result.damaged and newest.step == STEPS
        print(
            f"\nDone: {kills} kills in the middle of a save, {STEPS} of {STEPS} steps,"
            f" no acknowledged checkpoint lost, nothing damaged."
        )


def live_once(
    folder: str, life: int, begun: float, before: tuple[int, int | None], target: int | None
) -> tuple[int, int | None]:
    """Run the worker until it ends or is killed; return the last step saved and the one cut off.

    `before` is what the last life returned: either of the two may be where this one begins, as a
    save may have been whole when the kill came, with nobody told of it yet.
    """
    saved = before[0]
    command = [sys.executable, __file__, "--work", folder]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    try:
        for line in worker.stdout:
            verb, step, *rest = line.split()
            if verb == "resumed":
                waited_ms = (time.perf_counter() - begun) * 1000
                print(f"life {life}: resumes after step {step} ({waited_ms:.0f} ms after launch)")
                assert int(step) in before, f"{saved} was acknowledged, {step} was offered"
                saved = int(step)
            elif verb == "saved":
                saved = int(step)
                print(f"  step {step} saved")
            elif target is not None and int(step) > target:
                half_written = wait_for_half_a_save(Path(folder, rest[0]), worker)
                os.kill(worker.pid, signal.SIGKILL)
                print(f"  kill -9 while step {step} is saved, {half_written / 1e6:.0f} MB written")
                return saved, int(step)
        return saved, None
    finally:
        worker.wait()
        worker.stdout.close()


def wait_for_half_a_save(staging: Path, worker: subprocess.Popen[str]) -> int:
    """Return once some of a save's bytes, and not all, are on the disk."""
    while worker.poll() is None:
        size = sum(file.stat().st_size for file in staging.rglob("*.bin"))
        if 0 < size < SIZE:
            return size
    return 0


def inspect(folder: str, saved: int, cut: int) -> None:
    """Look at what the dead worker left, as `holdfast verify` does."""
    view = look(open_store(folder))
    result = verify(view)
    newest = view.record.usable()[0].step if view.record.usable() else 0
    assert not result.damaged, result.damaged
    assert newest in (saved, cut), f"{saved} was acknowledged, the newest is {newest}"
    litter = sum(one.size for one in result.litter)
    print(
        f"  left behind: {result.checkpoints} whole checkpoints, the newest of step {newest},"
        f" and {litter / 1e6:.0f} MB of litter, to be swept"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", metavar="FOLDER", help="only do the work, in this folder")
    parser.add_argument("--kills", type=int, default=3, help="how often to kill the worker")
    chosen = parser.parse_args()
    if chosen.work:
        work(chosen.work)
    else:
        watch(chosen.kills)
