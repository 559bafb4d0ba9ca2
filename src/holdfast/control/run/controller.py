"""The loop that drives a run: remember, believe, act, tell.

It decides nothing about attempts: `core.run_machine` does. It lets the engine start and stop
groups, has a `Group` talk with the workers, and watches the time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.checkpoint.verification import identity_of
from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.control.failure_cards import loss_card, start_card
from holdfast.control.host.log_quota import LogRoom, bytes_allowed
from holdfast.control.host.preemption import Notice
from holdfast.control.metrics.writer import MetricRows
from holdfast.control.observers import Observer, Observers
from holdfast.control.record.litter import sweep
from holdfast.control.record.open_run import OpenRun
from holdfast.control.record.retaining import Retaining
from holdfast.control.run.checkpoint_questions import Questions
from holdfast.control.run.grace import LastMoments
from holdfast.control.run.group import Group
from holdfast.control.run.inbox import News
from holdfast.control.run.launch import jobs, specs
from holdfast.control.run.plan import Outcome, Plan
from holdfast.control.run.relocation import Move, Moving
from holdfast.control.run.validation import LOOK_S, Validations
from holdfast.control.run.watchdog import Stopped, Watchdog
from holdfast.core.checkpoint.manifest import Manifest
from holdfast.core.outcomes import Finished, WorkerExit
from holdfast.core.placement import Place, why_not
from holdfast.core.run.history import KIND, RunHistory, data_of
from holdfast.core.run.machine import (
    Action,
    Active,
    DriverStarted,
    Ending,
    Event,
    GroupEnded,
    GroupNotStarted,
    Over,
    RestartWanted,
    StartGroup,
    StopGroup,
    Stopping,
    StopRequested,
    advance,
)
from holdfast.core.run.validation import ValidationLedger
from holdfast.engine.base import Ended, Engine, EngineError, NodesChanged, Said
from holdfast.errors import LeaseLost
from holdfast.wire import Asked, Assigned, Warned
from holdfast.worker.job import pack

log = logging.getLogger(__name__)

TICK_S = 1.0
WAITING_IS_SAID_EVERY_S = 30.0


class RunController:
    """Drives one run to its end on one engine."""

    def __init__(
        self,
        run: OpenRun,
        history: RunHistory,
        engine: Engine,
        plan: Plan,
        *,
        observers: Sequence[Observer] = (),
        clock: Clock = SYSTEM_CLOCK,
        rows: MetricRows | None = None,
        ledger: ValidationLedger | None = None,
    ) -> None:
        self._open_run, self._history, self._engine, self._plan = run, history, engine, plan
        self._clock = clock
        self._rows = rows or MetricRows(run.store, run.lease.epoch, clock=clock)
        self._observers = Observers(observers)
        self._ledger = ledger or ValidationLedger()
        self._validations: Validations | None = None
        if plan.validator is not None:
            self._validations = Validations(
                run, self._ledger, plan.validator, plan.log_folder, clock
            )
        self._group: Group | None = None
        self._places: Sequence[Place] = ()
        self._due: StartGroup | None = None
        self._due_at = 0.0
        self._said_waiting_at = float("-inf")
        self._looked_at = float("-inf")
        self._news = News()
        self._moving = Moving(plan, engine, clock)
        self._watchdog = Watchdog(plan, engine, clock)
        self._stopped: Stopped | None = None
        self._last_moments = LastMoments(clock)
        self._log_room = LogRoom(plan.log_folder, bytes_allowed(), clock)
        self._card = ""
        self._retain = Retaining(run, plan.retention)
        self._questions = Questions(run, engine, plan, self._ledger)

    # ------------------------------------------------------------------ from outside

    def listen_to(self, source: Callable[[], Iterable[Notice | Ending]]) -> None:
        """Ask `source` for news whenever the engine was woken, or something happened."""
        self._news.listen_to(source)

    def stop(self, ending: Ending = Ending.STOPPED) -> None:
        """Make the run end as soon as it can; from any thread or signal handler."""
        self._news.add(ending)
        self._engine.wake()

    def notice(self, notice: Notice) -> None:
        """Take in that machines will go away; from any thread or signal handler."""
        self._news.add(notice)
        self._engine.wake()

    # ------------------------------------------------------------------ the loop

    def drive(self) -> Outcome:
        """Run until the run is over, carrying on from whatever the journal says."""
        if self._plan.first_checkpoint is not None and not self._open_run.record.usable():
            self._plan.first_checkpoint.verify()  # before anything is started
        sweep(self._open_run)
        try:
            self._happen(DriverStarted(self._plan.budget, self._plan.backoff_max_s))
            while not isinstance(self._history.run.phase, Over):
                self._turn()
            run, group, over = self._history.run, self._group, self._history.run.phase
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
        return Outcome(
            over,
            None if group is None else group.value,
            {} if group is None else group.errors,
            None if group is None else group.newest,
            run.attempts,
            self._card,
        )

    def _turn(self) -> None:
        if self._open_run.lost is not None:
            self._give_up(self._open_run.lost)
        self._take_news()
        self._start_if_due()
        event = self._engine.next_event(self._patience_s())
        self._open_run.lease.check_after_sleep()
        match event:
            case Said() as said:
                self._hear(said)
            case Ended() as ended:
                self._take_news()  # all may have been told to go, of which this one has died
                self._note_end(ended)
            case NodesChanged():
                self._moving.nodes_changed()
            case None:
                pass
        self._look_at_the_time()
        if self._validations is not None and self._validations.go_on():
            self._retain()
            if self._group is not None:
                self._questions.answer(self._group, self._clock.monotonic())

    def _patience_s(self) -> float:
        tick_s = min(TICK_S, self._watchdog.due_in_s)
        if self._validations is not None and not self._validations.are_done:
            tick_s = min(tick_s, LOOK_S)
        if self._due is None:
            return min(tick_s, self._last_moments.left_s() or tick_s)
        left_s = self._due_at - self._clock.monotonic()
        return min(tick_s, left_s) if left_s > 0 else tick_s  # it waits for room

    def _happen(self, event: Event) -> None:
        actions = advance(self._history.run, event).actions
        self._open_run.note(KIND, data_of(event))  # which also makes the history believe it
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
        """Another driver has the run: stop writing, leave the record to it."""
        self._engine.stop_group(self._history.run.attempts)
        raise lost

    def _take_news(self) -> None:
        for news in self._news.take():
            if isinstance(news, Notice):
                self._move(self._moving.notice(news))
            else:
                self._happen(StopRequested(news))

    def _ending(self) -> Ending | None:
        """Return how this driver is to end before all is done, None if it may go on."""
        return Ending.PREEMPTED if self._moving.is_leaving else self._news.ending()

    # ------------------------------------------------------------------ starting

    def _start_if_due(self) -> None:
        now = self._clock.monotonic()
        if self._due is None or now < self._due_at:
            return
        places = self._moving.find_room(self._places)
        if places is None:
            self._say_waiting(now)
            return
        attempt, self._due = self._due.attempt, None
        self._start(attempt, places)

    def _say_waiting(self, now: float) -> None:
        if now - self._said_waiting_at >= WAITING_IS_SAID_EVERY_S:
            self._said_waiting_at = now
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
        self._places = places
        self._questions.begin()
        self._group = Group(
            attempt,
            places,
            run=self._open_run,
            engine=self._engine,
            newest=newest,
            rows=self._rows,
            observers=self._observers,
            on_saved=self._on_saved,
            after_save=self._retain,
            late_after_s=self._plan.late_after_s,
            clock=self._clock,
        )
        self._moving.begin(self._group)
        self._watchdog.begin(self._group)
        self._last_moments.begin()
        self._stopped = None
        for rank, job in enumerate(jobs(self._plan, self._open_run, attempt, places, newest)):
            self._engine.send(attempt, rank, Assigned(pack(job)))
        step = None if newest is None else newest.step
        self._rows.begin(attempt, step or 0)
        self._observers.tell("group_started", attempt, len(places), step)

    def _newest_good(self) -> Manifest | None:
        """Return what to carry on from; if that is not what was announced, say so."""
        newest = next(iter(self._open_run.record.usable()), None)
        good = self._open_run.newest_good()
        if newest is not None and (good is None or good.number != newest.number):
            does = "begins again" if good is None else f"carries on from {good.directory}"
            name, damaged = self._open_run.identity.name, newest.directory
            log.warning("run %r %s instead of from %s, which is damaged", name, does, damaged)
        return good

    def _not_started(self, attempt: int, reason: str) -> None:
        self._happen(GroupNotStarted(attempt, reason))
        name, after = self._open_run.identity.name, self._history.run
        self._card = start_card(name, self._plan, attempt, reason, after, self._waits_s())
        self._tell_of_loss(attempt, (), {})

    def _tell_of_loss(
        self, attempt: int, exits: Sequence[WorkerExit], errors: Mapping[int, bytes | None]
    ) -> None:
        is_last = isinstance(self._history.run.phase, Over)
        self._observers.tell("group_lost", attempt, exits, errors, self._card, is_last=is_last)

    def _waits_s(self) -> float:
        return self._due.after_s if self._due is not None else 0.0

    # ------------------------------------------------------------------ what workers say

    def _hear(self, said: Said) -> None:
        group = self._group
        if group is None or said.attempt != group.attempt:
            return  # of an attempt that is over
        self._watchdog.heard(said.rank, said.message)
        match said.message:
            case Warned(number):
                self._move(self._moving.warned(said.rank, number))
            case Asked() as asked:
                self._questions.add(said.rank, asked, self._clock.monotonic())
            case message:
                group.hear(said.rank, message, self._clock.monotonic())
        self._questions.answer(group, self._clock.monotonic())

    def _on_saved(self, manifest: Manifest, validation: Mapping[str, Any] | None) -> bool:
        """Return whether the workers are to be told that their checkpoint is durable.

        Where the group is about to be stopped they are not: so they cannot get any further than
        what is saved, and cannot return as if they were done.
        """
        if validation is not None and self._validations is not None:
            self._validations.want(manifest.number, validation)
        move = self._moving.saved(manifest.step or 0)
        self._move(move)
        return move is Move.STAY

    def _move(self, move: Move) -> None:
        if not isinstance(self._history.run.phase, Active):
            return
        match move:
            case Move.STAY:
                pass
            case Move.RESTART:
                attempt = self._history.run.attempts
                self._happen(RestartWanted(attempt, "there is room for more workers"))
            case Move.EVICT:
                self._engine.stop_group(self._history.run.attempts)
            case Move.EXIT:
                self._happen(StopRequested(Ending.PREEMPTED))

    # ------------------------------------------------------------------ time

    def _look_at_the_time(self) -> None:
        now, group = self._clock.monotonic(), self._group
        if group is not None:
            if group.out_of_step is not None:
                self._last_moments.lost()  # they raise now, or go on in vain
            self._stop_if_lost(group)
        if now - self._looked_at < TICK_S and not self._watchdog.is_due:
            return
        self._looked_at = now
        if group is None or group.is_over:
            return
        self._log_room.look(group.attempt)
        group.look_at_the_late(now)
        self._questions.answer(group, now)  # who asked may have waited for what is given up now
        self._move(self._moving.look())
        if self._stopped is None and not group.is_over:
            self._stopped = self._watchdog.look(group, self._questions.asking(group))
            if self._stopped is not None:
                self._engine.stop_group(group.attempt)

    # ------------------------------------------------------------------ how workers end

    def _note_end(self, ended: Ended) -> None:
        group = self._group
        if group is None or ended.attempt != group.attempt:
            return
        known = self._moving.as_known(ended.exit)
        if self._stopped is not None:
            known = self._stopped.as_known(known)
        if group.out_of_step is not None:
            known = group.out_of_step.as_known(known)
        group.note_end(replace(ended, exit=known))
        self._watchdog.ended(known.rank)
        if not isinstance(ended.exit, Finished):
            self._last_moments.lost()
        self._stop_if_lost(group)
        self._questions.answer(group, self._clock.monotonic())  # who asked may have waited for it
        if group.is_over:
            exits = tuple(group.exits[rank] for rank in sorted(group.exits))
            phase = self._history.run.phase
            is_ending = isinstance(phase, Stopping) and phase.then is not None
            if not is_ending and self._moving.ends_run(exits):
                self._happen(StopRequested(Ending.PREEMPTED))
            self._group_ended(group, exits)

    def _stop_if_lost(self, group: Group) -> None:
        """Stop the rest of a group that has lost a worker, once nothing is to be waited for."""
        if self._last_moments.are_over(group) and isinstance(self._history.run.phase, Active):
            self._engine.stop_group(group.attempt)

    def _group_ended(self, group: Group, exits: tuple[WorkerExit, ...]) -> None:
        was_active = isinstance(self._history.run.phase, Active)
        self._happen(GroupEnded(group.attempt, exits))
        if all(isinstance(one, Finished) for one in exits) or not was_active:
            return  # it was done, or we have stopped it
        self._card = loss_card(
            self._open_run.identity.name,
            self._plan,
            group,
            exits,
            self._history.run,
            self._stopped,
            self._waits_s(),
        )
        self._tell_of_loss(group.attempt, exits, group.errors)
