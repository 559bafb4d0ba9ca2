"""One attempt of a run: everything that lives as long as its group of workers, and no longer.

It is made when the group has been started, and the next one replaces it: nothing is reset.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.clock import Clock
from holdfast.control.metrics.writer import MetricRows
from holdfast.control.observers import Observer, Observers
from holdfast.control.record.open_run import OpenTrainingRun
from holdfast.control.run.checkpoint_questions import CheckpointQuestions
from holdfast.control.run.grace import Grace
from holdfast.control.run.group import Group
from holdfast.control.run.plan import Plan
from holdfast.control.run.relocation import Move, Relocation
from holdfast.control.run.validation import Validations
from holdfast.control.run.watchdog import Stopped, Watchdog
from holdfast.core.checkpoint.manifest import Manifest
from holdfast.core.placement import Place
from holdfast.core.run.hang_detection import Learned
from holdfast.core.run.outcomes import Finished, WorkerExit
from holdfast.engine.base import Ended, Engine
from holdfast.wire import Asked, Message, Warned


class Attempt:
    """The workers of one attempt, and all that is known and waited for because of them.

    Args:
        reports_before: How many reports were made before the checkpoint that they begin with.
        validations: Validates checkpoints, None if nothing does.
        learned: How long healthy workers were silent in attempts before.
        move: Does what a notice, a checkpoint or the time asks for.
        retain: Called when a checkpoint was saved and its workers have been informed.

    Attributes:
        stopped: How the group was found to stand still, None if it was not.
    """

    def __init__(
        self,
        number: int,
        places: Sequence[Place],
        reports_before: int,
        *,
        run: OpenTrainingRun,
        engine: Engine,
        plan: Plan,
        rows: MetricRows,
        observers: Observers[Observer],
        validations: Validations | None,
        learned: Learned,
        move: Callable[[Move], None],
        retain: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._engine, self._clock = engine, clock
        self._validations, self._move = validations, move
        self.group = Group(
            number,
            places,
            run=run,
            engine=engine,
            reports_before=reports_before,
            rows=rows,
            observers=observers,
            on_saved=self._on_saved,
            after_save=retain,
            late_after_s=plan.late_after_s,
            clock=clock,
        )
        self.relocation = Relocation(self.group, plan, engine, clock)
        self.watchdog = Watchdog(self.group, learned, plan, engine, clock)
        self.stopped: Stopped | None = None
        self._grace = Grace(clock)
        self._questions = CheckpointQuestions(run, engine, plan)

    @property
    def number(self) -> int:
        """The number of the attempt, which is also that of its group."""
        return self.group.attempt

    @property
    def due_in_s(self) -> float:
        """How soon to look at it, if nothing is heard before; infinity when it is over."""
        if self.group.is_over:
            return math.inf
        return min(self.watchdog.due_in_s, self._grace.left_s() or math.inf)

    @property
    def exits(self) -> tuple[WorkerExit, ...]:
        """How its workers ended, in the order of their ranks."""
        return tuple(self.group.exits[rank] for rank in sorted(self.group.exits))

    def hear(self, rank: int, message: Message) -> None:
        """Take in what a worker says."""
        if rank not in self.group.running:
            return
        self.watchdog.heard(rank, message)
        match message:
            case Warned(number):
                self._move(self.relocation.warned(rank, number))
            case Asked() as asked:
                self._questions.add(rank, asked, self._clock.monotonic())
            case _:
                self.group.hear(rank, message, self._clock.monotonic())
        self.answer()

    def answer(self) -> None:
        """Answer the questions of workers that can be answered now."""
        self._questions.answer(self.group, self._clock.monotonic())

    def note_end(self, ended: Ended) -> None:
        """Take in how a worker ended, as far as more is known of it than the engine can see."""
        if ended.exit.rank not in self.group.running:
            return
        known = self.relocation.as_known(ended.exit)
        if self.stopped is not None:
            known = self.stopped.as_known(known)
        if self.group.out_of_step is not None:
            known = self.group.out_of_step.as_known(known)
        self.group.note_end(replace(ended, exit=known))
        self.watchdog.ended(known.rank)
        if not isinstance(ended.exit, Finished):
            self._grace.lost()

    def is_lost(self) -> bool:
        """Whether the rest of the group is to be stopped: it has lost a worker for good."""
        if self.group.out_of_step is not None:
            self._grace.lost()  # they raise now, or go on in vain
        return self._grace.is_over(self.group)

    def look(self) -> None:
        """Do what is to be done because time has passed."""
        self.group.look_at_the_late(self._clock.monotonic())
        self.answer()  # who asked may have waited for what is given up now
        self._move(self.relocation.look())
        if self.stopped is None and not self.group.is_over:
            self.stopped = self.watchdog.look(self._questions.asking(self.group))
            if self.stopped is not None:
                self._engine.stop_group(self.number)

    def _on_saved(self, manifest: Manifest, validation: Mapping[str, Any] | None) -> bool:
        """Return whether the workers are to be told that their checkpoint is durable.

        Where the group is about to be stopped they are not: so they cannot get any further than
        what is saved, and cannot return as if they were done.
        """
        if validation is not None and self._validations is not None:
            self._validations.want(manifest.number, validation)
        move = self.relocation.saved(manifest.step or 0)
        self._move(move)
        return move is Move.STAY
