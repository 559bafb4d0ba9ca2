"""One launch of a study: opens it, checks that it can run, and drives it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from holdfast.api.config import RunConfig, retention_of
from holdfast.api.deprecated import warn_user
from holdfast.api.picklable import must_travel
from holdfast.checkpoint import Checkpoint
from holdfast.control.host.log_folders import log_folder
from holdfast.control.host.preemption import Notice, source_named, watch
from holdfast.control.host.signals import Interrupt, Interrupts
from holdfast.control.record.open_run import OpenRun, OpenStudy
from holdfast.control.study.controller import StudyController
from holdfast.control.study.plan import ResultFiles, Resumption, StudyObserver, StudyPlan
from holdfast.control.study.reader import all_trials, rebuild
from holdfast.core.study.events import SearchEnded, TrialAdded
from holdfast.core.study.judges import Judges
from holdfast.core.study.machine import Study
from holdfast.core.study.reservations import reserve, total
from holdfast.core.study.trial import Status, Trial
from holdfast.engine.base import Engine
from holdfast.engine.selection import new_engine
from holdfast.errors import ConfigError, HoldfastError
from holdfast.tune.resources import bundles_of
from holdfast.tune.search.generator import Proposal
from holdfast.tune.study.spec import StudySpec
from holdfast.tune.study.stored_spec import PER_TRIAL, CannotRestoreStudy, stored_study
from holdfast.tune.study.trial_names import Namer
from holdfast.tune.trial import Trial as PublicTrial
from holdfast.worker.context import current
from holdfast.worker.job import Task, pack

log = logging.getLogger(__name__)

_NAMES_MAX = 5
_RESUMABLE = 75  # the exit code that tells a scheduler to start the same command again
ENTRY = "holdfast.worker.entry:main"
MODULES = (
    "holdfast.worker.entry",
    "holdfast.tune.trainables.program",
    "holdfast.tune.functions",
    "holdfast.storage.local.store",
    "holdfast.storage.locate",
)


class Preempted(SystemExit):
    """The machine of this driver is being taken away; the study can resume elsewhere."""

    def __init__(self, url: str) -> None:
        super().__init__(_RESUMABLE)
        self.url = url


class Launch:
    """An open study with everything that is needed to drive it; raises if it cannot run."""

    def __init__(
        self, spec: StudySpec, run: OpenStudy, engine: Engine, resumption: Resumption
    ) -> None:
        self.spec, self.run, self.engine, self.resumption = spec, run, engine, resumption
        self.search = spec.search()
        judges = Judges(self.search, spec.scheduler(), spec.stopper())
        self.study = Study(judges, spec.rules(), PublicTrial)
        tail = run.tail
        self.is_new = tail.state is None and not tail.events
        self._recalled = rebuild(self.study, tail)
        self._must_know_its_trials()
        if resumption.num_samples is not None:
            self.search.extend(resumption.num_samples)  # before the total is read
        self._namer = Namer(spec, self.study, run.identity.created)
        self._resources = spec.resources or spec.trainable.resources
        self._must_fit()
        self._must_be_resolved()
        self.search.objects.must_travel()
        self._must_accept_first_trial()
        self._plan = self._study_plan()

    def keep(self) -> None:
        """Write study.json, unless the one that is there still holds."""
        stored, saves_at_end = self.spec.stored, self.study.rules.saves_at_end
        is_current = stored is not None and stored.saves_at_end == saves_at_end
        is_extended = self.resumption.finished or self.resumption.num_samples is not None
        if self.is_new or not is_current or is_extended:
            record = stored_study(
                self.spec.trainable.name,
                self.search.keys,
                self.search.space_data,
                self.spec.tune_config,
                self.spec.run_config,
                {name: getattr(self.spec, name) for name in PER_TRIAL},
                saves_at_end=saves_at_end,
                planned=self.search.total,
            )
            record.write(self.run.store)

    def drive(
        self, observers: Sequence[StudyObserver], files: Sequence[ResultFiles]
    ) -> StudyController:
        """Run until the study is over, or this driver is asked to stop."""
        self.run.wait_without_end("trials go on, and their results and checkpoints wait")
        controller = StudyController(
            self.run, self.study, self.engine, self._plan, observers=observers, files=files
        )
        for observer in observers:
            observer.resumed(self._recalled.rows, self._recalled.trials(self.study))
        with _listening(self.spec.run_config, controller, self.engine, self.run):
            controller.drive()
        return controller

    def all_trials(self, damage: dict[str, list[str]]) -> list[Trial]:
        """Return all trials in the order in which they were made.

        Damage of the archive of finished trials is added to `damage`.
        """
        return all_trials(self.run.store, self.study, damage)

    def config_of(self, trial: Trial) -> dict[str, Any]:
        """Return the config that a trial's process is given."""
        return self.search.resolve(trial.config)

    def reported_config(self, trial: Trial) -> dict[str, Any]:
        """Return the config of a trial's newest result, with its objects if they all exist."""
        config = trial.reported_as.config
        return config if self.search.missing(config) else self.search.resolve(config)

    def restore_call(self, *, errored: bool = False) -> str:
        """Return the call that resumes the study."""
        arguments = ", resume_errored=True" if errored else ""
        return self.spec.trainable.restore_call(self.run.store.url, arguments)

    def remaining_call(self, controller: StudyController) -> str | None:
        """Return the call that does what this launch has left undone, None if it is nothing."""
        if controller.is_stopped:
            return self.restore_call()
        has_errors = self.study.counts.get(Status.ERROR, 0) > 0
        return self.restore_call(errored=True) if has_errors else None

    def _study_plan(self) -> StudyPlan:
        """Return what the study does with its trials; raise if that cannot work."""
        spec = self.spec
        config = spec.run_config
        program = spec.trainable.program(config.checkpoint_config, spec.export_formats)
        must_travel(program, None, name=spec.trainable.name)
        first = None if spec.restore_path is None else Checkpoint(spec.restore_path)
        if first is not None and self.is_new:
            first.verify()
        variables = config.worker_runtime_env.get("env_vars") or {}
        return StudyPlan(
            program=pack(Task(program)),
            propose=self._propose,
            needs_of=self._needs_of,
            config_of=self.config_of,
            retention=retention_of(config.checkpoint_config),
            log_folder=log_folder(self.run.store, self.run.run_id),
            environment=_working_folder()
            | {str(name): str(value) for name, value in variables.items()},
            max_concurrent=spec.tune_config.max_concurrent_trials or None,
            reuses=spec.tune_config.reuse_actors,
            hang_timeout_s=config.failure_config.hang_timeout_s,
            again=self.restore_call(errored=True),
            notice_s=config.failure_config.preemption_notice_s
            + config.failure_config.preemption_grace_s,
            first_checkpoint=first,
            resumption=self.resumption,
        )

    def _propose(self) -> TrialAdded | SearchEnded | None:
        try:
            proposal = self.search.next()
        except HoldfastError:
            raise
        except Exception as error:  # it may be the user's own code
            if not self.study.trials:
                raise
            consequence = "is asked again while there are unfinished trials"
            self.study.judges.tell_failure("the searcher", error, consequence)
            return None
        if isinstance(proposal, str):
            return SearchEnded()
        return None if proposal is None else self._added(proposal)

    def _added(self, proposal: Proposal) -> TrialAdded:
        """Return a new trial, named and sized by the user's functions, or why it is refused.

        An error of these functions for the very first trial is raised: others would fail, too.
        """
        refused = None
        try:
            name, folder = self._namer.names_of(proposal)
            bundles = self._bundles_of(lambda: self.search.resolve(proposal.config))
        except Exception as error:
            if not self.study.made:
                raise
            folder = self._namer.usual_folder(proposal)
            refused = str(error) if isinstance(error, HoldfastError) else repr(error)
            name, bundles = None, []
        data = proposal.to_data()
        return TrialAdded(
            trial_id=proposal.trial_id,
            number=proposal.number,
            config=data["config"],
            params=data["evaluated_params"],
            tag=proposal.experiment_tag,
            trainable=self.spec.trainable.name,
            folder=folder,
            resources=bundles,
            name=name,
            is_folder_chosen=self._namer.is_chosen,
            refused=refused,
        )

    def _needs_of(self, trial: Trial) -> Sequence[Mapping[str, float]]:
        """Return what a resumed trial reserves: what its trainable needs now.

        Or what the scheduler has resized it to, if there is room for that.
        """
        rooms = {node.name: node.room for node in self.engine.nodes()}
        if trial.is_resized and reserve(rooms, trial.resources) is not None:
            return trial.resources
        return self._bundles_of(lambda: self.config_of(trial))

    def _bundles_of(self, config: Callable[[], dict[str, Any]]) -> list[dict[str, float]]:
        """Return what a trial reserves."""
        if not _depends_on_config(self._resources):
            return bundles_of(self._resources, {})
        bundles = bundles_of(self._resources, config())
        if not self.engine.can_grow():
            self._must_have_room(bundles)
        return bundles

    # ------------------------------------------------------------------ before anything starts

    def _must_know_its_trials(self) -> None:
        """Raise if damage has left no trial of the study; warn of those that are lost."""
        url = self.run.store.url
        is_damaged = self.run.record.known_damage or self.run.journal.damages
        if is_damaged and not self.study.made:
            raise CannotRestoreStudy(
                f"the journal of the study at {url} is damaged, and no trial is known any more:"
                " going on would start over and overwrite what its trials have written",
                hint=f"put {url}/.holdfast/journal back from a copy, or begin a study of another"
                " name; results and checkpoints are in the folders of the trials as before",
            )
        if lost := self.search.lost:
            rest = f" and {len(lost) - _NAMES_MAX} more" if len(lost) > _NAMES_MAX else ""
            warn_user(
                f"the journal of the study at {url} is damaged, and trials are lost:"
                f" {', '.join(lost[:_NAMES_MAX])}{rest}. They do not run, and are not among the"
                " results; their folders stay as they are. To add as many new ones:"
                f" .extend(num_samples={len(lost)}).fit()"
            )

    def _must_fit(self) -> None:
        """Raise if there will never be room for a trial, as far as that is known now."""
        if self.engine.can_grow() or _depends_on_config(self._resources):
            return
        self._must_have_room(bundles_of(self._resources, {}))

    def _must_have_room(self, bundles: list[dict[str, float]]) -> None:
        """Raise if what a trial needs is more than there is."""
        rooms = {node.name: node.room for node in self.engine.nodes()}
        if reserve(rooms, bundles) is None:
            amounts = total(rooms)
            names = dict.fromkeys(
                name for bundle in bundles for name, amount in bundle.items() if amount
            )
            available = ", ".join(f"{name}={amounts.get(name, 0.0):g}" for name in names)
            raise ConfigError(
                f"a trial needs {bundles} at once, but only {available} is available",
                hint="ask for less: tune.with_resources(trainable, {'cpu': 1})",
            )

    def _must_accept_first_trial(self) -> None:
        """Raise if the user's functions for names and resources fail for the first trial.

        Without such functions no trial is drawn early, since drawing may run user code, too.
        """
        config = self.spec.tune_config
        has_creator = config.trial_name_creator or config.trial_dirname_creator
        if self.is_new and (has_creator or _depends_on_config(self._resources)):
            first = self.search.preview()
            if first is not None:
                self._added(first)

    def _must_be_resolved(self) -> None:
        """Raise if unfinished or future trials have objects that no longer exist."""
        missing = {
            path
            for trial in self.study.trials.values()
            for path in self.search.missing(trial.config)
        }
        if not self.study.is_search_over or self.resumption.num_samples is not None:
            missing |= set(self.search.missing(self.search.space))
        if missing:
            raise ConfigError(
                "the study has objects that are gone with the process that made them:"
                f" {', '.join(sorted(missing))}",
                hint="give them again: Tuner.restore(path, trainable, param_space=…)",
            )


