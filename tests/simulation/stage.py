"""One at a time: threads that take turns in an order a seed decides, with a clock of their own.

Every actor is a real thread, but only the one that holds the baton runs. It holds it until it has
to wait; then whoever waits passes the baton on, to the next that can go on, or lets time pass until
somebody can. So the order of everything is decided by the times things take, and those by a seed.

Actors belong to processes, which can be killed: from then on nothing they do has an effect, and
their threads unwind as soon as they get the baton.
"""

from __future__ import annotations

import heapq
import itertools
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable
from functools import partial

Work = Callable[[], None]


class Killed(BaseException):
    """The process of this actor has ended; no Exception, so that no code under test survives it."""


class Stuck(Exception):
    """Nothing can happen any more, or not within the time there is; says who waits for what."""


class Process:
    """Actors that end together.

    Attributes:
        owner: Whatever the process stands for.
        thaws: Until when it is frozen: its actors get no turn before.
    """

    def __init__(self, name: str, owner: object = None) -> None:
        self.name, self.owner = name, owner
        self.is_dead = False
        self.thaws = 0.0
        self.actors: list[Actor] = []

    def __repr__(self) -> str:
        return self.name


class Actor:
    """A simulated thread; made by `Stage.start`."""

    __slots__ = (
        "baton",
        "is_over",
        "is_waiting",
        "joined",
        "name",
        "process",
        "thread",
        "turn",
        "why",
        "woken",
    )

    def __init__(self, process: Process, name: str, player: _Player) -> None:
        self.process, self.name = process, name
        self.baton, self.thread = player.baton, player.ident
        self.turn = 0  # counts its waits, so that an alarm of an earlier one is known for it
        self.is_waiting = self.woken = self.is_over = False
        self.why = "its first turn"
        self.joined: list[Actor] = []  # who waits for its end

    def __str__(self) -> str:
        return self.name if self.name == self.process.name else f"{self.name} of {self.process}"


class _Player(threading.Thread):
    """A real thread that plays one actor after the other."""

    def __init__(self) -> None:
        super().__init__(name="simulated", daemon=True)
        self.baton = threading.Lock()
        self.baton.acquire()
        self.part: Work | None = None

    def run(self) -> None:
        while True:
            self.baton.acquire()
            part, self.part = self.part, None
            assert part is not None
            part()


_idle: list[_Player] = []
_here = threading.local()


def stage_here() -> Stage | None:
    """Return the stage whose actor the calling thread plays, None outside a simulation."""
    found: Stage | None = getattr(_here, "stage", None)
    return found


