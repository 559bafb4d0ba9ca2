"""One simulated run, from its first launch to its end, with everything checked on the way."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import shutil
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType

from holdfast.control.record.open_run import OpenTrainingRun
from holdfast.control.run import controller as run_controller
from holdfast.control.run.controller import RunController
from holdfast.control.run.plan import Outcome, Plan
from holdfast.control.run.validation import Validator
from holdfast.core.placement import Demand
from holdfast.core.run.budget import Budget
from holdfast.core.run.machine import Ending
from holdfast.errors import RunHeld, StoreError
from holdfast.journal import journal, lease
from holdfast.storage import locate
from holdfast.storage.foreign.arrow import filesystem_path
from holdfast.worker.context import enter
from tests.simulation import endings, invariants, standins, workers
from tests.simulation.engine import SimEngine
from tests.simulation.onlooker import Onlooker
from tests.simulation.stage import Killed, Stuck
from tests.simulation.store import forget, make_store, patient, reopen
from tests.simulation.story import Story, draw
from tests.simulation.truth import Launch
from tests.simulation.world import World

LAUNCHES_MAX = 60
HELD_PAUSE_S = 7.0


@dataclass(frozen=True, slots=True)
class Report:
    """How a simulated run went.

    Attributes:
        without: The numbers of the story's faults that were left out.
        problem: What is wrong, in one line; None if nothing is.
        lines: What happened, with the simulated second before each.
        seconds: How long it took, by the simulated clock.
    """

    story: Story
    without: tuple[int, ...]
    problem: str | None
    lines: tuple[tuple[float, str], ...]
    seconds: float
    turns: int
    attempts: int
    launches: int

    @property
    def reproduction(self) -> str:
        """The command that plays this run again."""
        without = f" --without {','.join(map(str, self.without))}" if self.without else ""
        return f"python -m tests.simulation --seed {self.story.seed}{without} --story"

    def __str__(self) -> str:
        if self.problem is None:
            return f"seed {self.story.seed}: fine"
        return f"seed {self.story.seed}: {self.problem}\n  {self.reproduction}"


class Player:
    """Plays one story."""

    def __init__(self, story: Story, scratch: str) -> None:
        self.world = World(story, scratch)
        self.world.start_rival = self._start_rival
        self.store, self.world.truth.store = make_store(self.world)
        self.world.home = filesystem_path(self.store.url)

    def play(self) -> None:
        """Play it to its end; raise what is wrong."""
        try:
            self.world.stage.play("the user", self._use)
        finally:
            forget(self.store)

    def _use(self) -> None:
        """Launch the run again and again until it is done, as a user or a scheduler does."""
        world, held = self.world, 0
        while True:
            launch = self._launch()
            world.stage.join(launch.process.actors[0])
            world.truth.holds(invariants.a_launch_ends_for_a_reason, launch)
            is_done = isinstance(launch.result, Outcome) and (
                launch.result.over.ending is Ending.SUCCEEDED
            )
            if is_done:
                break
            is_early = isinstance(launch.result, RunHeld | StoreError)
            held = held + 1 if is_early else 0
            pause_s = HELD_PAUSE_S * held if is_early else world.story.setting.pause_s
            world.stage.sleep(pause_s, "the next launch")
        for other in world.live_launches():
            world.stage.join(other.process.actors[0])
            world.truth.holds(invariants.a_launch_ends_for_a_reason, other)
        world.is_quiet = True
        world.stage.sleep(3600.0)  # whatever lease is left has run out by then
        world.truth.holds(endings.check, self.store)

    def _launch(self) -> Launch:
        world, truth = self.world, self.world.truth
        launch = Launch(len(truth.launches) + 1, world.stage)
        if launch.number > LAUNCHES_MAX + 5 * len(world.story.faults):
            raise Stuck(f"the run is not over after {launch.number - 1} launches")
        launch.troubles_before = truth.store_troubles
        truth.launches.append(launch)
        world.stage.start(launch.process, launch.process.name, partial(self._drive, launch))
        return launch

    def _start_rival(self) -> None:
        self._launch()

    def _drive(self, launch: Launch) -> None:
        self.world.tell(f"{launch.process} begins")
        try:
            outcome = self._drive_run(launch)
        except (Killed, invariants.Violation):
            raise
        except BaseException as error:  # noqa: BLE001  # judged by an invariant
            self.world.tell(f"{launch.process} fails: {error!r}")
            launch.end(error)
        else:
            self.world.tell(f"{launch.process} is done: {outcome.over.ending}")
            launch.end(outcome)
        self.world.stage.kill(launch.process)

    def _drive_run(self, launch: Launch) -> Outcome:
        """Do what a trainer does, in the same order."""
        world = self.world
        engine = SimEngine(world, launch)
        try:
            store = patient(world, self.store)
            with OpenTrainingRun.open(
                store,
                name="simulated",
                clock=world.clock,
                time_to_live_s=world.story.setting.lease_s,
            ) as run:
                launch.epoch = run.lease.epoch
                world.truth.lease_taken(launch)
                try:
                    launch.controller = RunController(
                        run,
                        engine,
                        plan_of(world, launch),
                        observers=[Onlooker(world)],
                        clock=world.clock,
                    )
                    return launch.controller.drive()
                finally:
                    engine.close()
        finally:
            engine.close()


def plan_of(world: World, launch: Launch) -> Plan:
    """Return the plan that a story's setting means."""
    setting, program = world.story.setting, world.story.program
    validator = None
    if program.validates:
        validator = Validator(
            function=workers.validate,
            arguments={},
            timeout_s=10.0,
            engine=lambda: SimEngine(world, launch, trains=False),
        )
    return Plan(
        function=workers.train,
        config=None,
        setups=(workers.remember,),
        workers=setting.workers,
        workers_min=setting.workers_min,
        demand=Demand(each={"CPU": 1.0}),
        budget=Budget(
            failures=setting.failures, preemptions=setting.preemptions, starts=setting.starts
        ),
        retention=setting.retention,
        log_folder=f"{world.scratch}/logs",
        hang_timeout_s=setting.hang_timeout_s,
        late_after_s=setting.late_after_s,
        notice_s=setting.notice_s,
        resize_after_s=setting.resize_after_s,
        validator=validator,
    )


