"""Population based training: bad trials go on from copies of good ones, with changed configs.

Jaderberg et al., "Population Based Training of Neural Networks".
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from holdfast.core.checkpoint.retention import score_of
from holdfast.core.config_data import as_kept
from holdfast.core.study.trial import Status, Trial
from holdfast.core.study.view import StudyView
from holdfast.errors import ConfigError
from holdfast.tune.errors import TuneError
from holdfast.tune.schedulers.arguments import Arguments, checking_arguments
from holdfast.tune.schedulers.explore import (
    Config,
    broken_mutation_rules,
    complete,
    explored_by,
    perturbed,
    tag_for,
    values_outside,
)
from holdfast.tune.schedulers.lineage import Lineage, iteration_in, saved_iteration
from holdfast.tune.schedulers.pbt_replay import PopulationBasedTrainingReplay
from holdfast.tune.schedulers.scored_scheduler import ScoredScheduler, order_of
from holdfast.tune.schedulers.trial_scheduler import WAITING, first_that_fits
from holdfast.tune.search.seeding import generator_for, seed_of

__all__ = ["PopulationBasedTraining", "PopulationBasedTrainingReplay"]

log = logging.getLogger(__name__)


class NothingToExplore(ConfigError, TuneError):
    """Nothing says how configs are to be changed."""


@dataclass
class Standing:
    """How a trial of the population stands.

    Attributes:
        tag: Its tag before it was ever changed.
        time: How far it was when its last interval ended.
        iteration: Its iteration then.
        score: How good it was then, None before the first.
        judged_at: From when on its interval counts.
        turn: How many intervals of all trials had ended when its own last one did.
    """

    tag: str
    time: float = 0.0
    iteration: int = 0
    score: float | None = None
    judged_at: float = 0.0
    turn: int = 0


class PopulationBasedTraining(ScoredScheduler):
    """At intervals, has the worst trials of a population go on from the best, a bit different.

    Args:
        time_attr: What tells in results how far a trial is.
        metric: What to judge by.
        mode: Whether `metric` should become "min" or "max".
        perturbation_interval: How far trials run from one judgement to the next.
        burn_in_period: Nothing is judged before.
        hyperparam_mutations: What may change, by key: a list, a domain, or a function without
            arguments that draws a value; nested as the config is. A number never leaves its domain.
        quantile_fraction: Which part of the population is replaced by which part of it.
        resample_probability: How often a value is drawn anew instead of changed.
        perturbation_factors: By one of these a number is multiplied; a whole number becomes the
            nearest, and moves by one at least.
        custom_explore_fn: What changes a config, which it is given after the mutations.
        log_config: Whether each step is written to `pbt_global.txt` and `pbt_policy_*.txt`.
        require_attrs: Whether it is said if results lack what to judge by.
        synch: Whether all trials wait for each other at the end of an interval.
        seed: What decides everything random; None for any.
    """

    requires_checkpoints = True
    accepts_searcher = False
    trials_ahead = 1000  # the population is there from the beginning, and takes turns

    _interval: float
    _burn_in: float
    _mutations: Mapping[str, Any]
    _quantile: float
    _resample: float
    _factors: Sequence[float]
    _explore_fn: Callable[[Config], Config] | None
    _log_config: bool
    _require_attrs: bool
    _synch: bool
    _seed: int
    _standings: dict[str, Standing]
    _lineage: Lineage
    _turns: int
    _tries: int
    _exploits: int
    _next_meeting: float

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: float = 60.0,
        burn_in_period: float = 0.0,
        hyperparam_mutations: Mapping[str, Any] | None = None,
        quantile_fraction: float = 0.25,
        resample_probability: float = 0.25,
        perturbation_factors: Sequence[float] = (1.2, 0.8),
        custom_explore_fn: Callable[[Config], Config] | None = None,
        log_config: bool = True,  # noqa: FBT001, FBT002  # as it was always called
        require_attrs: bool = True,  # noqa: FBT001, FBT002
        synch: bool = False,  # noqa: FBT001, FBT002
        *,
        seed: int | None = None,
    ) -> None:
        with checking_arguments(
            self, time_attr=time_attr, metric=metric, mode=mode, seed=seed,
            perturbation_interval=perturbation_interval, burn_in_period=burn_in_period,
            hyperparam_mutations=hyperparam_mutations, quantile_fraction=quantile_fraction,
            resample_probability=resample_probability, perturbation_factors=perturbation_factors,
            custom_explore_fn=custom_explore_fn, log_config=log_config,
            require_attrs=require_attrs, synch=synch,
        ) as found:  # fmt: skip
            _check(found, hyperparam_mutations, perturbation_factors)
        if not hyperparam_mutations and custom_explore_fn is None:
            raise NothingToExplore(
                f"{type(self).__name__} has nothing that it could change in a config",
                hint="hyperparam_mutations={'lr': tune.uniform(0.001, 0.1)}, or custom_explore_fn",
            )
        super().__init__(time_attr, metric, mode)
        self._interval, self._burn_in = perturbation_interval, burn_in_period
        self._mutations = hyperparam_mutations or {}
        self._quantile, self._resample = quantile_fraction, resample_probability
        self._factors = tuple(perturbation_factors)
        self._explore_fn = custom_explore_fn
        self._log_config, self._require_attrs = bool(log_config), bool(require_attrs)
        self._synch = bool(synch)
        self._seed = seed_of(seed)
        self._standings = {}
        self._lineage = Lineage()
        self._turns, self._tries, self._exploits = 0, 0, 0
        self._next_meeting = max(perturbation_interval, burn_in_period)

    def check_space(self, space: Mapping[str, Any]) -> None:
        """Raise `ConfigError` if a trial would begin where its values are never moved to."""
        if outside := values_outside(space, self._mutations):
            raise ConfigError(
                f"param_space begins outside of what {type(self).__name__} explores: "
                f"{'; '.join(outside)}",
                hint="begin inside, or widen the domain: every later value is moved within it",
            )

    def on_trial_add(self, view: StudyView, trial: Trial) -> None:
        """Draw for its config what it lacks."""
        super().on_trial_add(view, trial)
        if trial.trial_id not in self._standings:
            self._standings[trial.trial_id] = Standing(trial.experiment_tag)
            complete(trial.config, self._mutations, generator_for(self._seed, "add", trial.number))
            trial.config = as_kept(trial.config)

    def on_trial_result(self, view: StudyView, trial: Trial, result: dict[str, Any]) -> str:
        standing = self._standings.get(trial.trial_id)
        time, score = self._time(result), self._score(result)
        if standing is None or time is None or score is None:
            return self.CONTINUE
        if self._has_arrived(trial):
            return self._meet_or_wait(view, trial)  # it was sent ahead, or had to come again
        due = self._next_meeting if self._synch else standing.judged_at + self._interval
        if time < max(due, self._burn_in):
            return self.CONTINUE
        self._end_interval(trial, time, score)
        self._turns += 1
        standing.time, standing.score, standing.turn = time, score, self._turns
        standing.iteration = iteration_in(result, standing.iteration)
        if self._synch:
            return self._meet_or_wait(view, trial)
        standing.judged_at = time
        lower, upper = self._quantiles(view)
        if trial in lower and self._exploit(view, trial, upper):
            return self.NOOP
        if any(other is not trial and other.status in WAITING for other in view.get_trials()):
            return self.PAUSE
        if trial in upper:
            view.save_trial(trial)
        return self.CONTINUE

    def on_trial_complete(self, view: StudyView, trial: Trial, result: dict[str, Any]) -> None:
        self._leave(view, trial)

    def on_trial_remove(self, view: StudyView, trial: Trial) -> None:
        self._leave(view, trial)

    def on_trial_error(self, view: StudyView, trial: Trial) -> None:
        if trial.is_finished():
            self._leave(view, trial)

    def on_trial_pause(self, view: StudyView, trial: Trial) -> None:
        """Hold a meeting if it was this trial that the others waited for."""
        if self._has_arrived(trial) and self._is_meeting(view):
            self._meet(view)

    def choose_trial_to_run(self, view: StudyView) -> Trial | None:
        """Return the trial that has come least far, so that all take turns.

        Of equals, the one that has waited longest: who was copied is as far as its donor, and would
        else run, lose and be copied again for ever before the donor comes any further.
        """
        trials = view.get_trials()
        waiting = [trial for trial in trials if trial.status in WAITING]
        # Who has arrived and is not paused was lost before it had saved, and must come again.
        free = [
            one for one in waiting if one.status == Status.PENDING or not self._has_arrived(one)
        ]
        free.sort(key=self._place_in_line)
        if not free and not any(trial.status == Status.RUNNING for trial in trials):
            # Whoever they wait for will not come; the worst has the least to lose by going ahead.
            free = sorted(waiting, key=self._worst_first)
        return first_that_fits(view, free)

    def debug_string(self) -> str:
        return f"{type(self).__name__}: {self._exploits} perturbs"

    def take_files(self) -> dict[str, str]:
        return self._lineage.take_files()

    def get_state(self) -> dict[str, Any]:
        return {
            **super().get_state(),
            "seed": self._seed,
            "standings": {name: asdict(one) for name, one in self._standings.items()},
            "lineage": self._lineage.to_data(),
            "turns": self._turns,
            "tries": self._tries,
            "exploits": self._exploits,
            "next_meeting": self._next_meeting,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        self._seed = state["seed"]
        self._standings = {name: Standing(**one) for name, one in state["standings"].items()}
        self._lineage = Lineage.from_data(state["lineage"])
        self._turns = state["turns"]
        self._tries, self._exploits = state["tries"], state["exploits"]
        self._next_meeting = state["next_meeting"]

    def _end_interval(self, trial: Trial, time: float, score: float) -> None:
        """Learn from an interval that is over, before it is judged."""

    def _mutate(self, view: StudyView, trial: Trial, donor: Trial) -> Config:
        """Return what the config of `donor` becomes for `trial`."""
        return perturbed(
            donor.config, self._mutations, generator_for(self._seed, "mutate", self._tries),
            resample_probability=self._resample, factors=self._factors,
        )  # fmt: skip

    def _become(self, trial: Trial, donor: Trial, config: Config) -> None:
        """Take over how the donor stood when it saved what the trial goes on from.

        It may have gone on since, or may not have saved when it was judged.
        """
        standing, source = self._standings[trial.trial_id], self._standings[donor.trial_id]
        donation = donor.donation()
        time = None if donation is None else score_of(donation.result, self._time_attr)
        standing.time = source.time if time is None or math.isnan(time) else time
        standing.judged_at = min(source.judged_at, standing.time)
        standing.iteration = saved_iteration(donor)

    def _forget(self, trial_id: str) -> None:
        """Drop what is of no use once a trial is over."""
        self._standings.pop(trial_id, None)
        self._lineage.forget(trial_id)

    def _quantiles(self, view: StudyView) -> tuple[list[Trial], list[Trial]]:
        """Return the worst and the best of those that have been judged and are not over."""
        ranked = []
        for trial in view.get_trials():
            standing = self._standings.get(trial.trial_id)
            if standing and standing.score is not None and not math.isnan(standing.score):
                ranked.append((standing.score, -trial.number, trial))
        ranked.sort(key=lambda found: found[:2])
        size = min(math.ceil(len(ranked) * self._quantile), len(ranked) // 2)
        trials = [trial for *_, trial in ranked]
        return trials[:size], trials[len(trials) - size :]

    def _meet_or_wait(self, view: StudyView, last: Trial) -> str:
        """Return what becomes of a trial that has come to a meeting.

        Whoever is to be copied has saved by then: all others are paused, and if it is the last one
        itself, it pauses too.
        """
        if not self._is_meeting(view, last):
            return self.PAUSE
        _, upper = self._quantiles(view)
        if last in upper and not _has_saved(last):
            return self.PAUSE
        return self.NOOP if last in self._meet(view) else self.CONTINUE

    def _is_meeting(self, view: StudyView, last: Trial | None = None) -> bool:
        """Whether everybody is there, and nobody but the last to come is still saving."""
        trials = [trial for trial in view.get_trials() if trial.trial_id in self._standings]
        are_there = all(
            self._has_arrived(trial) and (trial is last or trial.status == Status.PAUSED)
            for trial in trials
        )
        return are_there and bool(trials)

    def _meet(self, view: StudyView) -> list[Trial]:
        """Judge all; return those that go on from another."""
        trials = [trial for trial in view.get_trials() if trial.trial_id in self._standings]
        times = [self._time_of(trial) for trial in trials]
        lower, upper = self._quantiles(view)
        moved = [trial for trial in lower if self._exploit(view, trial, upper)]
        self._next_meeting = max(self._next_meeting + self._interval, *times)
        return moved

    def _exploit(self, view: StudyView, trial: Trial, donors: Sequence[Trial]) -> bool:
        """Have a trial go on from one of the best that has saved; whether there was one."""
        self._tries += 1
        draw = generator_for(self._seed, "donor", self._tries)
        # Who was copied itself and has not saved since has only what it gave up.
        own = [donor for donor in donors if donor.donor is None]
        for donor in draw.sample(own, len(own)):
            config = self._mutate(view, trial, donor)
            if self._explore_fn is not None:
                config = explored_by(self._explore_fn, config, draw.getrandbits(32))
            config = as_kept(config)
            standing, source = self._standings[trial.trial_id], self._standings[donor.trial_id]
            tag = tag_for(standing.tag, config, self._mutations)
            if not view.exploit(trial, donor, config, tag):
                continue
            step = [
                standing.tag, source.tag, standing.iteration, saved_iteration(donor),
                donor.config, config,
            ]  # fmt: skip
            self._lineage.add(trial.trial_id, donor.trial_id, step, is_written=self._log_config)
            self._become(trial, donor, config)
            self._exploits += 1
            log.info("%s goes on from %s as %s", trial, donor, tag)
            return True
        log.info("%s stays as it is: none of the best trials has a checkpoint yet", trial)
        return False

    def _leave(self, view: StudyView, trial: Trial) -> None:
        self._forget(trial.trial_id)
        if self._synch and self._is_meeting(view):
            self._meet(view)  # the others have waited for nobody else

    def _has_arrived(self, trial: Trial) -> bool:
        return self._synch and self._time_of(trial) >= self._next_meeting

    def _place_in_line(self, trial: Trial) -> tuple[float, int, int]:
        standing = self._standings.get(trial.trial_id)
        return self._time_of(trial), standing.turn if standing else 0, trial.number

    def _worst_first(self, trial: Trial) -> tuple[float, int]:
        standing = self._standings.get(trial.trial_id)
        score = standing.score if standing and standing.score is not None else math.nan
        return order_of(score), -trial.number

    def _time_of(self, trial: Trial) -> float:
        standing = self._standings.get(trial.trial_id)
        return standing.time if standing else 0.0

    def _warn(self, what: str, name: str, result: Mapping[str, Any]) -> None:
        if self._require_attrs:
            super()._warn(what, name, result)


def _has_saved(trial: Trial) -> bool:
    """Whether a trial has a checkpoint of its own that is as far as it is."""
    return trial.donor is None and trial.saved_step() >= trial.step


def _check(found: Arguments, mutations: object, factors: object) -> None:
    found.metric()
    found.number("perturbation_interval", "trials run so far between judgements", above=0)
    found.number("burn_in_period", "nothing is judged before", at_least=0)
    found.number("quantile_fraction", "the worst become the best", at_least=0, at_most=0.5)
    found.number("resample_probability", "it is a probability", at_least=0, at_most=1)
    found.function("custom_explore_fn", "it takes a config and returns one")
    for name in ("log_config", "require_attrs", "synch"):
        found.flag(name)
    found.seed()
    if mutations is not None and not isinstance(mutations, Mapping):
        found.add("hyperparam_mutations", "not a dict of what may change")
    elif isinstance(mutations, Mapping):
        for line in broken_mutation_rules(mutations):
            found.tell(f"hyperparam_mutations: {line}")
    if not isinstance(factors, list | tuple) or not factors:
        found.add("perturbation_factors", "not a list of numbers to multiply by")
    elif not all(isinstance(one, int | float) and math.isfinite(one) for one in factors):
        found.add("perturbation_factors", "not only numbers to multiply by")
