"""What a seed means: a program, a cluster, a store and a driver, and everything that goes wrong.

A story is data, drawn before anything happens, so that it can be printed, and told again without
some of its faults. Times that the run waits for something are long enough for everything in the
story that is merely slow: whoever is called hung or late was.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from holdfast.core.checkpoint.retention import Retention


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What the simulated workers do.

    Attributes:
        steps: How many steps make a run; each makes one report.
        step_s: How long a step takes, about.
        save_every: Every how many steps a checkpoint is saved.
        mode: When its files reach storage: "now", "later", "mixed", or "already", by the program.
        savers: Which ranks have a part: "all", the "first", or "some", every other one.
        shares_name: Whether all ranks save under one name, so that the lowest one's file counts.
        moves: Whether the folders saved from are handed over.
        names: Whether the program names its checkpoints.
        lists: Whether rank 0 asks in the end which checkpoints there are.
        is_tolerant: Whether it goes on when a checkpoint could not be saved.
        on_notice: What it does when machines leave: "ignore" it, "save", save and "leave", or
            "flee" without having saved.
        validates: Whether checkpoints are validated.
    """

    steps: int
    step_s: float
    save_every: int
    mode: str
    savers: str
    shares_name: bool
    moves: bool
    names: bool
    lists: bool
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
        is_local: Whether the run is on a disk, not on an object store.
        store_s: How long an operation of the store takes at most, if it takes any time.
        retry_s: How long a store that is busy is tried again.
        orphans_s: How long workers may live on when their driver was killed.
        pause_s: After how long a driver that has ended is started again.
        compacts_after: How many segments of the journal are too many.
        repeats: Whether the last messages of a group come again while the next one runs.
        lease_s: How long a lease lasts that is not renewed.
        tick_s: How often the driver looks at the time.
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
    is_local: bool
    store_s: float
    retry_s: float
    orphans_s: float
    pause_s: float
    compacts_after: int
    repeats: bool
    lease_s: float
    tick_s: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong, once.

    Attributes:
        when: What it waits for: "time", "step", "operation", "start".
        at: Which time, step, operation of the store, or start of a group.
        rank: Of a worker, or which of the nodes there are.
        length_s: How long it lasts, or until when somebody is warned of it.
    """

    kind: str
    when: str
    at: float
    rank: int = 0
    length_s: float = 0.0

    def __str__(self) -> str:
        lasts = f" for {self.length_s:g} s" if self.length_s else ""
        return f"{self.kind} at {self.when} {self.at:g}{lasts} ({self.rank})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Everything a seed decides before the run begins.

    Attributes:
        ends_s: When it is certain that the run will never be over.
    """

    seed: int
    program: Program
    setting: Setting
    faults: tuple[Fault, ...]
    ends_s: float = 6 * 3600.0

    @property
    def has_extra_reports(self) -> bool:
        """Whether a rank may have made more reports than steps."""
        return any(fault.kind == "extra" for fault in self.faults)

    def without(self, numbers: Sequence[int]) -> Story:
        """Return the same story without some of its faults, counted from 1."""
        kept = [one for number, one in enumerate(self.faults, 1) if number not in numbers]
        return replace(self, faults=tuple(kept))

    def lines(self, without: Sequence[int] = ()) -> list[str]:
        """Return the story for people, told without some of its faults."""
        told = [_told(self.program), _told(self.setting)]
        kept = [(n, one) for n, one in enumerate(self.faults, 1) if n not in without]
        return [*told, *(f"fault {number}: {one}" for number, one in kept)]


def _told(thing: Program | Setting) -> str:
    facts = ", ".join(f"{one.name}={getattr(thing, one.name)}" for one in fields(thing))
    return f"{type(thing).__name__.lower()}: {facts}"


# ---------------------------------------------------------------------- drawing

_STEP_KINDS = {
    "raise": 5, "die": 5, "hang": 2, "slow": 2, "return": 1, "stuck": 2, "slow store": 1,
    "unsavable": 1,
}  # fmt: skip
_TIME_KINDS = {
    "node lost": 3, "node drains": 8, "node joins": 3, "worker killed": 3, "worker warned": 1,
    "driver killed": 5, "notice": 5, "stop": 2, "outage": 2, "freeze": 1, "replaced": 3, "rival": 2,
    "damage": 1,
}  # fmt: skip
_OPERATION_KINDS = {
    "busy": 2, "answer lost": 2, "error": 2, "error after": 1, "slow": 1, "killed before": 5,
    "killed after": 5,
}  # fmt: skip


