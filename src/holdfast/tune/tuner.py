"""`Tuner`: runs, restores, extends and forks a study."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from holdfast import settings
from holdfast.api.assignment import own_copy
from holdfast.api.config import RunConfig
from holdfast.api.deprecated import warn_user
from holdfast.api.did_you_mean import rejects_unknown_arguments
from holdfast.control.host.preemption import source_named
from holdfast.control.study.plan import Resumption
from holdfast.core.names import shown
from holdfast.engine.local import standard_files
from holdfast.errors import (
    CannotResume,
    ConfigError,
    HoldfastError,
    StoreBusy,
    StoreDenied,
    StoreError,
)
from holdfast.storage.base import Store
from holdfast.storage.locate import open_store
from holdfast.tune.callback import Callback, CallbackList
from holdfast.tune.logger import with_default_loggers
from holdfast.tune.outputs.callback_states import CallbackStates
from holdfast.tune.outputs.callbacks import CallbackObserver
from holdfast.tune.outputs.display import StudyDisplay
from holdfast.tune.outputs.files import ErrorFiles, SchedulerFiles
from holdfast.tune.result_grid import ResultGrid
from holdfast.tune.results.reader import read_results, results_of
from holdfast.tune.search.objects import must_have_same_keys
from holdfast.tune.study.fork import Origin, extension_plan, fork_plan, forked, start_of
from holdfast.tune.study.launch import Launch, Preempted, open_launch
from holdfast.tune.study.names import name_for, with_claimed_name
from holdfast.tune.study.spec import (
    StudySpec,
    restored_spec,
    samples_in_all,
    space_of,
    split_study_path,
    with_given,
)
from holdfast.tune.study.stored_spec import (
    CannotRestoreStudy,
    StudyMissing,
    has_study,
    read_study,
)
from holdfast.tune.trainables.kinds import runnable
from holdfast.tune.tune_config import ResumeConfig, TuneConfig

if TYPE_CHECKING:
    of_class = classmethod
else:

    class of_class(classmethod):  # noqa: N801  # it is written like classmethod
        """A classmethod that cannot be called on an instance, whose state it would ignore."""

        def __get__(self, instance: object, owner: type | None = None) -> Any:
            if instance is not None:
                name = self.__func__.__name__
                raise AttributeError(
                    f"a {type(instance).__name__} has no {name}(): it is called on the class,"
                    f" {type(instance).__name__}.{name}(path, trainable), and returns a new one"
                )
            return super().__get__(instance, owner)


@rejects_unknown_arguments
class Tuner:
    """Runs a trainable with many configs and finds the best.

    Args:
        trainable: A function of one argument, its config; a `Trainable` class; the registered name
            of either; or a trainer.
        param_space: The search space, and constants for every trial.
        tune_config: How to search.
        run_config: Where the study is stored, which failures it survives, when it ends.
    """

    def __init__(
        self,
        trainable: Any = None,
        *,
        param_space: Mapping[str, Any] | None = None,
        tune_config: TuneConfig | None = None,
        run_config: RunConfig | None = None,
        _tuner_kwargs: Any = None,
        _restored: tuple[StudySpec, Resumption] | None = None,
    ) -> None:
        del _tuner_kwargs
        self._is_restored = _restored is not None
        self._results: ResultGrid | None = None
        self._origin: Origin | None = None
        if _restored is not None:
            self._spec, self._resumption = _restored
            return
        run = runnable(trainable)
        _must_be(run_config, RunConfig)
        _must_be(tune_config, TuneConfig)
        config = own_copy(run_config or RunConfig())
        name, is_made_up = config.name, False
        if "name" not in config.given:
            name, is_made_up = name_for(run.name)
        self._spec = StudySpec(
            trainable=run,
            tune_config=own_copy(tune_config or TuneConfig()),
            run_config=config,
            param_space=space_of(param_space),
            name=name,
            has_made_up_name=is_made_up,
        )
        self._resumption = Resumption()

    # ------------------------------------------------------------------ existing studies

    @of_class
    def restore(
        cls,  # noqa: N805  # it is a classmethod
        path: str | os.PathLike[str],
        trainable: Any,
        resume_unfinished: bool = True,  # noqa: FBT001, FBT002  as in Ray
        resume_errored: bool = False,  # noqa: FBT001, FBT002
        restart_errored: bool = False,  # noqa: FBT001, FBT002
        param_space: Mapping[str, Any] | None = None,
        storage_filesystem: Any = None,
        _resume_config: ResumeConfig | None = None,
        *,
        tune_config: TuneConfig | None = None,
        run_config: RunConfig | None = None,
    ) -> Tuner:
        """Return the study in a folder; `fit` resumes it with the configs it began with.

        Args:
            path: The study's folder, `{storage_path}/{name}`.
            trainable: What it runs, by the same name as before.
            resume_unfinished: Whether unfinished trials continue.
            resume_errored: Whether failed trials continue from their last checkpoint.
            restart_errored: Whether failed trials start over; `resume_errored` comes first.
            param_space: The same space with new objects, if it contains objects.
            storage_filesystem: The fsspec or pyarrow filesystem of `path`.
            tune_config: Those fields that could not be stored, given again.
            run_config: Likewise.
        """
        store = open_store(path, storage_filesystem)
        study = read_study(store)
        run = runnable(trainable)
        if run.name != study.trainable:
            raise CannotRestoreStudy(
                f"the study at {store.url} runs {study.trainable!r}, and the trainable given is"
                f" {run.name!r}",
                hint="pass the trainable that the study was started with",
            )
        spec = restored_spec(
            study, split_study_path(path, storage_filesystem), storage_filesystem, run, param_space
        )
        if param_space is not None:
            must_have_same_keys(study.keys, spec.param_space)
        spec = with_given(spec, study, tune_config, run_config)
        resumption = Resumption(
            unfinished=resume_unfinished,
            errored=resume_errored,
            errored_from_scratch=restart_errored,
        )
        if _resume_config is not None:
            resumption = _resume_config.to_resumption()
        return cls(_restored=(spec, resumption))

    def extend(self, *, num_samples: int | None = None, stop: Any = None) -> Tuner:
        """Return this study with more samples or a later end; `fit` runs it.

        Existing results stay, and a plan is printed. Once `fit` has begun, even if it is killed,
        `restore` alone resumes the extended study: do not extend it again.

        Args:
            num_samples: How many more samples to take.
            stop: When trials end from now on. Trials that have ended continue from their last
                checkpoint until then.
        """
        self._must_have_begun("extend(num_samples=50)")
        if num_samples is None and stop is None:
            raise ConfigError(
                "extend() got neither num_samples nor stop, so nothing would happen",
                hint="extend(num_samples=50) takes 50 more samples",
            )
        spec, resumption = self._spec, self._resumption
        if num_samples is not None:
            total = samples_in_all(spec.tune_config.num_samples, num_samples)
            config = replace(spec.tune_config, num_samples=total)
            spec = replace(spec, tune_config=config)
            resumption = replace(resumption, num_samples=total)
        if stop is not None:
            spec = replace(spec, run_config=replace(spec.run_config, stop=stop))
            resumption = replace(resumption, finished=True)
            spec.stopper()
        print(extension_plan(self.get_results(), resumption, num_samples, stop))  # noqa: T201
        return Tuner(_restored=(spec, resumption))

    def fork(
        self,
        *,
        param_space: Mapping[str, Any],
        name: str | None = None,
        storage_path: str | os.PathLike[str] | None = None,
        num_samples: int | None = None,
        stop: Any = None,
        from_best: bool = False,
        resume: Literal["auto", "must", "never"] | None = None,
    ) -> Tuner:
        """Return a new study that searches another space; `fit` runs it. This one does not change.

        The new study has this one's trainable, metric, scheduler, searcher, resources and other
        configs as they were at the start: scheduler and searcher have learned nothing yet. No trial
        of this study is run again, copied, changed or counted, and this study can still be resumed.
        A plan is printed, and the new study stores its origin.

        Args:
            param_space: The new search space; its keys may differ.
            name: The name of the new study, by default `{this one}-fork`, made unique unless
                `resume` is given.
            storage_path: Where to store it, by default beside this one.
            num_samples: How many samples it takes, by default as many as this one.
            stop: When its trials end, by default as in this one.
            from_best: Whether every new trial starts from the newest checkpoint of this study's
                best trial, and continues its count of iterations, so `stop` should be later than
                before. The checkpoint must exist until all have started. Only for a study on a
                disk.
            resume: What happens if the fork exists, as in `RunConfig`: "auto" resumes it, so that
                the same script can be started again. By default a `name` that exists is refused.
        """
        self._must_have_begun("fork(param_space={…})")
        results = self.get_results()
        run: dict[str, Any] = {"name": f"{self._spec.name}-fork" if name is None else name}
        given = {"storage_path": storage_path, "stop": stop, "resume": resume}
        spec = forked(
            self._spec,
            space_of(param_space),
            num_samples=num_samples,
            run=run | {field: value for field, value in given.items() if value is not None},
            restore_path=start_of(self._spec, results) if from_best else None,
            has_made_up_name=name is None and resume is None,
        )
        origin = Origin.of(self._spec)
        print(fork_plan(origin, spec, self._spec, results))  # noqa: T201
        fork = Tuner(_restored=(spec, Resumption()))
        fork._is_restored, fork._origin = False, origin
        return fork

    def _must_have_begun(self, call: str) -> None:
        if not self._is_restored and self._results is None:
            method = call.partition("(")[0]
            raise ConfigError(
                f"{method}() is for a study that has started, and this one has not",
                hint=f"Tuner.restore(path, trainable).{call}.fit()",
            )

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> bool:
        """Whether there is a study in a folder that `restore` could resume.

        Raises `StoreBusy` or `StoreDenied` if storage does not answer or denies access.
        """
        try:
            store = open_store(path, storage_filesystem)
            read_study(store)
        except (StoreBusy, StoreDenied):
            raise
        except (CannotResume, ConfigError, StoreError):
            return False
        return True

    def fit(self) -> ResultGrid:
        """Run the study to its end and return its results.

        A trial that fails does not raise; its error is in the results. After Ctrl+C the results so
        far are returned, `ResultGrid.interrupted` is true, and the study can be restored.
        """
        standard_files.complete()
        spec = self._spec
        if spec.run_config.preemption_notices is not None:
            source_named(spec.run_config.preemption_notices)  # raises if there is no such source
        spec.trainable.warn_if_it_only_saves(spec.run_config.checkpoint_config)
        if spec.run_config.log_to_file:
            warn_user(
                "log_to_file is ignored: what a trial prints is always stored, in the files"
                " logs/attempt-….log of its folder"
            )
        if spec.has_made_up_name and spec.run_config.resume == "must":
            raise CannotRestoreStudy(
                "RunConfig(resume='must') has no name, without which every study is a new one",
                hint="pass the name of the study to resume: RunConfig(name=…)",
            )
        spec = self._spec = with_claimed_name(spec)
        store = spec.store()
        if not self._is_restored:
            spec = self._begin_or_resume(spec, store)
        is_open = False
        try:
            with open_launch(spec, self._resumption) as launch:
                callbacks = _callbacks(spec)
                display = StudyDisplay(spec, launch.study, launch.search.total)
                if self._origin is not None and launch.is_new:
                    self._origin.write(launch.run.store)
                launch.keep()  # no argument of the user is refused from here on
                is_open, self._spec = True, spec
                self._drive(launch, callbacks, display)
        except HoldfastError as error:  # such as a full disk
            if is_open:
                error.add_note(f"To go on: {spec.trainable.restore_call(store.url)}")
            raise
        assert self._results is not None
        return self._results

    def _drive(self, launch: Launch, callbacks: CallbackList, display: StudyDisplay) -> None:
        spec = launch.spec
        callbacks.attach(launch.run.store)
        callbacks.setup(
            stop=spec.run_config.stop,
            num_samples=spec.tune_config.num_samples,
            total_num_samples=launch.search.total,
        )
        store, fence = launch.run.store, launch.run.lease.check
        results = CallbackObserver(callbacks, launch.study, fence)
        notes = SchedulerFiles(launch.study, store)
        states = CallbackStates(callbacks, store, fence)
        states.restore()
        observers = [results, notes, ErrorFiles(store), states, display]
        display.begin(launch.run.store.url, launch.resumption)
        try:
            controller = launch.drive(observers, files=[results, notes, states])
            interrupted = controller.is_stopped and not launch.study.is_over
            self._results = results_of(launch, controller.errors, interrupted=interrupted)
            resume = launch.remaining_call(controller)
            returns = not controller.departures.takes_driver
            display.output.end(
                display.progress(), resume=resume, interrupted=interrupted and returns
            )
        finally:
            display.output.close()
            callbacks.flush(durable=True)
            callbacks.on_experiment_end(trials=launch.study.get_trials())
        if controller.departures.takes_driver:
            raise Preempted(launch.run.store.url)
        if str(spec.run_config.failure_config.fail_fast).lower() == "raise":
            for error in self._results.errors[:1]:
                raise error

    def _begin_or_resume(self, spec: StudySpec, store: Store) -> StudySpec:
        """Return the spec of the stored study, if it is to be resumed, or else `spec`."""
        config = spec.run_config
        exists = has_study(store)
        policy = config.resume if "resume" in config.given else "ask"
        if policy == "must" and not exists:
            raise StudyMissing(
                f"there is no study at {store.url}, and RunConfig(resume='must') starts none",
                hint="check storage_path and name; leave out resume='must' to start a new study",
            )
        if not exists:
            return spec
        if policy in ("ask", "never"):
            raise ConfigError(
                f"there is a study at {store.url} already, which a new one would mix with",
                hint=f"{spec.trainable.restore_call(store.url)} resumes it;"
                " RunConfig(resume='auto') does that by itself; another name starts a new one",
            )
        study = read_study(store)
        restored = restored_spec(
            study,
            (config.storage_path, spec.name),
            config.storage_filesystem,
            spec.trainable,
            spec.param_space or None,
        )
        return with_given(restored, study, spec.tune_config, config)

    def get_results(self) -> ResultGrid:
        """Return the results of the study, as far as this object has them."""
        if self._results is None and self._is_restored:
            filesystem = self._spec.run_config.storage_filesystem
            self._results = read_results(self._spec.store(), self._spec, filesystem)
        if self._results is None:
            raise RuntimeError("the study has not run yet: call fit() first")
        return self._results


def _must_be(config: object, kind: type) -> None:
    if config is not None and not isinstance(config, kind):
        name = kind.__name__
        raise ConfigError(
            f"{'run' if kind is RunConfig else 'tune'}_config={shown(config)} is not a {name}",
            hint=f"pass tune.{name}(…), or {name}(**…) with the items of a dictionary",
        )


def _callbacks(spec: StudySpec) -> CallbackList:
    given: list[Callback] = list(spec.run_config.callbacks)
    if spec.loggers is not None:
        return CallbackList([*given, *spec.loggers])
    return CallbackList(with_default_loggers(given) if settings.writes_trial_files() else given)
