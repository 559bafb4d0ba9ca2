"""Shows the progress of a study, as its `RunConfig` says."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from holdfast.checkpoint import Checkpoint
from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.control.study.plan import Resumption, StudyObserver
from holdfast.core.names import shown
from holdfast.core.not_finite import NotFinite, in_words
from holdfast.core.quantities import counted
from holdfast.core.study.machine import Study
from holdfast.core.study.reservations import total
from holdfast.core.study.trial import Status, Trial
from holdfast.errors import ConfigError
from holdfast.tune.outputs.lines import LastStart
from holdfast.tune.outputs.output import ReporterOutput, StudyOutput
from holdfast.tune.outputs.tables import Progress, best_of
from holdfast.tune.progress_reporter import ProgressReporter
from holdfast.tune.results.best import metric_of
from holdfast.tune.study.spec import StudySpec

log = logging.getLogger(__name__)

UPDATE_EVERY_S = 0.25
FINISHED_MAX = 20  # ended trials that are still shown
_IN_BYTES = ("memory", "object_store_memory")


class StudyDisplay(StudyObserver):
    """Passes every event of a study to its output, and its progress at intervals."""

    def __init__(
        self, spec: StudySpec, study: Study, samples: int | None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._spec, self._study, self._samples, self._clock = spec, study, samples, clock
        self._mode = spec.tune_config.mode
        self._metric = metric_of(spec.tune_config.metric, self._mode)
        self.output = output_of(spec)
        self._began = clock.monotonic()
        self._updated_at = float("-inf")
        self._ended: dict[str, Trial] = {}  # the last ones
        self._last_starts: dict[str, LastStart] = {}
        self._not_finite = NotFinite([self._metric])
        self._with_nan: set[str] = set()  # of those that have not ended
        self._nan_count = 0
        self._first_nan = ""
        self._best: Trial | None = None
        self._has_warned_of_pauses = False

    def begin(self, path: str, resumption: Resumption) -> None:
        """Print the study's name and path, how it searches, and what it resumes."""
        facts: dict[str, Any] = {}
        judges = self._study.judges
        if self._spec.tune_config.search_alg is not None:
            facts["searcher"] = type(self._spec.tune_config.search_alg).__name__
        if self._spec.tune_config.scheduler is not None:
            facts["scheduler"] = type(judges.scheduler).__name__
        if self._samples is not None:
            facts["trials"] = self._samples
        if self._study.made:
            facts |= resumption_facts(self._study, resumption)
        for trial in self._study.finished.values():
            self._note_end(trial)
        self.output.begin(self._spec.name, path, facts)
        if isinstance(self.output, ReporterOutput):
            self.output.setup(total_samples=self._samples, metric=self._metric, mode=self._mode)

    def trial_started(self, trial: Trial, after_step: int) -> None:
        del after_step
        self._ended.pop(trial.trial_id, None)  # it had ended, and continues
        before = self._last_starts.get(trial.trial_id)
        if before is None and trial.run.attempts > 1:  # under another driver
            before = LastStart(None, trial.failures(), None)
        self._last_starts[trial.trial_id] = LastStart.of(trial)
        self.output.trial_started(trial, before, self._donor_of(trial))

    def _donor_of(self, trial: Trial) -> str | None:
        """Return the trial whose weights this one was given, None if it has its own."""
        if trial.donor is None:
            return None
        folder = trial.donor.folder
        trials = [*self._study.trials.values(), *self._study.finished.values()]
        return next((str(donor) for donor in trials if donor.folder == folder), folder)

    def trial_result(self, trial: Trial, result: dict[str, Any]) -> None:
        self._look_for_nan(trial, result)
        self.output.trial_reported(trial, result)

    def _look_for_nan(self, trial: Trial, result: Mapping[str, Any]) -> None:
        """Warn of the first metric that is not finite, and count the trials with one."""
        not_finite = self._not_finite.found(result)
        if not not_finite or trial.trial_id in self._with_nan:
            return
        self._with_nan.add(trial.trial_id)
        self._nan_count += 1
        if self._nan_count == 1:
            self._first_nan = f"{in_words(not_finite)} of {trial}"
            log.warning(
                "%s reported %s at step %d; the study goes on, and further trials are only counted",
                trial, in_words(not_finite), trial.step,
            )  # fmt: skip

    def trial_saved(self, trial: Trial, checkpoint: Checkpoint) -> None:
        self.output.trial_saved(trial, checkpoint.path)

    def trial_lost(self, trial: Trial, card: str, *, is_last: bool) -> None:
        self.output.trial_failed(trial, card, is_last=is_last)

    def trial_paused(self, trial: Trial) -> None:
        saved = trial.saved_step()
        if self._has_warned_of_pauses or trial.donor is not None or saved >= trial.step:
            return
        self._has_warned_of_pauses = True
        log.warning(
            "%s has paused %s after step %d, and %s; steps after the last checkpoint are repeated "
            "when a trial resumes. Report a checkpoint with every step, or use a scheduler that "
            "does not pause, such as ASHAScheduler",
            type(self._study.judges.scheduler).__name__,
            trial,
            trial.step,
            f"its newest checkpoint is of step {saved}" if saved else "it has saved nothing",
        )

    def trial_ended(self, trial: Trial) -> None:
        self._last_starts.pop(trial.trial_id, None)
        self._with_nan.discard(trial.trial_id)
        if trial.status is Status.TERMINATED:
            self.output.trial_finished(trial)
        self._note_end(trial)

    def _note_end(self, trial: Trial) -> None:
        self._ended[trial.trial_id] = trial
        if len(self._ended) > FINISHED_MAX:
            del self._ended[next(iter(self._ended))]
        if self._metric is None:
            return
        candidates = [trial] if self._best is None else [self._best, trial]
        best = best_of(candidates, self._metric, self._mode)
        if best is not None and best.name == str(trial):
            self._best = trial

    def turned(self, *, is_over: bool) -> None:
        now = self._clock.monotonic()
        if is_over or now - self._updated_at < UPDATE_EVERY_S:
            return
        self._updated_at = now
        self.output.update(self.progress())

    def progress(self) -> Progress:
        """Return the current state of the study."""
        study = self._study
        live = study.get_trials()
        counts = {str(status): count for status, count in study.counts.items() if count}
        for trial in live:
            counts[trial.status] = counts.get(trial.status, 0) + 1
        live_ids = {trial.trial_id for trial in live}
        ended = [trial for trial_id, trial in self._ended.items() if trial_id not in live_ids]
        best = [self._best] if self._best and self._best.trial_id not in live_ids else []
        return Progress(
            trials=[*(trial for trial in best if trial.trial_id not in self._ended), *ended, *live],
            counts=counts,
            total=self._samples,
            elapsed_s=self._clock.monotonic() - self._began,
            now=self._clock.now(),
            notes=self._notes(),
            resources=in_use(total(study.room.nodes), study.free_resources()),
            best=best_of([*best, *live], self._metric, self._mode),
        )

    def _notes(self) -> list[str]:
        if not self._nan_count:
            return []
        trials = "1 trial has" if self._nan_count == 1 else f"{self._nan_count} trials have"
        return [f"{trials} reported values that are not finite, first {self._first_nan}"]