_SLOW = ("slow", "outage", "freeze", "replaced")


def _one_of(dice: random.Random, kinds: Mapping[str, int]) -> str:
    return dice.choices([*kinds], [*kinds.values()])[0]


def draw(seed: int) -> Story:
    """Return the story of a seed."""
    dice = random.Random(f"holdfast story {seed}")
    program = _program(dice)
    faults = _faults(dice, program)
    if dice.random() < 0.2:
        faults.append(Fault(kind="node joins", when="time", at=dice.uniform(0, 5)))
    if program.on_notice in ("leave", "flee"):  # which is right only where all of them must go
        faults = [one for one in faults if one.kind not in ("node drains", "worker warned")]
    setting = _setting(dice, program, faults)
    faults += _extra_reports(seed, program)
    return Story(seed=seed, program=program, setting=setting, faults=tuple(faults))


def _extra_reports(seed: int, program: Program) -> list[Fault]:
    """Return reports that only one rank makes, drawn apart: they leave all other draws alone.

    A program that puts its parts to storage by itself names their folders, and could mix them.
    """
    if program.mode == "already":
        return []
    dice = random.Random(f"holdfast extra reports {seed}")
    count = dice.choices([0, 1, 2], [8, 2, 1])[0]
    return [
        Fault(kind="extra", when="step", at=dice.randint(1, program.steps), rank=dice.randint(0, 3))
        for _ in range(count)
    ]


def _program(dice: random.Random) -> Program:
    return Program(
        steps=dice.randint(3, 8),
        step_s=dice.choices([0.02, 0.2, 0.5, 1.0, 2.0, 6.0], [2, 4, 4, 4, 2, 1])[0],
        save_every=dice.choice([1, 1, 2, 2, 3, 4]),
        mode=dice.choices(["now", "later", "mixed", "already"], [8, 5, 5, 2])[0],
        savers=dice.choice(["all", "all", "first", "some"]),
        shares_name=dice.random() < 0.15,
        moves=dice.random() < 0.5,
        names=dice.random() < 0.15,
        lists=dice.random() < 0.3,
        is_tolerant=dice.random() < 0.7,
        on_notice=dice.choices(["ignore", "save", "leave", "flee"], [4, 3, 1, 1])[0],
        validates=dice.random() < 0.15,
    )


