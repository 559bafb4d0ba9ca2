"""Kill a worker of a training run, then its driver, and see what that cost.

    python examples/demo.py                what `make demo` does, in less than a minute
    python examples/demo.py --keep runs    and the runs stay in a folder, for `holdfast show`

The run is `train_through_kills.py`, which knows nothing of all this: it is launched as anybody
would, processes of it are killed, and the same command is given again. Then the same is trained
undisturbed, to compare the weights.
"""

from __future__ import annotations

import argparse
import io
import os
import queue
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
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
        number: They are counted from 1.
        after: The step that it began after.
        reached: The last step it did.
        end: How it ended.
        ended: When, if we ended it.
        back_ms: How long that was before the next attempt had done its first step.
    """

    number: int
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
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONIOENCODING": "utf-8"},
            encoding="utf-8",
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

    def wait(self) -> int:
        return self._process.wait()

    def kill(self) -> None:
        self._process.kill()


class Chaos:
    """Trains in `folder`, and kills rank 1 and then the driver on the way.

    Args:
        kills: The step at which each of the two happens; none for a run that is left alone.
    """

    def __init__(self, folder: Path, name: str, options: Sequence[str], kills: list[int]) -> None:
        self._run = folder / name
        self._command = [sys.executable, str(TRAINING), str(folder), "--name", name, *options]
        self._kills = kills
        self._card: list[str] = []
        self._said: deque[str] = deque(maxlen=40)
        self.attempts: list[Attempt] = []
        self.weights = ""

    def train(self, *, is_shown: bool = True) -> None:
        """Give the command, and again if the driver was killed, until it is finished."""
        while not self.weights:
            if is_shown:
                shown = ["python", os.path.relpath(TRAINING), *self._command[2:]]
                say("", *wrapped(f"$ {shlex.join(shown)}", 4), style=BOLD)
            driver = Driver(self._command)
            try:
                for moment, line in driver.lines():
                    self._said.append(line)
                    if is_shown:
                        self._show(line)
                    if found := STEP.match(line):
                        self._note(int(found[1]), int(found[3]), moment)
                        self._kill(driver)
                    self.weights = line.partition("the weights are ")[2] or self.weights
                code = driver.wait()
            finally:
                driver.kill()  # if somebody has interrupted us
            if code not in (0, -signal.SIGKILL):
                sys.exit("\n".join([*self._said, "", f"The run failed, with exit code {code}."]))

    def _note(self, number: int, step: int, moment: float) -> None:
        before = self.attempts[-1] if self.attempts else None
        if before is None or before.number != number:
            if before is not None and before.ended is not None:
                before.back_ms = (moment - before.ended) * 1000
            self.attempts.append(Attempt(number, step - 1, step))
        self.attempts[-1].reached = step

    def _kill(self, driver: Driver) -> None:
        now = self.attempts[-1]
        if not self._kills or now.reached < self._kills[0] or now.ended is not None:
            return
        self._kills.pop(0)
        whom, pid = "driver", driver.pid
        if self._kills:  # the last one is the driver's
            log = self._run / "logs" / f"attempt-{now.number}" / "rank-1.log"
            whom, pid = "rank 1", int(log.read_text().split()[1])
        os.kill(pid, signal.SIGKILL)
        now.ended, now.end = time.monotonic(), f"{whom} killed"
        say("", f"kill -9 {pid}   # {whom}, after step {now.reached}", style=RED)

    def _show(self, line: str) -> None:
        """Show what is worth it: epochs that are saved, and what Holdfast has to say."""
        if found := STEP.match(line):
            if found[5]:
                say(f"  epoch {found[2]}  loss {found[4]:<7} saved")
        elif line.startswith("holdfast: "):
            say(*wrapped(line, 2), style=DIM)
        elif line.startswith("── ") or self._card:
            self._card.append(line)
            if line.startswith("  next "):
                say(*rewrapped(self._card), style=DIM)
                self._card = []


# ---------------------------------------------------------------------- what happened


def picture(attempts: Sequence[Attempt], steps: int, epoch: int) -> list[str]:
    """Return a bar for each attempt, from the step it began after to the one where it ended."""
    kept, lost, died = "█░✖" if can_print("█░✖") else "=.x"

    def column(step: int) -> int:
        return step if steps <= BAR_COLUMNS else step * BAR_COLUMNS // steps

    lines = [f"  {'':<9}  {kept} saved   {lost} lost, and done again   {died} killed"]
    for one, then in zip_longest(attempts, attempts[1:]):
        saved = then.after if then else one.reached
        bar = " " * column(one.after) + kept * (column(saved) - column(one.after))
        bar += lost * (column(one.reached) - column(saved)) + died * (one.ended is not None)
        lines.append(f"  attempt {one.number}  {bar}")
    scale = ""
    for step in range(0, steps + 1, epoch):
        if not scale or column(step) > len(scale):
            scale = scale.ljust(column(step)) + str(step)
    return [*lines, f"  {'step':<9}  {scale}"]


def table(attempts: Sequence[Attempt]) -> list[str]:
    """Return a line for each attempt: how it ended, where, what was lost, how soon it went on."""
    lines = ["             ended by        at step  lost     first step again after"]
    for one, then in zip_longest(attempts, attempts[1:]):
        line = f"  attempt {one.number}  {one.end:<14}  {one.reached:<7}"
        if then is not None:
            lost = one.reached - then.after
            line += f"  {lost} step{'s' * (lost != 1):<2}  {one.back_ms:>6,.0f} ms"
            line += " *" if one.end.startswith("driver") else ""
        lines.append(line.rstrip())
    return [*lines, "             * with the time in which a new Python imports torch"]


# ---------------------------------------------------------------------- printing


BOLD, DIM, RED, GREEN = "1", "2", "31", "32"


def say(*lines: str, style: str = "") -> None:
    """Print; with colours only where somebody looks at a terminal."""
    is_plain = not style or not sys.stdout.isatty() or "NO_COLOR" in os.environ
    for line in lines:
        print(line if is_plain or not line else f"\x1b[{style}m{line}\x1b[0m", flush=True)


def wrapped(line: str, indent: int) -> list[str]:
    """Return a line as several that fit; what can only be copied whole is not broken."""
    return textwrap.wrap(
        line,
        COLUMNS,
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
        break_long_words=False,
    ) or [""]


def rewrapped(card: Sequence[str]) -> list[str]:
    """Return a failure card, which is made for wider screens, with lines that fit."""
    paragraphs: list[str] = []
    for line in card:
        if line.startswith(" " * 8) and paragraphs:
            paragraphs[-1] += f" {line.strip()}"
        else:
            paragraphs.append(line)
    return [line for one in paragraphs for line in wrapped(one, 11)]


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
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    with tempfile.TemporaryDirectory(prefix="holdfast-") as temporary:
        play(Path(chosen.keep or temporary), chosen.epochs, chosen.steps)
    if chosen.keep:
        say(f"  Try: holdfast show {chosen.keep}/demo")


def play(folder: Path, epochs: int, steps: int) -> None:
    """Train twice, disturbed and undisturbed, and say what came of it."""
    size = ["--epochs", str(epochs), "--steps", str(steps)]
    kills = [epochs // 3 * steps + steps // 2, 2 * epochs // 3 * steps + steps // 2 + 1]
    say(f"Two workers train {epochs} epochs of {steps} steps, and save after each epoch.")
    began = time.monotonic()
    disturbed = Chaos(folder, "demo", size, kills)
    disturbed.train()
    say("", "What happened", style=BOLD)
    say(*picture(disturbed.attempts, epochs * steps, steps), "", *table(disturbed.attempts))
    undisturbed = Chaos(folder, "undisturbed", [*size, "--pace", "0"], [])
    undisturbed.train(is_shown=False)
    took_s = time.monotonic() - began
    say("", f"  weights    {disturbed.weights[:16]}… after two kills")
    say(f"             {undisturbed.weights[:16]}… of the same training, undisturbed")
    if disturbed.weights != undisturbed.weights:
        sys.exit("The weights differ, which is a bug of ours.")
    say("", f"Finished in {took_s:.0f} s: nothing saved was lost, not a bit differs.", style=GREEN)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
