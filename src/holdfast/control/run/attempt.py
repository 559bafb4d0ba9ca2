"""One attempt of a run: everything that lives exactly as long as its group of workers.

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
    """The workers of one attempt, with the watchdog, relocation and questions that serve them.

    Args:
        reports_before: How many reports were made before the checkpoint that they begin with.
        validations: Validates checkpoints, None if they are not validated.
        learned: How long healthy workers were silent in earlier attempts.
        move: Performs what a notice, a checkpoint or the time calls for.
        retain: Called when a checkpoint was saved and its workers have been informed.

    Attributes:
        stopped: The hang of the group, None if it did not hang.
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
        """The number of the attempt and of its group."""
        return self.group.attempt

    @property
    def due_in_s(self) -> float:
        """How soon to call `look` if no message comes before; infinity when it is over."""
        if self.group.is_over:
            return math.inf
        return min(self.watchdog.due_in_s, self._grace.left_s() or math.inf)

    @property
    def exits(self) -> tuple[WorkerExit, ...]:
        """How its workers ended, in the order of their ranks."""
        return tuple(self.group.exits[rank] for rank in sorted(self.group.exits))

    def hear(self, rank: int, message: Message) -> None:
        """Handle a message of a worker."""
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
        """Answer the questions of workers whose answer is settled."""
        self._questions.answer(self.group, self._clock.monotonic())

    def note_end(self, ended: Ended) -> None:
        """Note how a worker ended, with what is known here and not to the engine."""
        if ended.exit.rank not in self.group.running:
            return
        worker_exit = self.relocation.as_known(ended.exit)
        if self.stopped is not None:
            worker_exit = self.stopped.as_known(worker_exit)
        if self.group.out_of_step is not None:
            worker_exit = self.group.out_of_step.as_known(worker_exit)
        self.group.note_end(replace(ended, exit=worker_exit))
        self.watchdog.ended(worker_exit.rank)
        if not isinstance(ended.exit, Finished):
            self._grace.lost()

    def is_lost(self) -> bool:
        """Whether the rest of the group is to be stopped: it has lost a worker for good."""
        if self.group.out_of_step is not None:
            self._grace.lost()  # its ranks raise now, or go on in vain
        return self._grace.is_over(self.group)

    def look(self) -> None:
        """Do what is due because time has passed."""
        self.group.look_at_the_late(self._clock.monotonic())
        self.answer()  # a question may have waited for a report that is given up now
        self._move(self.relocation.look())
        if self.stopped is None and not self.group.is_over:
            self.stopped = self.watchdog.look(self._questions.asking(self.group))
            if self.stopped is not None:
                self._engine.stop_group(self.number)

    def _on_saved(self, manifest: Manifest, validation: Mapping[str, Any] | None) -> bool:
        """Return whether to inform the workers that their checkpoint is durable.

        Not if the group is about to be stopped: so they cannot get further than what is saved, and
        cannot return as if they were done.
        """
        if validation is not None and self._validations is not None:
            self._validations.want(manifest.number, validation)
        move = self.relocation.saved(manifest.step or 0)
        self._move(move)
        return move is Move.STAY
