"""A study without processes, for tests of schedulers: requests are carried out at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.core.checkpoint.record import Kept
from holdfast.core.study.trial import Donor, Status
from holdfast.tune.schedulers import TrialScheduler
from holdfast.tune.trial import Trial

Score = Callable[[Trial, int], Any]
MISSING = object()
STUCK_AFTER = 6_000


def constant(trial: Trial, _: int) -> Any:
    """The higher its number, the better a trial is, from the beginning."""
    return trial.number


class FakeStudy:
    """Runs trials in which one step is one unit of every kind of time.

    Args:
        scheduler: The scheduler under test.
        slots: How many trials run at the same time, if each wants one CPU.
        score: What a trial reports at a time; MISSING for nothing.
        remade: Makes a scheduler like it, to take its state and its place after every call.
        is_chatty: Whether the scheduler also hears of what it has asked for itself, and of trials
            that come back after a loss; it must not depend on that.
    """

    def __init__(
        self,
        scheduler: TrialScheduler,
        *,
        slots: int = 4,
        score: Score = constant,
        remade: Callable[[], TrialScheduler] | None = None,
        is_chatty: bool = False,
    ) -> None:
        self.scheduler = scheduler
        self.slots = slots
        self.score = score
        self.remade = remade
        self.is_chatty = is_chatty
        self.trials: list[Trial] = []
        self.times: dict[str, int] = {}
        self.log: list[tuple[Any, ...]] = []
        # All configs that the weights of a trial have been trained with, step by step.
        self.weights: dict[str, tuple[dict[str, Any], ...]] = {}
        self._stored: dict[tuple[str, str], tuple[dict[str, Any], ...]] = {}
        self.files: dict[str, str] = {}
        self.takes_files = True
        self._reports: dict[str, int] = {}
        self._asked: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    # ------------------------------------------------------------------ what schedulers see

    def get_trials(self) -> Sequence[Trial]:
        return [trial for trial in self.trials if not trial.is_finished()]

    def get_trial(self, trial_id: str) -> Trial | None:
        return next((trial for trial in self.get_trials() if trial.trial_id == trial_id), None)

    def has_resources_for_trial(self, trial: Trial) -> bool:
        wanted = sum(bundle.get("CPU", 0) for bundle in trial.resources)
        return wanted <= self.free_resources()["CPU"]

    def free_resources(self) -> Mapping[str, float]:
        running = (trial for trial in self.trials if trial.status == Status.RUNNING)
        used = sum(bundle.get("CPU", 0) for trial in running for bundle in trial.resources)
        return {"CPU": self.slots - used}

    def stop_trial(self, trial: Trial) -> None:
        self._ask(self._stop_asked, trial)

    def pause_trial(self, trial: Trial, *, should_checkpoint: bool = True) -> None:
        self._ask(self._pause if should_checkpoint else self._pause_unsaved, trial)

    def save_trial(self, trial: Trial) -> None:
        self._ask(self._save, trial)

    def exploit(self, trial: Trial, donor: Trial, config: dict[str, Any], tag: str) -> bool:
        if not donor.checkpoints.usable():
            return False
        self._ask(self._exploit, trial, donor, config, tag)
        return True

    def resize(self, trial: Trial, resources: Sequence[Mapping[str, float]]) -> None:
        self._ask(self._resize, trial, tuple(resources))

    # ------------------------------------------------------------------ what happens in it

    def add(self, config: dict[str, Any] | None = None, cpus: float = 1.0) -> Trial:
        number = len(self.trials)
        trial = Trial(
            f"t{number}", number, config or {}, experiment_tag=str(number),
            resources=({"CPU": cpus},),
        )  # fmt: skip
        self.trials.append(trial)
        self.times[trial.trial_id] = 0
        self.weights[trial.trial_id] = ()
        self._tell("on_trial_add", trial)
        return trial

    def choose(self) -> Trial | None:
        chosen = self.scheduler.choose_trial_to_run(self)
        assert self.scheduler.choose_trial_to_run(self) is chosen
        self._note("chosen", chosen and chosen.trial_id)
        return chosen

    def start(self, trial: Trial) -> None:
        trial.status = Status.RUNNING

    def fill(self) -> None:
        while (chosen := self.choose()) is not None:
            assert chosen.status in (Status.PENDING, Status.PAUSED)
            assert self.has_resources_for_trial(chosen)
            self.start(chosen)

    def report(self, trial: Trial, time: int | None = None, **metrics: Any) -> str:
        """One more result of a running trial, and all that follows from it."""
        now = self.times[trial.trial_id] + 1 if time is None else time
        self.times[trial.trial_id] = trial.step = now
        self.weights[trial.trial_id] += (dict(trial.config),)
        self._reports[trial.trial_id] = len(self.log)
        score = self.score(trial, now)
        result = {"training_iteration": now, "time_total_s": float(now)}
        result |= {} if score is MISSING else {"score": score}
        result |= metrics
        trial.last_result = result
        decision = self._tell("on_trial_result", trial, result)
        self._note("decided", trial.trial_id, now, decision)
        if decision == TrialScheduler.PAUSE:
            self._pause(trial)
        elif decision == TrialScheduler.STOP:
            self._stop(trial, is_told=self.is_chatty)
        self._perform()
        assert isinstance(decision, str)
        return decision

    def complete(self, trial: Trial) -> None:
        """A running trial comes to its own end."""
        self._stop(trial)
        self._perform()

    def lose(self, trial: Trial, *, for_good: bool = False) -> None:
        """A running trial fails; what it had not saved is lost."""
        trial.status = Status.ERROR if for_good else Status.PENDING
        self._rewind(trial)
        if for_good or self.is_chatty:
            self._tell("on_trial_error", trial)
        if not for_good and self.is_chatty:
            self._tell("on_trial_add", trial)
        self._perform()

    def _turn(self, trial: Trial) -> tuple[int, int]:
        """Return what trials take turns by: how often each has reported, then their numbers."""
        return self._reports.get(trial.trial_id, 0), trial.number

    def run(self, supply: int = 0, *, until: int | None = None) -> None:
        """Run until nothing can run any more; `supply` more trials are made as there is room."""
        for _ in range(STUCK_AFTER):
            while supply and not any(trial.status == Status.PENDING for trial in self.trials):
                self.add()
                supply -= 1
            self.fill()
            running = [trial for trial in self.trials if trial.status == Status.RUNNING]
            if not running:
                return
            trial = min(running, key=self._turn)
            if until is not None and self.times[trial.trial_id] >= until:
                self.complete(trial)
            else:
                self.report(trial)
        raise AssertionError(f"no end in sight: {self.scheduler.debug_string()}")

    def statuses(self) -> list[str]:
        return [str(trial.status) for trial in self.trials]

    def reached(self) -> list[int]:
        return [self.times[trial.trial_id] for trial in self.trials]

    # ------------------------------------------------------------------ how it is carried out

    def _tell(self, hook: str, *args: Any) -> Any:
        answer = getattr(self.scheduler, hook)(self, *args)
        if self.takes_files:
            for name, text in self.scheduler.take_files().items():
                self.files[name] = self.files.get(name, "") + text
        if self.remade is not None:
            state = json.loads(json.dumps(self.scheduler.get_state()))
            self.scheduler = self.remade()
            self.scheduler.set_state(state)
        return answer

    def _note(self, *what: Any) -> None:
        self.log.append(what)

    def _ask(self, what: Callable[..., None], *args: Any) -> None:
        self._asked.append((what, args))

    def _perform(self) -> None:
        while self._asked:
            what, args = self._asked.pop(0)
            self._note(
                what.__name__,
                *(value.trial_id if isinstance(value, Trial) else value for value in args),
            )
            what(*args)

    def _stop_asked(self, trial: Trial) -> None:
        self._stop(trial, is_told=self.is_chatty)

    def _stop(self, trial: Trial, *, is_told: bool = True) -> None:
        if trial.is_finished():
            return
        was_running = trial.status == Status.RUNNING
        trial.status = Status.TERMINATED
        if is_told and was_running:
            self._tell("on_trial_complete", trial, trial.last_result)
        elif is_told:
            self._tell("on_trial_remove", trial)

    def _pause(self, trial: Trial, *, should_checkpoint: bool = True) -> None:
        if should_checkpoint:
            self._save(trial)
        trial.status = Status.PAUSED
        self._tell("on_trial_pause", trial)

    def _pause_unsaved(self, trial: Trial) -> None:
        self._pause(trial, should_checkpoint=False)

    def _save(self, trial: Trial) -> None:
        record = trial.checkpoints
        saved = Kept(
            number=record.next_number, directory=f"checkpoint_{record.next_number:06}", epoch=1,
            attempt=1, step=self.times[trial.trial_id], metrics=trial.last_result, created=0.0,
        )  # fmt: skip
        record.apply("checkpoint_committed", saved.to_data())
        self._stored[trial.trial_id, saved.directory] = self.weights[trial.trial_id]
        trial.donor = None

    def _exploit(self, trial: Trial, donor: Trial, config: dict[str, Any], tag: str) -> None:
        trial.config, trial.experiment_tag = config, tag
        newest = donor.checkpoints.usable()[0]
        trial.donor = Donor(donor.trial_id, newest.directory, result=newest.metrics)
        self._rewind(trial)
        was_running, trial.status = trial.status == Status.RUNNING, Status.PAUSED
        if was_running:
            self._tell("on_trial_pause", trial)

    def _rewind(self, trial: Trial) -> None:
        """Have a trial be where it goes on from."""
        usable = trial.checkpoints.usable()
        own = Donor(trial.trial_id, usable[0].directory if usable else "")
        source = (trial.donor or own)[:2]
        [owner] = (other for other in self.trials if other.trial_id == source[0])
        steps = (saved.step for saved in owner.checkpoints.usable() if saved.directory == source[1])
        self.times[trial.trial_id] = trial.step = next(steps, 0) or 0
        self.weights[trial.trial_id] = self._stored.get(source, ())

    def _resize(self, trial: Trial, resources: tuple[Mapping[str, float], ...]) -> None:
        if trial.status == Status.RUNNING:
            self._pause(trial)
        trial.resources = resources
