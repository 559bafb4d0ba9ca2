"""Deaths that are planned beforehand: in which attempt, at what moment, in what way, who.

It runs inside workers and drivers. A plan is a list with a death for each attempt, so that an
attempt dies once; attempts are numbered from 1 and no number comes twice, whatever dies.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from holdfast.train import Checkpoint, get_context
from tests.integration.train.loops import functions_of, is_running, note, read_notes, wait_for

MIB = 1 << 20


# ---------------------------------------------------------------------- ways and moments


WAYS: dict[str, Callable[[], object]] = {
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGSEGV": lambda: ctypes.string_at(0),
    "os._exit(0)": lambda: os._exit(0),
    "sys.exit(0)": lambda: sys.exit(0),
    "MemoryError": lambda: bytearray(1 << 62),
}


def _eat(bite: int = 16 * MIB) -> NoReturn:
    """Use memory until somebody ends it: the kernel, or Python because it gets no more."""
    eaten = []
    while True:
        try:
            eaten.append(bytearray(b"\1" * bite))
        except MemoryError:
            if bite < 4096:
                raise
            bite //= 2  # to the last crumb


def _eat_with_torch() -> NoReturn:
    import torch

    eaten = []
    while True:
        eaten.append(torch.ones(MIB))


def _limited(eat: Callable[[], NoReturn]) -> Callable[[], NoReturn]:
    """Return what eats all that a process may have, which is not much more than it has."""

    def eat_up() -> NoReturn:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + 128 * MIB
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
        eat()

    return eat_up


MEMORY_WAYS: dict[str, Callable[[], object]] = {
    "eats": _eat,
    "eats what it may": _limited(_eat),
    "eats what it may with torch": _limited(_eat_with_torch),
}

# What the card of the loss says of each.
SAID = {
    "SIGKILL": "killed by SIGKILL",
    "SIGSEGV": "killed by SIGSEGV",
    "os._exit(0)": "exited with code 0",
    "sys.exit(0)": "raised SystemExit",
    "MemoryError": "raised MemoryError",
}

SETUP = "before its function"
LAUNCH = "at launch"
BEFORE = "before report"
INTO = "in report, before its files are taken"
OUT = "in report, when its files are taken"
WAITING = "in report, while it waits"
AFTER = "right after report"
MOMENTS = (SETUP, LAUNCH, BEFORE, INTO, WAITING, OUT, AFTER)
RAISES = ("sys.exit(0)", "MemoryError")


@dataclass(frozen=True)
class Death:
    """How an attempt is to be lost.

    Attributes:
        lead: How many steps the attempt makes before the one it dies in.
    """

    way: str
    moment: str
    ranks: tuple[int, ...]
    lead: int = 0

    def to_data(self) -> list[Any]:
        return [self.way, self.moment, list(self.ranks), self.lead]


SPARED = Death("", "never", ())


def campaign_of(ranks: Sequence[tuple[int, ...]]) -> list[Death]:
    """Return every way at every moment, the ranks that die taking turns.

    Only a function that does not wait can raise.
    """
    kinds = [
        (way, moment)
        for moment in MOMENTS
        for way in WAYS
        if not (moment == WAITING and way in RAISES)
    ]
    return [
        Death(way, moment, ranks[index % len(ranks)], lead=index % 3)
        for index, (way, moment) in enumerate(kinds)
    ]


# ---------------------------------------------------------------------- in a worker


class Doom:
    """What is to befall one worker in its attempt.

    Args:
        plan: The deaths, as data, one for each attempt.
        notes: Where to note a death before it comes.
    """

    def __init__(self, plan: Sequence[Sequence[Any]], notes: Path, rank: int) -> None:
        self._notes, self._rank = notes, rank
        self._attempt = attempt_here()
        self._steps = -1
        self._is_watched = False
        self._death: Death | None = None
        if self._attempt <= len(plan):
            way, moment, ranks, lead = plan[self._attempt - 1]
            if rank in ranks:
                self._death = Death(way, moment, tuple(ranks), lead)

    def begins(self, step: int) -> None:
        """Note the step that this worker goes on from, and who of earlier attempts lives still."""
        others = [one for one in read_notes(self._notes, "began") if one["attempt"] < self._attempt]
        note(
            self._notes,
            what="began",
            attempt=self._attempt,
            rank=self._rank,
            node=get_context().get_node_rank(),
            step=step,
            pid=os.getpid(),
            alive=[one["pid"] for one in others if is_running(one["pid"])],
        )

    def next_step(self) -> None:
        self._steps += 1

    def strikes(self, moment: str) -> None:
        """Die if it is time. Ranks that die together wait for each other."""
        death = self._death
        if death is None or not self._is_due(moment):
            return
        facts = {"attempt": self._attempt, "rank": self._rank}
        note(self._notes, what="dies", way=death.way, moment=moment, **facts)
        self._mark(self._rank).touch()
        for rank in death.ranks:
            wait_for(self._mark(rank))
        {**WAYS, **MEMORY_WAYS}[death.way]()
        signal.pause()  # a signal may come a moment late

    def _is_due(self, moment: str) -> bool:
        death = self._death
        if death is None or death.moment != moment:
            return False
        return moment in (SETUP, LAUNCH) or self._steps >= death.lead

    def checkpoint(self, folder: str) -> Checkpoint:
        """Return the checkpoint in a folder, during whose report the worker may die."""
        made = _Perilous(folder)
        made.doom = self
        if self._is_due(WAITING) and not self._is_watched:
            self._is_watched = True
            threading.Thread(target=self._strike_when_waiting, daemon=True).start()
        return made

    def _strike_when_waiting(self) -> None:
        waits = False
        while not waits:
            stack = functions_of(threading.main_thread().ident or 0)
            waits = stack[0] == "wait" and "report" in stack
        self.strikes(WAITING)

    def _mark(self, rank: int) -> Path:
        return self._notes.with_name(f"dying-{self._attempt}-{rank}")


class _Perilous(Checkpoint):
    doom: Doom

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        self.doom.strikes(INTO)
        with super().as_directory() as folder:
            yield folder
        self.doom.strikes(OUT)


def attempt_here() -> int:
    """Return the number of the attempt that this worker is of: its log is named for it."""
    log = os.readlink("/proc/self/fd/1")
    found = re.search(r"/attempt-(\d+)/rank-\d+\.log$", log)
    assert found is not None, f"a worker prints to {log}"
    return int(found[1])


# ---------------------------------------------------------------------- in a driver

# What a driver asks of the system when it is about to change or to read something, to start or to
# tell somebody. Imports are not among them: a driver that has done nothing can lose nothing.
_DEEDS = ("os.", "open", "socket.", "fcntl.", "shutil.", "signal.", "subprocess.")


def die_at_deed(number: int) -> None:
    """Have this process, but none that it forks, killed just before what it does as `number`th.

    With 0 it only counts, for `deeds_done`.
    """
    driver, done = os.getpid(), 0

    def watch(event: str, _: object) -> None:
        nonlocal done
        if not event.startswith(_DEEDS) or os.getpid() != driver:
            return
        done += 1
        _done[0] = done
        if done == number:
            os.kill(driver, signal.SIGKILL)
            signal.pause()

    sys.addaudithook(watch)


_done = [0]


def deeds_done() -> int:
    """Return how much this process has done since `die_at_deed`."""
    return _done[0]
