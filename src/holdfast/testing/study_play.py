"""Studies played in memory: the real machine and judges, with trials made of arithmetic.

A trial's results are a function of its config and iteration, which counts on from the checkpoint
that the trial began with, its own or another trial's. They also tell what training is really in it:
how many steps, as `trained`, and a digest of the configs of all steps, as `weights`. Which of the
running trials reports next is a function of the trial and the step, so that a study that was
cut off and went on hears the same in the same order, and must decide the same. `cut` tells after
how many events the driver dies.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from holdfast.control.study.reader import rebuild
from holdfast.control.study.tail import StudyTail
from holdfast.core.run.machine import Active
from holdfast.core.run.outcomes import Died, Evicted, Finished
from holdfast.core.study.events import (
    STATE,
    SearchEnded,
    StudyEvent,
    StudyOpened,
    TrialAdded,
    TrialCheckpointChanged,
    TrialExited,
    TrialReported,
    TrialStarted,
    from_data,
    to_data,
)
from holdfast.core.study.judges import Judges
from holdfast.core.study.machine import Study
from holdfast.core.study.rules import Rules
from holdfast.core.study.trial import Status, Trial, Verdict
from holdfast.tune.schedulers import TrialScheduler
from holdfast.tune.search.generator import SearchPlan
from holdfast.tune.stopper import Stopper, stopper_of
from holdfast.tune.trial import Trial as PublicTrial

Event = tuple[str, dict[str, Any]]

NEEDS = [{"CPU": 1.0}]  # of every trial, unless the scheduler says otherwise


class Cut(Exception):
    """The driver dies here."""


@dataclass(frozen=True, kw_only=True)
class Script:
    """What is played.

    Attributes:
        scheduler, search: Make those who judge, anew for every driver.
        score: The metrics of a step, given the config and the iteration.
        steps: At which iteration a trial is done.
        room: How many trials run at once.
        saves_every: After how many steps a trial saves itself; 0 if only when it is asked.
        dies: Whether a process dies before it reports: given the trial's number, step, attempt.
        states_every: After how many events the whole state is written down; 0 for never.
    """

    scheduler: Callable[[], TrialScheduler]
    search: Callable[[], SearchPlan]
    score: Callable[[Mapping[str, Any], int], dict[str, Any]]
    steps: int = 9
    room: int = 3
    saves_every: int = 1
    stop: Any = None
    rules: Rules = field(default_factory=Rules)
    dies: Callable[[int, int, int], bool] | None = None
    states_every: int = 0


@dataclass
class Played:
    """What came of it.

    Attributes:
        decisions: By trial and step, in the order in which they were made.
        trials: How every trial ended, by its number.
        events: What happened.
        decided: By which of the events each decision was made.
    """

    decisions: list[tuple[int, int, str]]
    trials: dict[int, dict[str, Any]]
    events: list[Event]
    decided: list[int]


class Training(NamedTuple):
    """What training is in the weights of a trial, or of a checkpoint.

    Attributes:
        steps: How many.
        weights: A digest of the configs of all of them, in their order.
    """

    steps: int = 0
    weights: str = ""

    def further(self, config: Mapping[str, Any]) -> Training:
        """Return what one more step with a config makes of it."""
        history = f"{self.weights}:{json.dumps(config, sort_keys=True)}"
        return Training(self.steps + 1, hashlib.sha256(history.encode()).hexdigest()[:16])


class StrictJudges(Judges):
    """Those who judge, whose failures are failures: a study would go on without their answer."""

    def tell_failure(self, whom: str, error: Exception, then: str) -> None:
        raise error


class Driver:
    """One driver of a study that is played."""

    def __init__(self, script: Script, past: Sequence[Event]) -> None:
        self._script = script
        self._plan = script.search()
        stopper: Stopper = stopper_of(script.stop)
        judges = StrictJudges(self._plan, script.scheduler(), stopper)
        self.study = Study(judges, script.rules, PublicTrial)
        tail = StudyTail()
        for kind, data in past:
            tail.apply(kind, data)
        rebuild(self.study, tail)
        self._saved: dict[tuple[str, str], Training] = {}  # by the folders of trial and checkpoint
        for kind, data in past:
            self._note_saved(kind, data)
        self._training: dict[str, Training] = {}  # in each process
        self._iterations: dict[str, int] = {}  # that each process has come to
        self.events: list[Event] = []
        self.decisions: list[tuple[int, int, str]] = []
        self.decided: list[int] = []
        self._left: int | None = None

    def play(self, cut: int | None = None) -> None:
        """Drive the study to its end, or until `cut` more events have happened."""
        self._left = cut
        rooms = {"node": {"CPU": float(self._script.room)}}
        self._happen(StudyOpened(rooms=rooms, needs=self._needs()))
        idle = 0
        while not self.study.is_over:
            before = len(self.events)
            self._carry_out()
            self._make_and_start()
            self._report_one()
            idle = 0 if len(self.events) > before else idle + 1
            assert idle < 3, f"nothing happens any more: {self.study.get_trials()}"

    def _happen(self, event: StudyEvent) -> None:
        if self._left == 0:
            raise Cut
        if self._left is not None:
            self._left -= 1
        kind, data = event.kind, _json(to_data(event))
        self.events.append((kind, data))
        self._note_saved(kind, data)
        self.study.take(from_data(kind, data))
        every = self._script.states_every
        if every and len(self.events) % every == 0:
            self.events.append((STATE, _json(self.study.get_state())))

    def _note_saved(self, kind: str, data: Mapping[str, Any]) -> None:
        if kind == TrialCheckpointChanged.kind:
            metrics = data["facts"]["metrics"]
            training = Training(metrics["trained"], metrics.get("weights", ""))
            self._saved[data["id"], data["facts"]["directory"]] = training

    # ------------------------------------------------------------------ as the controller does

    def _carry_out(self) -> None:
        for trial in self._running():
            if not trial.needs_process:
                self._exit(trial, Evicted(0, "node"))

    def _make_and_start(self) -> None:
        while True:
            if self.study.lacks_trials() and self._make():
                continue
            trial = self.study.next_to_start()
            if trial is not None:
                self._start(trial)
            elif not self.study.wants_more() or not self._make():
                return

    def _make(self) -> bool:
        proposal = self._plan.next()
        if proposal is None:
            return False
        if isinstance(proposal, str):
            self._happen(SearchEnded())
            return False
        data = proposal.to_data()
        added = TrialAdded(
            trial_id=proposal.trial_id,
            number=proposal.number,
            config=data["config"],
            params=data["evaluated_params"],
            tag=proposal.experiment_tag,
            trainable="f",
            folder=proposal.trial_id,
            resources=NEEDS,
        )
        self._happen(added)
        return True

    def _needs(self) -> dict[str, Any]:
        trials = self.study.get_trials()
        return {trial.trial_id: trial.resources if trial.is_resized else NEEDS for trial in trials}

    def _start(self, trial: Trial) -> None:
        places = self.study.place(trial)
        assert places is not None
        attempt = trial.run.attempts + (0 if isinstance(trial.run.phase, Active) else 1)
        place, after, before = _beginning(trial)
        self._training[trial.trial_id] = self._saved.get(place, Training())
        self._iterations[trial.trial_id] = before.get("training_iteration", 0)
        self._happen(TrialStarted(trial.trial_id, attempt, places, after, time=0.0))
        self._catch_up(trial)

    def _catch_up(self, trial: Trial) -> None:
        """Do again, at once, the steps that were judged before."""
        while trial.status is Status.RUNNING and trial.step < trial.decision.step:
            self._step(trial)

    def _report_one(self) -> None:
        running = self._running()
        if running:
            self._step(min(running, key=lambda trial: _turn(trial.number, trial.step + 1)))

    def _running(self) -> list[Trial]:
        return [trial for trial in self.study.get_trials() if trial.status is Status.RUNNING]

    def _step(self, trial: Trial) -> None:
        step = trial.step + 1
        dies = self._script.dies
        if dies is not None and dies(trial.number, step, trial.run.attempts):
            self._exit(trial, Died(0, "node", 1, signal=9))
            if trial.status is Status.PENDING:
                self._start(trial)
            return
        was_judged = trial.decision.step
        training = self._training[trial.trial_id].further(trial.config)
        iteration = self._iterations[trial.trial_id] + 1
        self._training[trial.trial_id], self._iterations[trial.trial_id] = training, iteration
        result = self._script.score(trial.config, iteration)
        result |= {"trained": training.steps, "weights": training.weights}
        result |= {"training_iteration": iteration, "done": iteration >= self._script.steps}
        at = len(self.events)
        self._happen(TrialReported(trial.trial_id, trial.run.attempts, step, result))
        reply = trial.reply()
        if step > was_judged:
            self.decisions.append((trial.number, step, reply.verdict))
            self.decided.append(at)
        every = self._script.saves_every
        ends = reply.verdict is Verdict.STOP or result["done"]
        if (
            reply.save
            or (every and iteration % every == 0)
            or (ends and self._script.rules.saves_at_end)
        ):
            self._save(trial, step)
        if ends:
            self._exit(trial, Finished(0, "node"), "done")
        elif reply.verdict is Verdict.PAUSE:
            self._exit(trial, Finished(0, "node"), "paused")

    def _save(self, trial: Trial, step: int) -> None:
        number = trial.checkpoints.next_number
        facts = {
            "number": number,
            "directory": f"checkpoint_{number:06d}",
            "epoch": 1,
            "attempt": trial.run.attempts,
            "step": step,
            "metrics": trial.last_result,
            "created": 0.0,
            "problems": [],
            "pins": [],
        }
        self._happen(TrialCheckpointChanged(trial.trial_id, "checkpoint_committed", facts))

    def _exit(self, trial: Trial, ended: Any, how: str = "") -> None:
        self._happen(TrialExited(trial.trial_id, trial.run.attempts, how, ended))


def _beginning(trial: Trial) -> tuple[tuple[str, str], int, Mapping[str, Any]]:
    """Return where a trial begins: folders of the checkpoint, steps by then, the last result."""
    if trial.donor is not None:
        return (trial.donor.folder, trial.donor.directory), trial.donor.step, trial.donor.result
    newest = trial.checkpoints.newest()
    if newest is None:
        return (trial.folder, ""), 0, {}
    return (trial.folder, newest.directory), newest.step or 0, newest.metrics


@functools.cache
def _turn(number: int, step: int) -> str:
    """Return when a trial's step comes among others: anyhow, but always the same."""
    return hashlib.sha256(f"{number}:{step}".encode()).hexdigest()


def _json(data: Any) -> Any:
    return json.loads(json.dumps(data))


def play(script: Script, cuts: Sequence[int] = (), *, past: Sequence[Event] = ()) -> Played:
    """Play a study to its end; after each of `cuts` events its driver dies, and another comes.

    With a `past` under other drivers, what is returned is what has happened since.
    """
    played = Played([], {}, [], [])
    left: list[int | None] = [*cuts, None]
    while True:
        driver = Driver(script, [*past, *played.events])
        with contextlib.suppress(Cut):
            driver.play(left.pop(0))
        played.decided += [len(played.events) + at for at in driver.decided]
        played.events += driver.events
        played.decisions += driver.decisions
        if driver.study.is_over:
            over = {trial.number: _ended(trial) for trial in driver.study.finished.values()}
            played.trials = dict(sorted(over.items()))
            return played


def _ended(trial: Trial) -> dict[str, Any]:
    return {
        "status": str(trial.status),
        "config": trial.config,
        "tag": trial.experiment_tag,
        "step": trial.step,
        "loss": trial.last_result.get("loss"),
        "iteration": trial.last_result.get("training_iteration"),
        "trained": trial.last_result.get("trained"),
        "weights": trial.last_result.get("weights"),
        "resources": trial.resources,
    }
