"""What a seed means: a program, a cluster, a store and a driver, and everything that goes wrong.

A story is data, drawn before anything happens, so that it can be printed, and told again without
some of its faults. Times that the run waits for something are long enough for everything in the
story that is merely slow: whoever is called hung or late was.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

from holdfast.core.retention import Retention


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What the simulated workers do.

    Attributes:
        steps: How many steps make a run; each makes one report.
        step_s: How long a step takes, about.
        save_every: Every how many steps a checkpoint is saved.
        mode: When its files reach storage: "now", "later", or "mixed".
        savers: Which ranks have a part: "all", "first", "some".
        shares_name: Whether all ranks save under one name, so that the lowest one's file counts.
        moves: Whether the folders saved from are handed over.
        is_tolerant: Whether it goes on when a checkpoint could not be saved.
        on_notice: What it does when machines leave: "ignore", "save", "leave".
        validates: Whether checkpoints are validated.
    """

    steps: int
    step_s: float
    save_every: int
    mode: str
    savers: str
    shares_name: bool
    moves: bool
    is_tolerant: bool
    on_notice: str
    validates: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where and how the run takes place.

    Attributes:
        room: How many workers a node has room for.
        failures: The budgets of each launch; None for any number. So `preemptions` and `starts`.
        message_s: How long a message takes, at most.
        store_s: How long an operation of the store takes at most, if it takes any time.
        retry_s: How long a store that is busy is tried again.
        orphans_s: How long workers may live on when their driver was killed.
        pause_s: After how long a driver that has ended is started again.
        compacts_after: How many segments of the journal are too many.
    """

    workers: int
    workers_min: int
    nodes: int
    room: int
    retention: Retention
    failures: int | None
    preemptions: int | None
    starts: int | None
    hang_timeout_s: float | None
    late_after_s: float
    notice_s: float
    resize_after_s: float
    message_s: float
    store_s: float
    retry_s: float
    orphans_s: float
    pause_s: float
    compacts_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong, once.

    Attributes:
        when: What it waits for: "time", "step", "operation", "start", "message".
        at: Which time, step, operation of the store by a driver, start of a group, or message.
        rank: Of a worker, or which of the nodes there are.
        length_s: How long it lasts, or until when somebody is warned of it.
    """

    kind: str
    when: str
    at: float
    rank: int = 0
    length_s: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind} at {self.when} {self.at:g} (rank {self.rank}, {self.length_s:g} s)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Everything a seed decides before the run begins."""

    seed: int
    program: Program
    setting: Setting
    faults: tuple[Fault, ...]

    def without(self, numbers: Sequence[int]) -> Story:
        """Return the same story without some of its faults, counted from 1."""
        kept = [one for number, one in enumerate(self.faults, 1) if number not in numbers]
        return replace(self, faults=tuple(kept))

    def lines(self) -> list[str]:
        """Return the story for people."""
        told = [_told(self.program), _told(self.setting)]
        return [*told, *(f"fault {n}: {one}" for n, one in enumerate(self.faults, 1))]


def _told(thing: Program | Setting) -> str:
    facts = ", ".join(f"{one.name}={getattr(thing, one.name)}" for one in fields(thing))
    return f"{type(thing).__name__.lower()}: {facts}"


# ---------------------------------------------------------------------- drawing

_STEP_KINDS = ("raise", "die", "hang", "slow", "return", "stuck", "unsavable")
_TIME_KINDS = (
    "node lost", "node drains", "node joins", "worker killed", "driver killed", "notice", "stop",
    "outage", "freeze", "rival", "damage",
)  # fmt: skip
_OPERATION_KINDS = (
    "busy", "answer lost", "error", "error after", "slow", "killed before", "killed after",
)  # fmt: skip


def draw(seed: int) -> Story:
    """Return the story of a seed."""
    dice = random.Random(f"holdfast story {seed}")
    program = _program(dice)
    faults = _faults(dice, program)
    if program.on_notice == "leave":  # which makes sense only where the notice is for all of them
        faults = [one for one in faults if one.kind != "node drains"]
    setting = _setting(dice, program, faults)
    return Story(seed=seed, program=program, setting=setting, faults=tuple(faults))


def _program(dice: random.Random) -> Program:
    return Program(
        steps=dice.randint(3, 10),
        step_s=dice.choice([0.02, 0.2, 0.5, 1.0, 2.0]),
        save_every=dice.choice([1, 1, 2, 2, 3, 4]),
        mode=dice.choice(["now", "now", "later", "mixed"]),
        savers=dice.choice(["all", "all", "first", "some"]),
        shares_name=dice.random() < 0.15,
        moves=dice.random() < 0.5,
        is_tolerant=dice.random() < 0.7,
        on_notice=dice.choice(["ignore", "ignore", "save", "leave"]),
        validates=dice.random() < 0.15,
    )


def _setting(dice: random.Random, program: Program, faults: Sequence[Fault]) -> Setting:
    workers = dice.choice([1, 1, 2, 2, 2, 3, 3, 4])
    room = dice.choice([1, 1, 2, 4])
    needed = -(-workers // room)
    slow_s = sum(one.length_s for one in faults if one.kind in ("slow", "outage", "freeze"))
    retry_s = dice.choice([0.5, 20.0, 120.0])
    patience_s = 20.0 + 4 * program.step_s + 2 * slow_s
    drift_s = 2 * program.steps * program.step_s
    # What was not seen to work for a while is never called hung, if no time is given.
    hangs = any(one.kind in ("hang", "stuck") for one in faults)
    learns = dice.random() < 0.3 and not hangs
    return Setting(
        workers=workers,
        workers_min=dice.choice([workers, workers, dice.randint(1, workers)]),
        nodes=needed + dice.choice([0, 0, 1]),
        room=room,
        retention=Retention(
            keep=dice.choice([None, 1, 1, 2, 3]),
            score=dice.choice([None, None, "loss"]),
            highest_first=dice.random() < 0.5,
        ),
        failures=dice.choice([None, 0, 1, 1, 2, 3]),
        preemptions=dice.choice([None, None, None, 1]),
        starts=dice.choice([None, None, 1]),
        hang_timeout_s=None if learns else patience_s + dice.choice([0.0, 30.0]),
        late_after_s=(patience_s + drift_s) * dice.uniform(1, 2),
        notice_s=dice.choice([5.0, 25.0]),
        resize_after_s=dice.choice([5.0, 60.0]),
        message_s=dice.choice([0.001, 0.01, 0.1, 0.5]),
        store_s=dice.choice([0.0, 0.0, 0.01, 0.2]),
        retry_s=retry_s,
        orphans_s=dice.choice([0.0, 0.5, 3.0]),
        pause_s=dice.choice([0.1, 5.0, 40.0]),
        compacts_after=dice.choice([6, 20, 64]),
    )


def _faults(dice: random.Random, program: Program) -> list[Fault]:
    count = dice.choice([0, 1, 1, 1, 2, 2, 2, 3, 3, 4, 6])
    lasts_s = program.steps * program.step_s * 1.5 + 2.0
    draws: list[Callable[[], Fault]] = [
        lambda: _step_fault(dice, program),
        lambda: _time_fault(dice, lasts_s),
        lambda: _operation_fault(dice),
        lambda: Fault(kind="refused", when="start", at=dice.randint(1, 3)),
        lambda: Fault(kind="echo", when="message", at=dice.randint(1, 60)),
    ]
    weights = [8, 8, 6, 1, 1]
    return [chosen() for chosen in dice.choices(draws, weights, k=count)]


def _step_fault(dice: random.Random, program: Program) -> Fault:
    kind = dice.choices(_STEP_KINDS, [5, 5, 2, 2, 1, 2, 1])[0]
    return Fault(
        kind=kind,
        when="step",
        at=dice.randint(1, program.steps),
        rank=dice.randint(0, 3),
        length_s=dice.uniform(1, 15) if kind == "slow" else 0.0,
    )


def _time_fault(dice: random.Random, lasts_s: float) -> Fault:
    kind = dice.choices(_TIME_KINDS, [3, 3, 2, 3, 4, 3, 2, 2, 1, 1, 1])[0]
    at = dice.choice([dice.uniform(0, lasts_s), dice.uniform(0, 3 * lasts_s)])
    length_s = 0.0
    if kind in ("node lost", "node drains", "notice"):
        length_s = dice.choice([0.5, 3.0, 30.0])
    elif kind == "outage":
        length_s = dice.choice([0.3, 5.0, 40.0])
    elif kind == "freeze":
        length_s = dice.choice([4.0, 20.0, 90.0])
    return Fault(kind=kind, when="time", at=at, rank=dice.randint(0, 3), length_s=length_s)


def _operation_fault(dice: random.Random) -> Fault:
    kind = dice.choices(_OPERATION_KINDS, [2, 2, 2, 1, 1, 5, 5])[0]
    at = dice.choice([dice.randint(1, 40), dice.randint(1, 300)])
    length_s = dice.choice([0.5, 8.0]) if kind == "slow" else 0.0
    return Fault(kind=kind, when="operation", at=at, length_s=length_s)
