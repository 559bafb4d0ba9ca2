"""Population based training: bad trials continue from copies of good ones, with changed configs.

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
from holdfast.core.study.trial import Status
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
from holdfast.tune.trial import StudyView, Trial

__all__ = ["PopulationBasedTraining", "PopulationBasedTrainingReplay"]

log = logging.getLogger(__name__)


class NothingToExplore(ConfigError, TuneError):
    """Neither mutations nor a function say how to change configs."""


@dataclass
class Standing:
    """The standing of a trial in the population.

    Attributes:
        tag: Its tag before it was first changed.
        time: Its progress when its last interval ended.
        iteration: Its iteration then.
        score: Its score then, None before the first interval has ended.
        judged_at: The progress at which its current interval started.
        turn: How many intervals of all trials had ended when its own last one did.
    """

    tag: str
    time: float = 0.0
    iteration: int = 0
    score: float | None = None
    judged_at: float = 0.0
    turn: int = 0


class PopulationBasedTraining(ScoredScheduler):
    """At intervals, makes the worst trials continue from the best ones, with changed configs.

    Args:
        time_attr: The result entry that measures progress.
        metric: The metric to judge by.
        mode: Whether `metric` should be small ("min") or large ("max").
        perturbation_interval: How far trials run from one judgement to the next.
        burn_in_period: No trial is judged before this progress.
        hyperparam_mutations: The values that may change, by key: a list, a domain, or a function
            without arguments that draws a value; nested like the config. A number never leaves its
            domain.
        quantile_fraction: Which part of the population is worst, and which is best.
        resample_probability: How often a value is drawn anew instead of changed.
        perturbation_factors: A number is multiplied by one of these; a whole number is rounded, and
            moves by at least one.
        custom_explore_fn: Changes a config, which it is given after the mutations.
        log_config: Whether each step is written to `pbt_global.txt` and `pbt_policy_*.txt`.
        require_attrs: Whether to warn if results lack `time_attr` or `metric`.
        synch: Whether all trials wait for each other at the end of an interval.
        seed: Seeds everything random; None for a random seed.
    """

    requires_checkpoints = True
    accepts_searcher = False
    trials_ahead = 1000  # the whole population exists from the start, and takes turns

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
    _sync_time: float

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
        log_config: bool = True,  # noqa: FBT001, FBT002  # as in Ray
        require_attrs: bool = True,  # noqa: FBT001, FBT002
        synch: bool = False,  # noqa: FBT001, FBT002
        *,
        seed: int | None = None,
    ) -> None:
        with checking_arguments(self, locals()) as arguments:
            _check(arguments, hyperparam_mutations, perturbation_factors)
        if not hyperparam_mutations and custom_explore_fn is None:
            raise NothingToExplore(
                f"{type(self).__name__} has nothing to change in a config",
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
        self._sync_time = max(perturbation_interval, burn_in_period)

    def check_space(self, space: Mapping[str, Any]) -> None:
        """Raise `ConfigError` if a trial would start with a value outside of its mutation."""
        if outside := values_outside(space, self._mutations):
            raise ConfigError(
                f"param_space starts outside of what {type(self).__name__} explores: "
                f"{'; '.join(outside)}",
                hint="start inside, or widen the domain: every later value stays within it",
            )

    def on_trial_add(self, view: StudyView, trial: Trial) -> None:
        """Draw the values that its config lacks."""
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
            return self._judge_all_or_wait(view, trial)  # sent ahead, or back after a loss
        due = self._sync_time if self._synch else standing.judged_at + self._interval
        if time < max(due, self._burn_in):
            return self.CONTINUE
        self._end_interval(trial, time, score)
        self._turns += 1
        standing.time, standing.score, standing.turn = time, score, self._turns
        standing.iteration = iteration_in(result, standing.iteration)
        if self._synch:
            return self._judge_all_or_wait(view, trial)
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
        """Judge all trials if this was the last one that the others waited for."""
        if self._has_arrived(trial) and self._can_judge_all(view):
            self._judge_all(view)

    def choose_trial_to_run(self, view: StudyView) -> Trial | None:
        """Return the trial with the least progress, so that all take turns.

        Of equals, the one that has waited longest. A copy has the progress of its donor: otherwise
        it could run, lose and be copied again forever before the donor gets a turn.
        """
        trials = view.get_trials()
        waiting = [trial for trial in trials if trial.status in WAITING]
        # A trial that has arrived and is pending was lost before it saved: it must run again.
        free = [
            trial
            for trial in waiting
            if trial.status == Status.PENDING or not self._has_arrived(trial)
        ]
        free.sort(key=self._place_in_line)
        if not free and not any(trial.status == Status.RUNNING for trial in trials):
            # All wait for a trial that will not come; the worst has the least to lose by going on.
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
            "standings": {name: asdict(standing) for name, standing in self._standings.items()},
            "lineage": self._lineage.to_data(),
            "turns": self._turns,
            "tries": self._tries,
            "exploits": self._exploits,
            "next_meeting": self._sync_time,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        self._seed = state["seed"]
        self._standings = {name: Standing(**data) for name, data in state["standings"].items()}
        self._lineage = Lineage.from_data(state["lineage"])
        self._turns = state["turns"]
        self._tries, self._exploits = state["tries"], state["exploits"]
        self._sync_time = state["next_meeting"]

    def _end_interval(self, trial: Trial, time: float, score: float) -> None:
        """Learn from an interval that has ended, before the trial is judged."""

    def _mutate(self, view: StudyView, trial: Trial, donor: Trial) -> Config:
        """Return the config for `trial`, made from that of `donor`."""
        return perturbed(
            donor.config, self._mutations, generator_for(self._seed, "mutate", self._tries),
            resample_probability=self._resample, factors=self._factors,
        )  # fmt: skip

    def _inherit(self, trial: Trial, donor: Trial, config: Config) -> None:
        """Give a trial the standing that its donor had at the checkpoint it continues from.

        The donor may have run on since, or may not have saved when it was judged.
        """
        standing, source = self._standings[trial.trial_id], self._standings[donor.trial_id]
        donation = donor.donation()
        time = None if donation is None else score_of(donation.result, self._time_attr)
        standing.time = source.time if time is None or math.isnan(time) else time
        standing.judged_at = min(source.judged_at, standing.time)
        standing.iteration = saved_iteration(donor)

    def _forget(self, trial_id: str) -> None:
        """Drop what is useless once a trial is over."""
        self._standings.pop(trial_id, None)
        self._lineage.forget(trial_id)

    def _quantiles(self, view: StudyView) -> tuple[list[Trial], list[Trial]]:
        """Return the worst and the best of the trials that have a score and are not over."""
        ranked = []
        for trial in view.get_trials():
            standing = self._standings.get(trial.trial_id)
            if standing and standing.score is not None and not math.isnan(standing.score):
                ranked.append((standing.score, -trial.number, trial))
        ranked.sort(key=lambda entry: entry[:2])
        size = min(math.ceil(len(ranked) * self._quantile), len(ranked) // 2)
        trials = [trial for *_, trial in ranked]
        return trials[:size], trials[len(trials) - size :]

    def _judge_all_or_wait(self, view: StudyView, last: Trial) -> str:
        """Return the decision for a trial that has reached the end of a synchronous interval.

        Donors must have saved before all are judged. The other trials are paused, so they have;
        `last` pauses first if it is among the best.
        """
        if not self._can_judge_all(view, last):
            return self.PAUSE
        _, upper = self._quantiles(view)
        if last in upper and not _has_saved(last):
            return self.PAUSE
        return self.NOOP if last in self._judge_all(view) else self.CONTINUE

    def _can_judge_all(self, view: StudyView, last: Trial | None = None) -> bool:
        """Return whether all trials have arrived, and all but `last` are paused."""
        trials = self._population(view)
        all_arrived = all(
            self._has_arrived(trial) and (trial is last or trial.status == Status.PAUSED)
            for trial in trials
        )
        return all_arrived and bool(trials)

    def _judge_all(self, view: StudyView) -> list[Trial]:
        """End the interval of all trials; return those that continue from another."""
        times = [self._time_of(trial) for trial in self._population(view)]
        lower, upper = self._quantiles(view)
        moved = [trial for trial in lower if self._exploit(view, trial, upper)]
        self._sync_time = max(self._sync_time + self._interval, *times)
        return moved

    def _population(self, view: StudyView) -> list[Trial]:
        return [trial for trial in view.get_trials() if trial.trial_id in self._standings]

    def _exploit(self, view: StudyView, trial: Trial, donors: Sequence[Trial]) -> bool:
        """Make a trial continue from one of the donors; return whether one of them has saved."""
        self._tries += 1
        generator = generator_for(self._seed, "donor", self._tries)
        # A donor that was copied itself and has not saved since has only the weights it gave up.
        own = [donor for donor in donors if donor.donor is None]
        for donor in generator.sample(own, len(own)):
            config = self._mutate(view, trial, donor)
            if self._explore_fn is not None:
                config = explored_by(self._explore_fn, config, generator.getrandbits(32))
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
            self._inherit(trial, donor, config)
            self._exploits += 1
            log.info("%s continues from %s as %s", trial, donor, tag)
            return True
        log.info("%s stays as it is: none of the best trials has a checkpoint yet", trial)
        return False

    def _leave(self, view: StudyView, trial: Trial) -> None:
        self._forget(trial.trial_id)
        if self._synch and self._can_judge_all(view):
            self._judge_all(view)

    def _has_arrived(self, trial: Trial) -> bool:
        return self._synch and self._time_of(trial) >= self._sync_time

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

    def _warn(self, argument: str, name: str, result: Mapping[str, Any]) -> None:
        if self._require_attrs:
            super()._warn(argument, name, result)


def _has_saved(trial: Trial) -> bool:
    """Return whether a trial has saved its own current step."""
    return trial.donor is None and trial.saved_step() >= trial.step


def _check(arguments: Arguments, mutations: object, factors: object) -> None:
    arguments.metric()
    arguments.number("perturbation_interval", "trials run that far between judgements", above=0)
    arguments.number("burn_in_period", "no trial is judged before it", at_least=0)
    meaning = "that part of the trials is replaced by copies of the best"
    arguments.number("quantile_fraction", meaning, at_least=0, at_most=0.5)
    arguments.number("resample_probability", "it is a probability", at_least=0, at_most=1)
    arguments.function("custom_explore_fn", "it takes a config and returns one")
    for name in ("log_config", "require_attrs", "synch"):
        arguments.flag(name)
    arguments.seed()
    if mutations is not None and not isinstance(mutations, Mapping):
        arguments.add("hyperparam_mutations", "not a dict of mutations")
    elif isinstance(mutations, Mapping):
        for line in broken_mutation_rules(mutations):
            arguments.tell(f"hyperparam_mutations: {line}")
    if not isinstance(factors, list | tuple) or not factors:
        arguments.add("perturbation_factors", "not a list of numbers to multiply by")
    elif not all(isinstance(factor, int | float) and math.isfinite(factor) for factor in factors):
        arguments.add("perturbation_factors", "not only numbers to multiply by")