def in_use(total_amounts: Mapping[str, float], free: Mapping[str, float]) -> str:
    """Return how much of each resource is reserved; memory only if any of it is."""
    parts = []
    for name, amount in total_amounts.items():
        taken = amount - free.get(name, 0.0)
        if name not in _IN_BYTES:
            parts.append(f"{taken:g}/{amount:g} {name}")
        elif taken:
            parts.append(f"{taken / 2**30:.1f}/{amount / 2**30:.1f} GiB {name}")
    return ", ".join(parts)


def resumption_facts(study: Study, resumption: Resumption) -> dict[str, str]:
    """Return what a resumed study will do with its trials, by status."""
    counts = study.counts
    facts = {}
    if done := counts.get(Status.TERMINATED, 0):
        facts["kept"] = counted(done, "finished trial")
        if resumption.finished:
            facts["kept"] += " to continue, as the new limits allow"
    if failed := counts.get(Status.ERROR, 0):
        fate = "not tried again"
        if resumption.errored:
            fate = "resuming from the last checkpoint"
        elif resumption.errored_from_scratch:
            fate = "starting over"
        facts["failed"] = f"{counted(failed, 'trial')}, {fate}"
    if study.trials:
        saved = sum(bool(trial.saved_step() or trial.donor) for trial in study.trials.values())
        fate = f"{saved} resuming from a checkpoint, {len(study.trials) - saved} from the start"
        fate = fate if resumption.unfinished else "not continued"
        facts["unfinished"] = f"{counted(len(study.trials), 'trial')}: {fate}"
    if resumption.num_samples is not None:
        facts["samples"] = f"{resumption.num_samples} in total from now on"
    return facts


def output_of(spec: StudySpec) -> StudyOutput:
    """Return the output that the configs of a study ask for."""
    config, tune = spec.run_config, spec.tune_config
    verbose = 1 if config.verbose is None else config.verbose
    if not isinstance(verbose, int):
        raise ConfigError(
            f"verbose={shown(verbose)}: must be 0, 1, 2 or 3", hint="0 shows nothing, 1 is usual"
        )
    verbosity = int(verbose)
    if config.progress_reporter is not None:
        if not isinstance(config.progress_reporter, ProgressReporter):
            raise ConfigError(
                f"progress_reporter={shown(config.progress_reporter)} is not a ProgressReporter",
                hint="pass a tune.CLIReporter(), or an object of your subclass of"
                " tune.ProgressReporter",
            )
        return ReporterOutput(config.progress_reporter, verbosity=verbosity)
    return StudyOutput(
        verbosity=verbosity, metric=metric_of(tune.metric, tune.mode), mode=tune.mode
    )