# ---------------------------------------------------------------------- from outside


def simulate(seed: int | Story, *, without: Sequence[int] = ()) -> Report:
    """Play the run of a seed, or a story; what is wrong is in the report."""
    story = draw(seed) if isinstance(seed, int) else seed
    scratch = tempfile.mkdtemp(prefix="holdfast-simulation-", dir=_quickest_folder())
    problem = None
    settings: list[tuple[ModuleType, str, object]] = [
        (journal, "COMPACT_SEGMENTS", story.setting.compacts_after),
        (run_controller, "TICK_S", story.setting.tick_s),
        (tempfile, "tempdir", scratch),  # where workers keep what they will upload later
        (lease, "_RELEASED", set()),  # a seed that is played twice draws the same tokens
    ]
    with standins.installed(story.seed, {locate.reopen: reopen}, settings), _quiet():
        player = Player(story.without(without), scratch)
        try:
            player.play()
        except (invariants.Violation, Stuck) as wrong:
            problem = str(wrong)
        except Exception as error:  # noqa: BLE001  # whatever the code under test raises is told
            problem = _located(error)
            player.world.tell(traceback.format_exc())
        finally:
            enter(None)  # a worker that was played here must not be taken for this process
            shutil.rmtree(scratch, ignore_errors=True)
    world = player.world
    return Report(
        story,
        tuple(without),
        problem,
        tuple(world.lines),
        world.stage.now,
        world.stage.turns,
        len(world.truth.groups),
        len(world.truth.launches),
    )


def _quickest_folder() -> str | None:
    """Return a folder in memory if this machine has one; the files are small, and many."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _located(error: BaseException) -> str:
    """Return an error and where it was raised, in one line."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({frame.filename}:{frame.lineno})"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the log of the code under test out of everybody's way."""
    log = logging.getLogger("holdfast")
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # where workers print what they raise
            yield
    finally:
        log.setLevel(before)


def shrunk(report: Report) -> Report:
    """Return the report of the same story without the faults that its problem can do without."""
    for number in range(1, len(report.story.faults) + 1):
        if number not in report.without:
            tried = simulate(report.story, without=(*report.without, number))
            if tried.problem is not None:
                report = tried
    return report
