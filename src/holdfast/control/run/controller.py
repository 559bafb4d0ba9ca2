"""The loop that drives a run: journal an event, apply it, act, inform observers.

It decides nothing about attempts: `core.run.machine` does. It lets the engine start and stop
groups, leaves the workers of each to an `Attempt`, and watches the time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from holdfast.checkpoint.verification import identity_of
from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.control.failure_cards import loss_card, start_card
from holdfast.control.host.log_quota import LogRoom, bytes_allowed
from holdfast.control.host.preemption import Notice
from holdfast.control.metrics.writer import MetricRows
from holdfast.control.observers import Observer, Observers
from holdfast.control.record.litter import sweep
from holdfast.control.record.open_run import OpenTrainingRun
from holdfast.control.run.attempt import Attempt
from holdfast.control.run.inbox import Inbox
from holdfast.control.run.launch import jobs, specs
from holdfast.control.run.plan import Outcome, Plan
from holdfast.control.run.relocation import Move, find_room, without_workers
from holdfast.control.run.validation import LOOK_S, Validations
from holdfast.core.checkpoint.manifest import Manifest
from holdfast.core.checkpoint.retention import unscored
from holdfast.core.placement import Place, why_not
from holdfast.core.run.hang_detection import Learned
from holdfast.core.run.history import KIND, data_of
from holdfast.core.run.machine import (
    Action,
    Active,
    DriverStarted,
    Ending,
    Event,
    GroupEnded,
    GroupNotStarted,
    Over,
    Phase,
    RestartWanted,
    StartGroup,
    StopGroup,
    Stopping,
    StopRequested,
    advance,
)
from holdfast.core.run.outcomes import Finished, WorkerExit
from holdfast.engine.base import Ended, Engine, EngineError, NodesChanged, Said
from holdfast.errors import LeaseLost, StoreError
from holdfast.wire import Assigned
from holdfast.worker.job import pack

log = logging.getLogger(__name__)

TICK_S = 1.0
WAITING_LOGGED_EVERY_S = 30.0


class RunController:
    """Drives one run to its end on one engine."""

    def __init__(
        self,
        run: OpenTrainingRun,
        engine: Engine,
        plan: Plan,
        *,
        observers: Sequence[Observer] = (),
        clock: Clock = SYSTEM_CLOCK,
        rows: MetricRows | None = None,
    ) -> None:
        self._open_run, self._engine, self._plan = run, engine, plan
        self._clock = clock
        self._rows = rows or MetricRows(run.store, run.lease.epoch, clock=clock)
        self._observers = Observers(observers)
        self._validations: Validations | None = None
        if plan.validator is not None:
            self._validations = Validations(run, plan.validator, plan.log_folder, clock)
        self._attempt: Attempt | None = None  # the one that runs, or the last that ran
        self._learned = Learned()
        self._due: StartGroup | None = None
        self._due_at = 0.0
        self._waiting_logged_at = float("-inf")
        self._looked_at = float("-inf")
        self._inbox = Inbox()
        self._log_room = LogRoom(plan.log_folder, bytes_allowed(), clock)
        self._card = ""
        self._ranking_warning: str | None = None  # the last one that was logged

    # ------------------------------------------------------------------ from outside

    def listen_to(self, source: Callable[[], Iterable[Notice | Ending]]) -> None:
        """Ask `source` for messages whenever the engine was woken, or an event came."""
        self._inbox.listen_to(source)

    def stop(self, ending: Ending = Ending.STOPPED) -> None:
        """Make the run end as soon as it can; from any thread or signal handler."""
        self._inbox.add(ending)
        self._engine.wake()

    def notice(self, notice: Notice) -> None:
        """Handle that machines will go away; from any thread or signal handler."""
        self._inbox.add(notice)
        self._engine.wake()

    # ------------------------------------------------------------------ the loop

    @property
    def _phase(self) -> Phase:
        return self._open_run.history.run.phase

    def drive(self) -> Outcome:
        """Drive the run from where its journal ends until it is over."""
        if self._plan.first_checkpoint is not None and not self._open_run.record.usable():
            self._plan.first_checkpoint.verify()  # before anything is started
        sweep(self._open_run)
        try:
            self._happen(DriverStarted(self._plan.budget, self._plan.backoff_max_s))
            while not isinstance(self._phase, Over):
                self._turn()
            over = self._phase
            assert isinstance(over, Over)
            if self._validations is not None and over.ending is Ending.SUCCEEDED:
                over = replace(over, ending=self._validations.finish(self._ending))
                self._retain()
        except BaseException as error:
            self._open_run.hurry(type(error))
            raise
        finally:
            self._rows.close()
            if self._validations is not None:
                self._validations.close()
        group = None if self._attempt is None else self._attempt.group
        return Outcome(
            over,
            None if group is None else group.value,
            {} if group is None else group.errors,
            self._open_run.record.newest(),
            self._open_run.history.run.attempts,
            self._card,
        )

    def _turn(self) -> None:
        if self._open_run.lost is not None:
            self._give_up(self._open_run.lost)
        self._read_inbox()
        self._start_if_due()
        event = self._engine.next_event(self._patience_s())
        self._open_run.lease.check_after_sleep()
        match event:
            case Said():
                self._hear(event)
            case Ended():
                self._read_inbox()  # it may have died of a signal that this driver got too
                self._note_end(event)
            case NodesChanged():
                if self._attempt is not None:
                    self._attempt.relocation.nodes_changed()
            case None:
                pass
        self._look_at_the_time()
        if self._validations is not None and self._validations.go_on():
            self._retain()
            if self._attempt is not None:
                self._attempt.answer()

    def _patience_s(self) -> float:
        tick_s = TICK_S if self._attempt is None else min(TICK_S, self._attempt.due_in_s)
        if self._validations is not None and not self._validations.are_done:
            tick_s = min(tick_s, LOOK_S)
        if self._due is None:
            return tick_s
        left_s = self._due_at - self._clock.monotonic()
        return min(tick_s, left_s) if left_s > 0 else tick_s  # it waits for room

    def _happen(self, event: Event) -> None:
        actions = advance(self._open_run.history.run, event).actions
        self._open_run.note(KIND, data_of(event))  # which also applies it to the history
        for action in actions:
            self._perform(action)

    def _perform(self, action: Action) -> None:
        match action:
            case StartGroup(attempt, after_s):
                if after_s:
                    log.warning("waiting %.1f s before attempt %d", after_s, attempt)
                self._due, self._due_at = action, self._clock.monotonic() + after_s
            case StopGroup(attempt):
                if self._due is not None:
                    self._due = None
                    self._happen(GroupEnded(attempt, ()))
                else:
                    self._engine.stop_group(attempt)

    def _give_up(self, lost: LeaseLost) -> None:
        """Stop the workers and raise: another driver has the run, and the record is its own now."""
        self._engine.stop_group(self._open_run.history.run.attempts)
        raise lost

    def _read_inbox(self) -> None:
        for message in self._inbox.take():
            if isinstance(message, Notice):
                attempt = self._attempt
                notice = without_workers if attempt is None else attempt.relocation.notice
                self._move(notice(message))
            else:
                self._happen(StopRequested(message))

    def _ending(self) -> Ending | None:
        """Return how this driver is to end although work is left, None if it may go on."""
        is_leaving = self._attempt is not None and self._attempt.relocation.is_leaving
        return Ending.PREEMPTED if is_leaving else self._inbox.ending()

    def _retain(self) -> None:
        """Delete the checkpoints that the policy does not keep, after one was added."""
        policy = self._plan.retention
        warning = unscored(policy, self._open_run.record.candidates())
        if warning is not None and warning != self._ranking_warning:
            self._ranking_warning = warning
            log.warning(warning)
        try:
            self._open_run.retain(policy)
        except LeaseLost:
            raise
        except StoreError as error:
            log.warning("an old checkpoint could not be removed, the next sweep will: %s", error)

    # ------------------------------------------------------------------ starting

    def _start_if_due(self) -> None:
        now = self._clock.monotonic()
        if self._due is None or now < self._due_at:
            return
        before = () if self._attempt is None else self._attempt.group.places
        places = find_room(self._plan, self._engine, before)
        if places is None:
            self._log_waiting(now)
            return
        attempt, self._due = self._due.attempt, None
        self._start(attempt, places)

    def _log_waiting(self, now: float) -> None:
        if now - self._waiting_logged_at >= WAITING_LOGGED_EVERY_S:
            self._waiting_logged_at = now
            why = why_not(self._engine.nodes(), self._plan.demand, self._plan.fewest)
            log.warning("waiting for room: %s", why)

    def _start(self, attempt: int, places: list[Place]) -> None:
        try:
            self._engine.start_group(attempt, specs(self._plan, attempt, places))
        except EngineError as error:
            self._not_started(attempt, str(error))
            return
        # The checkpoint is verified while the workers come up.
        newest = self._newest_good()
        if newest is not None and self._plan.copies is not None:
            self._plan.copies.keep(identity_of(newest))
        self._open_run.discard_unfinished()
        self._attempt = Attempt(
            attempt,
            places,
            0 if newest is None else newest.step or 0,
            run=self._open_run,
            engine=self._engine,
            plan=self._plan,
            rows=self._rows,
            observers=self._observers,
            validations=self._validations,
            learned=self._learned,
            move=self._move,
            retain=self._retain,
            clock=self._clock,
        )
        for rank, job in enumerate(jobs(self._plan, self._open_run, attempt, places, newest)):
            self._engine.send(attempt, rank, Assigned(pack(job)))
        step = None if newest is None else newest.step
        self._rows.begin(attempt, step or 0)
        self._observers.tell(Observer.group_started, attempt, len(places), step)

    def _newest_good(self) -> Manifest | None:
        """Return the checkpoint to go on from; warn if it is not the one that was announced."""
        newest = self._open_run.record.newest()
        good = self._open_run.newest_good()
        if newest is not None and (good is None or good.number != newest.number):
            does = "begins again" if good is None else f"carries on from {good.directory}"
            name, damaged = self._open_run.identity.name, newest.directory
            log.warning("run %r %s instead of from %s, which is damaged", name, does, damaged)
        return good

    def _not_started(self, attempt: int, reason: str) -> None:
        self._happen(GroupNotStarted(attempt, reason))
        name, after = self._open_run.identity.name, self._open_run.history.run
        self._card = start_card(name, self._plan, attempt, reason, after, self._waits_s())
        self._report_loss(attempt, (), {})

    def _report_loss(
        self, attempt: int, exits: Sequence[WorkerExit], errors: Mapping[int, bytes | None]
    ) -> None:
        is_last = isinstance(self._phase, Over)
        self._observers.tell(
            Observer.group_lost, attempt, exits, errors, self._card, is_last=is_last
        )

    def _waits_s(self) -> float:
        return self._due.after_s if self._due is not None else 0.0

    # ------------------------------------------------------------------ messages and moves

    def _hear(self, event: Said) -> None:
        if self._attempt is not None and event.group == self._attempt.number:
            self._attempt.hear(event.rank, event.message)

    def _move(self, move: Move) -> None:
        if not isinstance(self._phase, Active):
            return
        match move:
            case Move.STAY:
                pass
            case Move.RESTART:
                attempt = self._open_run.history.run.attempts
                self._happen(RestartWanted(attempt, "there is room for more workers"))
            case Move.EVICT:
                self._engine.stop_group(self._open_run.history.run.attempts)
            case Move.EXIT:
                self._happen(StopRequested(Ending.PREEMPTED))

    # ------------------------------------------------------------------ time

    def _look_at_the_time(self) -> None:
        attempt, now = self._attempt, self._clock.monotonic()
        if attempt is None:
            return
        self._stop_if_lost(attempt)
        is_time = now - self._looked_at >= TICK_S or attempt.watchdog.is_due
        if not is_time or attempt.group.is_over:
            return
        self._looked_at = now
        self._log_room.look(attempt.number)
        attempt.look()

    def _stop_if_lost(self, attempt: Attempt) -> None:
        """Stop the rest of a group that has lost a worker, once its grace is over."""
        if attempt.is_lost() and isinstance(self._phase, Active):
            self._engine.stop_group(attempt.number)

    # ------------------------------------------------------------------ how workers end

    def _note_end(self, ended: Ended) -> None:
        attempt = self._attempt
        if attempt is None or ended.group != attempt.number:
            return
        attempt.note_end(ended)
        self._stop_if_lost(attempt)
        attempt.answer()  # a question may have waited for the worker that has ended
        if attempt.group.is_over:
            phase, exits = self._phase, attempt.exits
            is_ending = isinstance(phase, Stopping) and phase.then is not None
            if not is_ending and attempt.relocation.ends_run(exits):
                self._happen(StopRequested(Ending.PREEMPTED))
            self._group_ended(attempt, exits)

    def _group_ended(self, attempt: Attempt, exits: tuple[WorkerExit, ...]) -> None:
        was_active = isinstance(self._phase, Active)
        self._happen(GroupEnded(attempt.number, exits))
        if all(isinstance(ended, Finished) for ended in exits) or not was_active:
            return  # it was done, or this driver has stopped it
        self._card = loss_card(self._open_run, self._plan, attempt, self._waits_s())
        self._report_loss(attempt.number, exits, attempt.group.errors)