def _setting(dice: random.Random, program: Program, faults: Sequence[Fault]) -> Setting:
    workers = dice.choice([1, 1, 2, 2, 2, 2, 3, 4])
    room = dice.choice([1, 1, 2, 4])
    fewest = dice.choice([workers, dice.randint(1, workers)])
    needed = -(-dice.choice([fewest, workers]) // room)
    slow_s = sum(one.length_s for one in faults if one.kind in _SLOW)
    storing_s = sum(one.length_s for one in faults if one.kind == "slow store")
    retry_s = dice.choice([0.5, 20.0, 120.0])
    patience_s = 20.0 + 4 * program.step_s + 2 * slow_s
    drift_s = 2 * program.steps * program.step_s
    # What was not seen to work for a while is never called hung, if no time is given.
    hangs = any(one.kind in ("hang", "stuck") for one in faults)
    learns = dice.random() < 0.3 and not hangs
    return Setting(
        workers=workers,
        workers_min=fewest,
        nodes=needed + dice.choice([0, 0, 1]),
        room=room,
        retention=Retention(
            keep=dice.choice([None, 1, 1, 2, 3]),
            score=dice.choice([None, None, "loss"]),
            highest_first=dice.random() < 0.5,
        ),
        failures=dice.choice([None, 0, 0, 1, 1, 2, 3]),
        preemptions=dice.choice([None, None, None, 1]),
        starts=dice.choice([None, None, 1]),
        hang_timeout_s=None if learns else patience_s + dice.choice([0.0, 30.0]),
        late_after_s=patience_s + drift_s + storing_s + dice.choice([0.0, 30.0]),
        notice_s=dice.choice([5.0, 25.0]),
        resize_after_s=dice.choice([5.0, 60.0]),
        message_s=dice.choice([0.001, 0.01, 0.1, 0.5]),
        is_local=(is_local := dice.random() < 0.2),
        store_s=0.0 if is_local else dice.choice([0.0, 0.0, 0.01, 0.2]),
        retry_s=retry_s,
        orphans_s=dice.choice([0.0, 0.5, 3.0]),
        pause_s=dice.choice([0.1, 5.0, 40.0]),
        compacts_after=dice.choice([8, 30, 64]),
        repeats=dice.random() < 0.5,
        lease_s=dice.choice([6.0, 30.0, 30.0]),
    )


def _faults(dice: random.Random, program: Program) -> list[Fault]:
    count = dice.choice([0, 1, 1, 1, 2, 2, 2, 3, 3, 4, 6])
    lasts_s = program.steps * program.step_s * 1.5 + 2.0
    draws: list[Callable[[], Fault]] = [
        lambda: _step_fault(dice, program),
        lambda: _time_fault(dice, lasts_s),
        lambda: _operation_fault(dice),
        lambda: Fault(kind="refused", when="start", at=dice.randint(1, 3)),
    ]
    weights = [8, 9, 6, 1]
    return [chosen() for chosen in dice.choices(draws, weights, k=count)]


def _step_fault(dice: random.Random, program: Program) -> Fault:
    kind = _one_of(dice, _STEP_KINDS)
    length_s = {"slow": dice.uniform(1, 15), "slow store": 150.0}.get(kind, 0.0)
    at = dice.randint(1, program.steps)
    return Fault(kind=kind, when="step", at=at, rank=dice.randint(0, 3), length_s=length_s)


def _time_fault(dice: random.Random, lasts_s: float) -> Fault:
    kind = _one_of(dice, _TIME_KINDS)
    at = dice.choice([dice.uniform(0, lasts_s), dice.uniform(0, 3 * lasts_s)])
    length_s = 0.0
    if kind in ("node lost", "node drains", "notice"):
        length_s = dice.choice([0.5, 3.0, 30.0])
    elif kind == "outage":
        length_s = dice.choice([0.3, 5.0, 40.0])
    elif kind == "freeze":
        length_s = dice.choice([4.0, 20.0, 90.0])
    elif kind == "replaced":
        length_s = 90.0
    return Fault(kind=kind, when="time", at=at, rank=dice.randint(0, 3), length_s=length_s)


def _operation_fault(dice: random.Random) -> Fault:
    kind = _one_of(dice, _OPERATION_KINDS)
    at = dice.choice([dice.randint(1, 40), dice.randint(1, 300)])
    length_s = dice.choice([0.5, 8.0]) if kind == "slow" else 0.0
    return Fault(kind=kind, when="operation", at=at, length_s=length_s)


# ---------------------------------------------------------------------- larger ones


def draw_wide(seed: int, workers: int) -> Story:
    """Return a story with many workers on many nodes, and a fault for every eighth of them."""
    dice = random.Random(f"holdfast wide story {seed}")
    program = replace(_program(dice), steps=10, step_s=1.0, save_every=2, validates=False)
    faults = []
    for _ in range(workers // 8):
        fault = dice.choice([_step_fault(dice, program), _time_fault(dice, 30.0)])
        faults.append(replace(fault, rank=dice.randrange(workers)))
    program = replace(program, on_notice="save")
    setting = _setting(dice, program, faults)
    room = 4
    setting = replace(
        setting, workers=workers, workers_min=workers // 2, nodes=workers // room, room=room
    )
    return Story(seed=seed, program=program, setting=setting, faults=tuple(faults))


def draw_long(seed: int, failures: int, days: float) -> Story:
    """Return a story that lasts for days, in which something fails about as often as said."""
    dice = random.Random(f"holdfast long story {seed}")
    steps = 200
    lasts_s = days * 86400.0
    program = replace(_program(dice), steps=steps, save_every=2, validates=False, on_notice="save")
    program = replace(program, step_s=lasts_s / steps / 2)
    kinds = ("raise", "die", "worker killed", "driver killed", "node lost", "node drains", "notice")
    faults = []
    for _ in range(failures):
        kind = dice.choices(kinds, [30, 30, 20, 3, 10, 5, 2])[0]
        is_step = kind in _STEP_KINDS
        at = float(dice.randint(1, steps)) if is_step else dice.uniform(0, lasts_s)
        when = "step" if is_step else "time"
        faults.append(
            Fault(
                kind=kind, when=when, at=at, rank=dice.randrange(4), length_s=dice.uniform(1, 600)
            )
        )
    setting = replace(
        _setting(dice, program, faults),
        workers=4,
        workers_min=2,
        nodes=4,
        room=1,
        failures=None,
        preemptions=None,
        starts=None,
        is_local=False,
        store_s=0.0,
        hang_timeout_s=None,
        resize_after_s=600.0,
        late_after_s=lasts_s,
        tick_s=120.0,
        lease_s=3600.0,
    )
    return Story(
        seed=seed, program=program, setting=setting, faults=tuple(faults), ends_s=100 * lasts_s
    )
