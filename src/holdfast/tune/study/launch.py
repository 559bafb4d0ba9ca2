"""One launch of a study: from what a tuner says to what it has come to."""

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
from holdfast.core.study.trial import Trial
from holdfast.engine.base import Engine
from holdfast.engine.selection import new_engine
from holdfast.errors import ConfigError, HoldfastError
from holdfast.tune.resources import bundles_of
from holdfast.tune.search.generator import Proposal
from holdfast.tune.study.spec import StudySpec
from holdfast.tune.study.stored_spec import PER_TRIAL, CannotRestoreStudy, stored
from holdfast.tune.study.trial_names import Namer
from holdfast.tune.trial import Trial as PublicTrial
from holdfast.worker.context import current
from holdfast.worker.job import Task, pack

log = logging.getLogger(__name__)

_NAMES_MAX = 5
ENTRY = "holdfast.worker.entry:main"
MODULES = (
    "holdfast.worker.entry",
    "holdfast.tune.trainables.program",
    "holdfast.tune.functions",
    "holdfast.storage.local.store",
    "holdfast.storage.locate",
)


class Launch:
    """A study that is open, and all that belongs to driving it."""

    def __init__(self, spec: StudySpec, run: OpenStudy, engine: Engine, how: Resumption) -> None:
        self.spec, self.run, self.engine, self.how = spec, run, engine, how
        self.search = spec.search()
        judges = Judges(self.search, spec.scheduler(), spec.stopper())
        self.study = Study(judges, spec.rules(), PublicTrial)
        tail = run.tail
        self.is_new = tail.state is None and not tail.events
        self._recalled = rebuild(self.study, tail)
        self._must_know_its_trials()
        if how.num_samples is not None:
            self.search.extend(how.num_samples)  # so that all know how many there will be
        self._namer = Namer(spec, self.study, run.identity.created)
        self._resources = spec.resources or spec.trainable.resources
        self._must_fit()
        self._must_be_resolved()
        self.search.objects.must_travel()
        self._must_suit_the_first()
        self._plan = self._planned()

    def keep(self) -> None:
        """Write down what `restore`, and whoever looks on, needs."""
        kept, saves_at_end = self.spec.stored, self.study.rules.saves_at_end
        is_kept = kept is not None and kept.saves_at_end == saves_at_end
        if self.is_new or not is_kept or self._is_extended():
            record = stored(
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

    def _is_extended(self) -> bool:
        return self.how.finished or self.how.num_samples is not None

    def drive(
        self, observers: Sequence[StudyObserver], files: Sequence[ResultFiles]
    ) -> StudyController:
        """Run until the study is over, or somebody wants this driver to stop."""
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
        """Return all trials there are, in the order in which they were made.

        What is damaged in the archive of those that are over is noted in `damage`.
        """
        return all_trials(self.run.store, self.study, damage)

    def config_of(self, trial: Trial) -> dict[str, Any]:
        """Return the config that a trial's process is given."""
        return self.search.resolve(trial.config)

    def config_as_known(self, trial: Trial) -> dict[str, Any]:
        """Return what a trial's newest result was made with, and what is known of objects in it."""
        config = trial.reported_as.config
        return config if self.search.missing(config) else self.search.resolve(config)

    def restore_call(self, *, errored: bool = False) -> str:
        """Return the call that goes on with the study."""
        more = ", resume_errored=True" if errored else ""
        return self.spec.trainable.restore_call(self.run.store.url, more)

    def _planned(self) -> StudyPlan:
        """Return what the study does with its trials; what cannot be done is told now."""
        spec = self.spec
        config = spec.run_config
        program = spec.trainable.program(config.checkpoint_config, spec.export_formats)
        must_travel(program, None, name=spec.trainable.name)
        first = None if spec.restore_path is None else Checkpoint(spec.restore_path)
        if first is not None and self.is_new:
            first.verify()
        most = spec.tune_config.max_concurrent_trials
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
            max_concurrent=most or None,
            reuses=spec.tune_config.reuse_actors,
            hang_timeout_s=config.failure_config.hang_timeout_s,
            again=self.restore_call(errored=True),
            notice_s=config.failure_config.preemption_notice_s
            + config.failure_config.preemption_grace_s,
            first_checkpoint=first,
            resumption=self.how,
        )

    def _propose(self) -> TrialAdded | SearchEnded | None:
        try:
            proposal = self.search.next()
        except HoldfastError:
            raise
        except Exception as error:  # it may be the user's own code
            if not self.study.trials:
                raise
            then = "is asked again while there are trials that go on"
            self.study.judges.tell_failure("the searcher", error, then)
            return None
        if isinstance(proposal, str):
            return SearchEnded()
        return None if proposal is None else self._added(proposal)

    def _added(self, proposal: Proposal) -> TrialAdded:
        """Return a new trial with what the user's functions say of it, or why it is refused.

        What is wrong with the first is taken to be wrong with all, and raised.
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
        """Return what a trial that goes on reserves: what its trainable needs now.

        Unless the scheduler has given it more or less, and there is room for that.
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
        """Raise if damage has left no trial of a study; say which are lost if it has left some."""
        url = self.run.store.url
        is_damaged = self.run.record.known_damage or self.run.journal.damages
        if is_damaged and not self.study.made:
            raise CannotRestoreStudy(
                f"the journal of the study at {url} is damaged, and no trial is known any more: to"
                " go on would be to begin anew, over what its trials have written",
                hint=f"put {url}/.holdfast/journal back from a copy, or begin a study of another"
                " name; results and checkpoints are in the folders of the trials as before",
            )
        if lost := self.search.lost:
            more = f" and {len(lost) - _NAMES_MAX} more" if len(lost) > _NAMES_MAX else ""
            warn_user(
                f"the journal of the study at {url} is damaged, and trials are lost:"
                f" {', '.join(lost[:_NAMES_MAX])}{more}. They do not run, and are not among the"
                " results; their folders stay as they are. For as many others:"
                f" .extend(num_samples={len(lost)}).fit()"
            )

    def _must_fit(self) -> None:
        """Raise at once if there is not, and will not be, room for a trial."""
        if self.engine.can_grow() or _depends_on_config(self._resources):
            return
        self._must_have_room(bundles_of(self._resources, {}))

    def _must_have_room(self, bundles: list[dict[str, float]]) -> None:
        """Raise if what a trial needs is more than there is."""
        rooms = {node.name: node.room for node in self.engine.nodes()}
        if reserve(rooms, bundles) is None:
            have = total(rooms)
            asked = dict.fromkeys(name for one in bundles for name, amount in one.items() if amount)
            there = ", ".join(f"{name}={have.get(name, 0.0):g}" for name in asked)
            raise ConfigError(
                f"a trial needs {bundles} at once, but only {there} is available",
                hint="ask for less: tune.with_resources(trainable, {'cpu': 1})",
            )

    def _must_suit_the_first(self) -> None:
        """Raise if what the user's functions say of the first trial, if it is known, is wrong.

        Nothing is drawn if they say nothing: what draws may be the user's, too.
        """
        config = self.spec.tune_config
        asked = config.trial_name_creator or config.trial_dirname_creator
        if self.is_new and (asked or _depends_on_config(self._resources)):
            first = self.search.preview()
            if first is not None:
                self._added(first)

    def _must_be_resolved(self) -> None:
        """Raise if trials that go on, or that will be made, have objects that are gone."""
        missing = {
            path
            for trial in self.study.trials.values()
            for path in self.search.missing(trial.config)
        }
        if not self.study.is_search_over or self.how.num_samples is not None:
            missing |= set(self.search.missing(self.search.space))
        if missing:
            raise ConfigError(
                "the study has objects that are gone with the process that made them:"
                f" {', '.join(sorted(missing))}",
                hint="give them again: Tuner.restore(path, trainable, param_space=…)",
            )


def _working_folder() -> dict[str, str]:
    """Return the variable in which scripts for Ray find the driver's working directory.

    It is that of trials, too; Ray changes theirs. One that was removed has no name.
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
    """Pass signals and the notices of a cloud on to the study while it goes on."""
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
                    yield "Ctrl+C; once more ends it on the spot"
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
def opened(spec: StudySpec, how: Resumption) -> Iterator[Launch]:
    """Open a study for driving; nothing of it runs any more when this ends."""
    trial = current()  # of another study, if this is the process of one
    offer = None if trial is None else trial.job.offer
    engine = new_engine(ENTRY, MODULES, of_user=_modules_of(spec), offer=offer)
    try:
        engine.warm_up()  # first: it is made quickest before any storage is loaded
        store = spec.store()
        with OpenStudy.open(store, name=spec.name, waits=True) as run:
            try:
                yield Launch(spec, run, engine, how)
            finally:
                engine.close()
    finally:
        engine.close()


def _modules_of(spec: StudySpec) -> list[str]:
    """Return the module of the trainable, which its processes need."""
    home = getattr(spec.trainable.function or spec.trainable.kind, "__module__", None)
    return [home] if home is not None and home != "__main__" and home in sys.modules else []
