"""Kill a worker of a training run, then its driver, and see what that cost.

    python examples/demo.py                what `make demo` does, in less than a minute
    python examples/demo.py --keep runs    and the runs stay in a folder, for `holdfast show`

The run is `train_through_kills.py`, which knows nothing of all this: it is launched as anybody
would, processes of it are killed, and the same command is given again. Then the same is trained
undisturbed, to compare the weights.
"""

from __future__ import annotations

import argparse
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

TRAINING = Path(__file__).with_name("train_through_kills.py")
STEP = re.compile(r"attempt (\d+)  epoch (\d+)  step (\d+)  loss (\S+)(  saved)?")
COLUMNS, BAR_COLUMNS = 80, 60
PATIENCE_S = 300.0  # for a machine that is busy with other things


@dataclass
class Attempt:
    """What became of one try.

    Attributes:
        after: The step that it began after.
        reached: The last step it did.
        end: How it ended.
        ended: When, if we ended it.
        back_ms: How long that was before the next attempt had done its first step.
    """

    after: int
    reached: int
    end: str = "finished"
    ended: float | None = None
    back_ms: float | None = None


# ---------------------------------------------------------------------- a run, and who kills it


class Driver:
    """The training script, launched as anybody would; `lines` is what it prints, and when."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
        )
        self.pid = self._process.pid
        self._lines: queue.Queue[tuple[float, str] | None] = queue.Queue()
        for stream in (self._process.stdout, self._process.stderr):
            threading.Thread(target=self._read, args=[stream], daemon=True).start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._lines.put((time.monotonic(), line.rstrip("\n")))
        self._lines.put(None)

    def lines(self) -> Iterator[tuple[float, str]]:
        for _ in ("stdout", "stderr"):
            while (found := self._lines.get(timeout=PATIENCE_S)) is not None:
                yield found

    def end(self) -> int:
        """Return its exit code, once it is gone; it is killed if it has not ended by itself."""
        self._process.kill()
        return self._process.wait()


class Chaos:
    """Trains in `folder`, and kills rank 1 and then the driver on the way.

    Args:
        kills: The step at which each of the two happens; none for a run that is left alone.
    """

    def __init__(self, folder: Path, name: str, options: Sequence[str], kills: list[int]) -> None:
        self._run = folder / name
        self._command = [sys.executable, str(TRAINING), str(folder), "--name", name, *options]
        self._kills = kills
        self._is_in_card = False
        self.attempts: list[Attempt] = []
        self.weights = ""

    def train(self, *, is_shown: bool = True) -> None:
        """Give the command, and again if the driver was killed, until it is finished."""
        while not self.weights:
            driver = Driver(self._command)
            try:
                for moment, line in driver.lines():
                    if is_shown:
                        self._show(line)
                    if found := STEP.match(line):
                        self._note(int(found[1]), int(found[3]), moment)
                        self._kill(driver)
                    self.weights = line.partition("the weights are ")[2] or self.weights
            finally:
                code = driver.end()
            if code not in (0, -signal.SIGKILL):
                sys.exit(f"the run failed, which it should not have; its logs: {self._run}/logs")
            if not self.weights and is_shown:
                say("", "the same command again", style=BOLD)

    def _note(self, attempt: int, step: int, moment: float) -> None:
        if attempt > len(self.attempts):
            if self.attempts and (ended := self.attempts[-1].ended) is not None:
                self.attempts[-1].back_ms = (moment - ended) * 1000
            self.attempts.append(Attempt(step - 1, step))
        self.attempts[-1].reached = step

    def _kill(self, driver: Driver) -> None:
        now = self.attempts[-1]
        if not self._kills or now.reached < self._kills[0] or now.ended is not None:
            return
        self._kills.pop(0)
        whom, pid = "the driver", driver.pid
        if self._kills:  # the last one is the driver's
            log = self._run / "logs" / f"attempt-{len(self.attempts)}" / "rank-1.log"
            whom, pid = "rank 1", int(log.read_text().split()[1])
        os.kill(pid, signal.SIGKILL)
        now.ended, now.end = time.monotonic(), f"{whom} killed"
        say("", f"kill -9 {pid}: that was {whom}, after step {now.reached}", style=RED)

    def _show(self, line: str) -> None:
        """Show what is worth it: saved epochs, and what Holdfast has to say."""
        if found := STEP.match(line):
            if found[5]:
                say(f"  epoch {found[2]}  loss {found[4]:<7} saved")
        elif line.startswith("holdfast: ") or line.startswith("── ") or self._is_in_card:
            self._is_in_card = not line.startswith(("holdfast: ", "  next "))
            indent = "           " if self._is_in_card or line.startswith("  ") else "  "
            say(*textwrap.wrap(line, COLUMNS, subsequent_indent=indent) or [""], style=DIM)


# ---------------------------------------------------------------------- what happened


def picture(attempts: Sequence[Attempt], steps: int, epoch: int) -> list[str]:
    """Return a bar for each attempt: where it began, what was saved, what was lost, where it died."""
    done, lost, died = "█░✖" if can_print("█░✖") else "=.x"

    def column(step: int) -> int:
        return step if steps <= BAR_COLUMNS else step * BAR_COLUMNS // steps

    lines = []
    for number, one in enumerate(attempts, 1):
        kept = attempts[number].after if number < len(attempts) else one.reached
        bar = " " * column(one.after) + done * (column(kept) - column(one.after))
        bar += lost * (column(one.reached) - column(kept)) + (died if one.ended else "")
        lines.append(f"  attempt {number}  {bar}")
    saves = range(0, steps + 1, epoch)
    scale = [" "] * (column(steps) + 8)
    for step in saves:
        at = column(step)
        if all(mark == " " for mark in scale[max(0, at - 1) : at + len(str(step)) + 1]):
            scale[at : at + len(str(step))] = str(step)
    return [*lines, ("  step       " + "".join(scale)).rstrip()]


def table(attempts: Sequence[Attempt]) -> list[str]:
    """Return a line for each attempt: its steps, its end, what was lost, how long it took."""
    lines = []
    for number, one in enumerate(attempts, 1):
        line = f"  attempt {number}  steps {one.after + 1}-{one.reached}".ljust(26) + f"{one.end:<18}"
        if one.ended is not None and number < len(attempts):
            lost = one.reached - attempts[number].after
            line += f"{lost} step{'s' * (lost != 1)} lost".ljust(14)
            line += f"training again after {one.back_ms:.0f} ms"
        lines.append(line.rstrip())
    return lines


# ---------------------------------------------------------------------- printing


BOLD, DIM, RED, GREEN = "1", "2", "31", "32"


def say(*lines: str, style: str = "") -> None:
    """Print; with colours only where somebody looks at a terminal."""
    is_plain = not style or not sys.stdout.isatty() or "NO_COLOR" in os.environ
    for line in lines:
        print(line if is_plain else f"\x1b[{style}m{line}\x1b[0m", flush=True)


def can_print(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=6, help="3 or more")
    parser.add_argument("--steps", type=int, default=8, help="in an epoch, 4 or more")
    parser.add_argument("--keep", metavar="FOLDER", help="where to leave the runs")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as temporary:
        play(Path(chosen.keep or temporary).resolve(), chosen.epochs, chosen.steps)


def play(folder: Path, epochs: int, steps: int) -> None:
    """Train twice, disturbed and undisturbed, and say what came of it."""
    size = ["--epochs", str(epochs), "--steps", str(steps)]
    kills = [epochs // 3 * steps + steps // 2, 2 * epochs // 3 * steps + steps // 2 + 1]
    say(f"Two workers train {epochs} epochs of {steps} steps, and save after each epoch.", "")
    began = time.monotonic()
    disturbed = Chaos(folder, "disturbed", size, kills)
    disturbed.train()
    say("", "What happened", *picture(disturbed.attempts, epochs * steps, steps), "")
    say(*table(disturbed.attempts))
    undisturbed = Chaos(folder, "undisturbed", [*size, "--pace", "0"], [])
    undisturbed.train(is_shown=False)
    is_same = disturbed.weights == undisturbed.weights
    say("", f"  weights    {disturbed.weights[:16]}… after two kills")
    say(f"             {undisturbed.weights[:16]}… of the same training, undisturbed")
    took = f"in {time.monotonic() - began:.0f} s"
    if not is_same:
        sys.exit("The weights differ: something was lost. That is a bug; please tell us.")
    say("", f"Finished {took}: nothing saved was lost, and not a bit differs.", style=GREEN)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