def _working_folder() -> dict[str, str]:
    """Return the variable in which scripts for Ray find the driver's working directory.

    Trials run in that directory; Ray changes theirs. A directory that was removed has no name.
    """
    try:
        return {"TUNE_ORIG_WORKING_DIR": os.getcwd()}
    except FileNotFoundError:
        return {}


def _depends_on_config(resources: Any) -> bool:
    return callable(resources) and not hasattr(resources, "bundles")


@contextmanager
def _listening(
    config: RunConfig, controller: StudyController, engine: Engine, run: OpenRun
) -> Iterator[None]:
    """Pass signals and preemption notices on to the study while it runs."""
    departures = controller.departures

    def wake() -> None:
        if interrupts.wants_stop:
            run.hurry()
        engine.wake()

    interrupts = Interrupts(wake)
    with interrupts:

        def reasons_to_stop() -> Iterator[str]:
            for interrupt in interrupts.take():
                if interrupt is Interrupt.STOP:
                    yield "Ctrl+C; once more ends it at once"
                else:
                    departures.announce(Notice(None, None, "a signal to the driver"))

        controller.listen_to(reasons_to_stop)
        source = config.preemption_notices
        watcher = None if source is None else watch(source_named(source), departures.announce)
        try:
            yield
        finally:
            if watcher is not None:
                watcher.stop()


@contextmanager
def open_launch(spec: StudySpec, resumption: Resumption) -> Iterator[Launch]:
    """Open a study for driving; when this ends, none of its processes is left."""
    worker = current()  # set if this study is nested in a trial of another one
    offer = None if worker is None else worker.job.offer
    engine = new_engine(ENTRY, MODULES, of_user=_modules_of(spec), offer=offer)
    try:
        engine.warm_up()  # first: forking is fastest before any storage library is loaded
        store = spec.store()
        with OpenStudy.open(store, name=spec.name, waits=True) as run:
            try:
                yield Launch(spec, run, engine, resumption)
            finally:
                engine.close()  # while the lease is still held
    finally:
        engine.close()


def _modules_of(spec: StudySpec) -> list[str]:
    """Return the module of the trainable, which its processes import."""
    module = getattr(spec.trainable.function or spec.trainable.kind, "__module__", None)
    return [module] if module not in (None, "__main__") and module in sys.modules else []