class Stage:
    """Where actors take turns.

    Attributes:
        now: How many seconds have passed.
        current: The actor that has the baton, None while none has.
        ends: When the time is up.
        turns: How often the baton was passed on; a play that takes too many is stuck.
    """

    def __init__(self, ends: float, turns_max: int = 5_000_000) -> None:
        self.now, self.ends = 0.0, ends
        self._turns_max = turns_max
        self.current: Actor | None = None
        self._agenda: list[tuple[float, int, Work]] = []
        self._numbers = itertools.count()
        self._ready: deque[Actor] = deque()
        self._processes: list[Process] = []
        self._main = threading.Lock()
        self._main.acquire()
        self._root: Actor | None = None
        self._failure: BaseException | None = None
        self._is_closing = False
        self.turns = 0

    # ------------------------------------------------------------------ from outside

    def play(self, name: str, work: Work) -> None:
        """Let `work` be an actor, and return when it is over; whoever is left is killed then.

        Raises what `fail` was told, or `Stuck`.
        """
        self._root = self.start(Process(name), name, work)
        try:
            self._run_others()
        finally:
            self._is_closing = True
            for process in list(self._processes):
                self.kill(process)
            while self._ready:
                self._run_others()
        if self._failure is not None:
            raise self._failure

    def _run_others(self) -> None:
        chosen = self._choose()
        if chosen is not None:
            self.current = chosen
            chosen.baton.release()
            self._main.acquire()
        self.current = None

    def fail(self, error: BaseException) -> None:
        """End the play with `error`, at the latest when the baton is passed on."""
        if self._failure is None:
            self._failure = error

    # ------------------------------------------------------------------ actors

    def start(self, process: Process, name: str, work: Work) -> Actor:
        """Begin an actor; it gets its first turn when others wait."""
        player = _idle.pop() if _idle else _Player()
        if not player.is_alive():
            player.start()
        actor = Actor(process, name, player)
        if not process.actors and process not in self._processes:
            self._processes.append(process)
        process.actors.append(actor)
        player.part = partial(self._perform, player, actor, work)
        self._ready.append(actor)
        return actor

    def _perform(self, player: _Player, actor: Actor, work: Work) -> None:
        _here.stage = self
        try:
            if not actor.process.is_dead:
                work()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001  # the play is over, and raises it
            self.fail(error)
        _here.stage = None
        actor.is_over = True
        actor.process.actors.remove(actor)
        if not actor.process.actors:
            self._processes.remove(actor.process)
        for other in actor.joined:
            self.wake(other)
        _idle.append(player)
        self._hand_over(self._choose())

    def _hand_over(self, chosen: Actor | None) -> None:
        self.current = chosen
        (self._main if chosen is None else chosen.baton).release()

    def _choose(self) -> Actor | None:
        """Return who is next, letting time pass until somebody is; None for who called `play`."""
        self.turns += 1
        if self.turns > self._turns_max:
            self._fail_stuck(f"{self._turns_max} turns are taken")
        while True:
            if not self._is_closing and (self._failure or (self._root and self._root.is_over)):
                return None
            if self._ready:
                actor = self._ready.popleft()
                if actor.process.thaws <= self.now or actor.process.is_dead:
                    return actor
                self.at(actor.process.thaws, partial(self._ready.append, actor))
            elif self._is_closing:
                return None
            else:
                self._let_time_pass()

    def _let_time_pass(self) -> None:
        if not self._agenda or self._agenda[0][0] > self.ends:
            self._fail_stuck("the time is up" if self._agenda else "nothing can happen any more")
            return
        self.now, _, do = heapq.heappop(self._agenda)
        try:
            do()
        except BaseException as error:  # noqa: BLE001  # the play is over, and raises it
            self.fail(error)

    def _fail_stuck(self, why: str) -> None:
        self.fail(Stuck(f"{why} after {self.now:.1f} s: {'; '.join(self.who_waits())}"))

    def who_waits(self) -> list[str]:
        """Return who waits for what, one line each."""
        actors = [actor for process in self._processes for actor in process.actors]
        return [f"{actor} waits for {actor.why}" for actor in actors if actor.is_waiting]

    def stacks_of(self, process: Process) -> str:
        """Return where the actors of a process are, innermost call last."""
        frames = sys._current_frames()  # noqa: SLF001  # there is no public one
        threads = [
            (actor.name, frames[actor.thread]) for actor in process.actors if actor.thread in frames
        ]
        return "\n".join(
            "".join([f"{name}:\n", *traceback.format_stack(frame)]) for name, frame in threads
        )

    # ------------------------------------------------------------------ waiting

    def check(self) -> None:
        """Raise `Killed` if the process of the current actor has ended."""
        if self.current is not None and self.current.process.is_dead:
            raise Killed

    def wait(self, why: str, timeout_s: float | None = None) -> bool:
        """Let others go on until somebody calls `wake`; return whether that came in time."""
        me = self.current
        assert me is not None, "only actors wait"
        if me.process.is_dead:
            raise Killed
        me.turn += 1
        me.is_waiting, me.woken, me.why = True, False, why
        if timeout_s is not None:
            self.at(self.now + timeout_s, partial(self._alarm, me, me.turn))
        chosen = self._choose()
        if chosen is not me:
            self._hand_over(chosen)
            me.baton.acquire()
        if me.process.is_dead:
            raise Killed
        return me.woken

    def _alarm(self, actor: Actor, turn: int) -> None:
        if actor.is_waiting and actor.turn == turn:
            actor.is_waiting = False
            self._ready.append(actor)

    def wake(self, actor: Actor) -> None:
        """Let an actor go on that waits; one that does not is not affected."""
        if actor.is_waiting:
            actor.is_waiting, actor.woken = False, True
            self._ready.append(actor)

    def sleep(self, seconds: float, why: str = "time to pass") -> None:
        """Let `seconds` pass for the current actor."""
        self.check()
        if seconds > 0:
            self.wait(why, seconds)

    def join(self, actor: Actor, timeout_s: float | None = None) -> None:
        """Wait for an actor's end."""
        if not actor.is_over and self.current is not None:
            actor.joined.append(self.current)
            self.wait(f"the end of {actor}", timeout_s)

    # ------------------------------------------------------------------ what happens by itself

    def at(self, when: float, do: Work) -> None:
        """Have something happen at a time; it must not wait."""
        heapq.heappush(self._agenda, (when, next(self._numbers), do))

    def after(self, seconds: float, do: Work) -> None:
        """Have something happen after a while; it must not wait."""
        self.at(self.now + seconds, do)

    # ------------------------------------------------------------------ the end of processes

    def kill(self, process: Process) -> None:
        """End a process: nothing of it has an effect from here on.

        If the current actor is one of its, `check` is to be called next.
        """
        process.is_dead = True
        for actor in process.actors:
            if actor.is_waiting:
                actor.is_waiting = False
                self._ready.append(actor)

    def freeze(self, process: Process, seconds: float) -> None:
        """Give the actors of a process no turn for a while."""
        process.thaws = max(process.thaws, self.now + seconds)
