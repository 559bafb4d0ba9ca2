"""The loop that drives a study: journal, believe, act, tell.

It decides nothing about trials: `core.study` does. What is to be done follows from the state of the
study, so after a crash the same is done.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from holdfast.checkpoint import Checkpoint
from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.control.failure_cards import refusal_card, trial_card
from holdfast.control.host.log_folders import log_at
from holdfast.control.host.study_logs import StudyLogs
from holdfast.control.observers import Observers
from holdfast.control.record.open_run import OpenRun
from holdfast.control.study.commit_pool import CommitPool
from holdfast.control.study.departures import Departures
from holdfast.control.study.journal import StudyJournal
from holdfast.control.study.offers import TrialOffers
from holdfast.control.study.plan import ResultFiles, StudyObserver, StudyPlan
from holdfast.control.study.resume import continue_study, folder_problem
from holdfast.control.study.trial_checkpoints import TrialCheckpoints
from holdfast.control.study.trial_process import TrialProcess, acknowledge, end_processes
from holdfast.control.study.watchdog import TrialWatch
from holdfast.core.checkpoint.manifest import Manifest
from holdfast.core.placement import Place
from holdfast.core.run.machine import Active
from holdfast.core.run.outcomes import Finished, WorkerExit
from holdfast.core.study.events import (
    SearchEnded,
    StudyStopped,
    TrialExited,
    TrialNotStarted,
    TrialStarted,
)
from holdfast.core.study.machine import Study
from holdfast.core.study.trial import Status, Trial
from holdfast.engine.base import Ended, Engine, EngineError, NodesChanged, Said, WorkerSpec
from holdfast.errors import LeaseLost, StoreError
from holdfast.storage import locate
from holdfast.wire import Assigned, Began, JobDone, LastWords, Message, Warned
from holdfast.worker.job import Job, TrialJob, pack, unpack_value

log = logging.getLogger(__name__)

TICK_S = 1.0


class StudyController:
    """Drives one study to its end on one engine.

    Attributes:
        errors: What trials raised last, pickled if possible, by id.
        is_stopped: Whether the loop was asked to end before the study was over.
        departures: The machines that are about to go, perhaps this one.
    """

    def __init__(
        self,
        run: OpenRun,
        study: Study,
        engine: Engine,
        plan: StudyPlan,
        *,
        observers: Sequence[StudyObserver] = (),
        files: Sequence[ResultFiles] = (),
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._run, self.study, self._engine, self._plan = run, study, engine, plan
        self._clock = clock
        self._observers = Observers[StudyObserver]([*observers, StudyLogs(self.log_of, clock)])
        self._journal = StudyJournal(run, study, files)
        self._processes: dict[int, TrialProcess] = {}  # by the number of the launch
        self._idle: dict[int, str] = {}  # launches whose process waits for a trial, and their nodes
        self._environments: dict[int, Mapping[str, str]] = {}  # what launches were started with
        self._launches = itertools.count(1)
        self._offers = TrialOffers()
        self._watch = TrialWatch(plan.hang_timeout_s, engine, clock)
        self._commits = CommitPool(engine.wake)
        self._described = locate.describe(run.store)
        self._reaching: set[str] = set()  # nodes whose processes have reached the storage
        self._checkpoints: dict[str, TrialCheckpoints] = {}  # of trials that are not over
        self._due: dict[str, float] = {}  # when trials that wait after a loss may start
        self._sources: list[Callable[[], Iterable[str]]] = []
        self.errors: dict[str, bytes | None] = {}
        self.departures = Departures(engine, clock, plan.notice_s, self._journal)
        self.is_stopped = False

    def listen_to(self, source: Callable[[], Iterable[str]]) -> None:
        """Ask `source` for reasons to stop in every turn of the loop."""
        self._sources.append(source)

    # ------------------------------------------------------------------ the loop

    def drive(self) -> None:
        """Run until the study is over, or this driver is asked to stop."""
        try:
            for trial in self.study.get_trials():
                if folder_problem(trial) is None:  # before the study forgets what it was doing
                    self._sweep(trial, looks=trial.status is Status.RUNNING)
            unseen = continue_study(self._run, self.study, self._journal, self._engine, self._plan)
            for trial, result in unseen:
                self._observers.tell(StudyObserver.trial_result, trial, result)
            for trial in filter(folder_problem, self.study.ended):
                self._tell_of_refusal(trial, folder_problem(trial) or "")
            while not (self.study.is_over or self.is_stopped):
                self._turn()
            self._acknowledge(self._commits.finish())
            self._tell_of_ends()
            self._observers.tell(StudyObserver.turned, is_over=self.study.is_over)
            self._journal.write_last_state()
        except BaseException as error:
            self._run.hurry(type(error))
            raise
        finally:
            self._stop_all()
            self._journal.close()

    def _stop_all(self) -> None:
        over = self.study.is_over
        end_processes(self._engine, self._clock, self._processes, self._idle, is_over=over)
        self._commits.close()
        self._offers.close()

    def _turn(self) -> None:
        if self._run.lost is not None:
            raise self._run.lost
        if reasons := [reason for source in self._sources for reason in source()]:
            log.warning("the study stops: %s", reasons[0])
        self.is_stopped = self.departures.go_on(self._processes) or bool(reasons)
        if self.is_stopped:
            return
        if self.study.judges.stop_all() and self.study.stopping is None:
            self._journal.happen(StudyStopped("the stopper says so"))
        self._carry_out()
        self._make_and_start()
        self._journal.push()
        self._hear_all()
        self._tell_of_ends()
        self._journal.tidy()
        self._observers.tell(StudyObserver.turned, is_over=False)

    def _hear_all(self) -> None:
        """Take in all events of the engine, waiting for the first."""
        event = self._engine.next_event(self._patience_s())
        while event is not None:
            match event:
                case Said(launch, _, message) if launch in self._processes:
                    self._hear(launch, message)
                case Ended() if event.group in self._processes:
                    self._note_end(event)
                case Ended():
                    self._idle.pop(event.group, None)
                case NodesChanged():
                    self._reaching.clear()  # another machine may have the name of one that is gone
                    self.departures.look(self._processes)
                case _:
                    pass  # of a launch that is over
            event = self._engine.next_event(0.0)
        self._acknowledge(self._commits.take())

    def _acknowledge(self, written: Collection[Future[Manifest]]) -> None:
        saving = [process for process in self._processes.values() if process.writing in written]
        acknowledge(saving, self._journal)

    def _hear(self, launch: int, message: Message) -> None:
        process = self._processes[launch]
        self._watch.heard(launch, message)
        match message:
            case Warned():
                self.study.save_trial(process.trial)
            case Began():
                self._reaching.add(process.node)
                process.hear(message)
            case JobDone(value):
                del self._processes[launch]
                self._watch.ended(launch)
                self._idle[launch] = process.node
                self._exited(process, Finished(0, process.node), LastWords(value))
            case _:
                process.hear(message)

    def _patience_s(self) -> float:
        soonest = min(self._due.values(), default=float("inf")) - self._clock.monotonic()
        return 0.0 if self.study.is_over else max(0.0, min(TICK_S, soonest, self._watch.due_in_s))

    # ------------------------------------------------------------------ starting

    def _make_and_start(self) -> None:
        now = self._clock.monotonic()
        delays = self.study.delays
        self._due = {
            trial_id: self._due.get(trial_id, now + delay_s) for trial_id, delay_s in delays.items()
        }
        for trial_id in [trial_id for trial_id, due in self._due.items() if due <= now]:
            del self._due[trial_id], delays[trial_id]
        while self._may_start():
            if self.study.lacks_trials() and self._make_one():
                continue
            trial = self.study.next_to_start()
            if trial is None and self._make_one():
                continue
            trial = trial or (None if self.study.is_over else self.study.next_anyhow())
            if trial is None or not self._start(trial):
                return  # there is none; or its node may be gone, which the engine will say

    def _may_start(self) -> bool:
        most = self._plan.max_concurrent
        return not self.departures.takes_driver and (most is None or len(self._processes) < most)

    def _make_one(self) -> bool:
        """Make another trial if one is wanted; return whether there is one more."""
        if not self.study.wants_more():
            return False
        made = self._plan.propose()
        if made is None:
            return False
        self._journal.happen(made)
        if isinstance(made, SearchEnded):
            return False
        trial = self.study.get_trial(made.trial_id) or self.study.finished[made.trial_id]
        self._observers.tell(StudyObserver.trial_added, trial)
        if made.refused:
            self._tell_of_refusal(trial, made.refused)
        return True

    def _tell_of_refusal(self, trial: Trial, reason: str) -> None:
        self.errors[trial.trial_id] = None
        card = refusal_card(trial, reason, self._plan.again)
        self._observers.tell(StudyObserver.trial_lost, trial, card, is_last=True)

    def checkpoints_of(self, trial: Trial) -> TrialCheckpoints:
        """Return the checkpoints of a trial that is not over."""
        checkpoints = self._checkpoints.get(trial.trial_id)
        if checkpoints is None or checkpoints.record is not trial.checkpoints:
            store = locate.child(self._run.store, trial.folder)
            checkpoints = self._checkpoints[trial.trial_id] = TrialCheckpoints(
                trial, store, self._run.run_id, self._run.epoch, self._journal, self._clock
            )
        return checkpoints

    def _sweep(self, trial: Trial, *, looks: bool) -> None:
        """Remove litter of a trial without a process, but not what other trials go on from."""
        self.checkpoints_of(trial).sweep(looks=looks, needed=self.study.donated_by(trial))

    def _start(self, trial: Trial) -> bool:
        """Start a trial; return whether it runs."""
        places = self.study.place(trial) or ()  # it was chosen because there is room
        is_counted = isinstance(trial.run.phase, Active)  # since it was lost
        attempt = trial.run.attempts + (0 if is_counted else 1)
        checkpoints = self.checkpoints_of(trial)
        if trial.run.attempts:  # else there can be no litter
            self._sweep(trial, looks=True)
        checkpoint, after_step, before = checkpoints.beginning(
            self._run.store, self._plan.first_checkpoint
        )
        now = self._clock.now()
        self._journal.happen(TrialStarted(trial.trial_id, attempt, places, after_step, now))
        job = self._job(trial, places, checkpoint, after_step, before)
        log_file = self.log_of(trial, attempt)
        try:
            launch, is_reused = self._assign(job, log_file)
        except EngineError as error:
            self._journal.happen(TrialNotStarted(trial.trial_id, attempt, str(error)))
            return False
        self._processes[launch] = TrialProcess(
            trial,
            attempt,
            checkpoints,
            node=places[0],
            log=log_file,
            is_reused=is_reused,
            tell=lambda message: self._engine.send(launch, 0, message),
            scribe=self._journal,
            commits=self._commits,
            on_result=self._on_result,
            on_saved=self._on_saved,
        )
        self._watch.begin(launch, trial.trial_id)
        self._observers.tell(StudyObserver.trial_started, trial, after_step)
        return True

    def _assign(self, job: Job, log_file: str) -> tuple[int, bool]:
        """Give a job to a process; return its launch, and whether it is a reused one."""
        node = job.place.node
        environment = {**self._plan.environment, **self._offers.environment(job)}
        for idle, where in self._idle.items():
            if where == node and self._environments[idle] == environment:
                del self._idle[idle]
                job.task, job.landmark = b"", None
                self._engine.send(idle, 0, Assigned(pack(job), log_file))
                return idle, True
        launch = next(self._launches)
        spec = WorkerSpec(
            rank=0,
            node=node,
            log=log_file,
            first=Assigned(pack(job)),
            environment=environment,
        )
        self._engine.start_group(launch, [spec])
        self._environments[launch] = environment
        return launch, False

    def _job(
        self,
        trial: Trial,
        places: Sequence[str],
        checkpoint: Checkpoint | None,
        after_step: int,
        before: Mapping[str, Any],
    ) -> Job:
        node = places[0]
        return Job(
            task=self._plan.program,
            place=Place(0, 1, 0, 1, 0, node),
            run_name=self._run.identity.name,
            run_id=self._run.run_id,
            attempt=trial.run.attempts,
            store=locate.describe_child(self._described, trial.folder),
            checkpoint=checkpoint,
            reports_before=after_step,
            home=self._described,
            landmark=None if node in self._reaching else Job.landmark,
            stays=self._plan.reuses,
            trial=TrialJob(
                trial_id=trial.trial_id,
                name=str(trial),
                config=self._plan.config_of(trial),
                resources=[dict(bundle) for bundle in trial.resources],
                last_result=dict(before),
                verdict=trial.reply().verdict,
            ),
            offer=self._offers.offer(
                trial.trial_id,
                list(zip(places, trial.resources, strict=True)),
                self._engine.nodes(),
                {process.trial.trial_id for process in self._processes.values()},
            ),
        )

    def log_of(self, trial: Trial, attempt: int) -> str:
        """Return the log file of an attempt of a trial."""
        local = self._run.store.local
        folder = self._plan.log_folder if local is None else local.root
        return log_at(folder, trial.folder, "logs", f"attempt-{attempt}.log")

    # ------------------------------------------------------------------ what follows

    def _carry_out(self) -> None:
        """Stop the processes of trials that are to end or halt at once, and of those that hang."""
        for launch, process in list(self._processes.items()):
            if not (process.is_stopped or process.trial.needs_process):
                process.is_stopped = True
                self._engine.stop_group(launch)
        for launch in self._watch.look(self._processes):
            self._engine.stop_group(launch)

    def _on_result(self, trial: Trial, result: dict[str, Any]) -> None:
        self._observers.tell(StudyObserver.trial_result, trial, result)

    def _on_saved(self, trial: Trial, manifest: Manifest) -> None:
        checkpoints = self.checkpoints_of(trial)
        self._observers.tell(
            StudyObserver.trial_saved,
            trial,
            Checkpoint.in_run(checkpoints.store, manifest.directory),
        )
        try:
            checkpoints.retain(self._plan.retention, self.study.donated_by(trial))
        except LeaseLost:
            raise
        except StoreError as error:
            log.warning("an old checkpoint could not be removed, a sweep will: %s", error)

    def _note_end(self, ended: Ended) -> None:
        process = self._processes.pop(ended.group)
        self._watch.ended(ended.group)
        self._exited(process, ended.exit, ended.words)

    def _exited(self, process: TrialProcess, ended: WorkerExit, words: LastWords | None) -> None:
        if process.writing is not None:  # it cannot be told any more, but its result counts
            acknowledge([process], self._journal)
        trial, ended, how = process.trial, process.as_known(ended), ""
        if isinstance(ended, Finished) and words is not None and words.value:
            how = str(unpack_value(words.value))
        reached = trial.step
        self._journal.happen(TrialExited(trial.trial_id, process.attempt, how, ended))
        if trial.status is Status.ERROR or isinstance(trial.run.phase, Active):
            self.errors[trial.trial_id] = None if words is None else words.value
            card = trial_card(
                trial,
                process.attempt,
                ended,
                log=process.log,
                reached=reached,
                waits_s=self.study.delays.get(trial.trial_id, 0.0),
                again=self._plan.again,
            )
            is_failed = trial.status is Status.ERROR
            self._observers.tell(StudyObserver.trial_lost, trial, card, is_last=is_failed)
        elif trial.status is Status.PAUSED:
            self._observers.tell(StudyObserver.trial_paused, trial)

    def _tell_of_ends(self) -> None:
        for trial in self._journal.take_ended():
            if trial.trial_id in self._checkpoints:
                self._sweep(trial, looks=trial.run.attempts > 1)
                del self._checkpoints[trial.trial_id]
            self._watch.forget(trial.trial_id)
            self._observers.tell(StudyObserver.trial_ended, trial)
