"""`tune.run` and `run_experiments`: Ray's older calls that run a study."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.api.checks import this_is
from holdfast.api.deprecated import warn_user
from holdfast.control.study.plan import Resumption
from holdfast.core.names import shown
from holdfast.core.study.trial import Status
from holdfast.storage.locate import open_store
from holdfast.tune.analysis import ExperimentAnalysis
from holdfast.tune.errors import InvalidStudy, TuneError
from holdfast.tune.experiment import Experiment
from holdfast.tune.resources import bundles_of
from holdfast.tune.result_grid import ResultGrid
from holdfast.tune.results.summary import StoredTrial, TrialSummary, error_of
from holdfast.tune.study.names import newest_unnamed, with_claimed_name
from holdfast.tune.study.older_arguments import warn_of_older
from holdfast.tune.study.resume_modes import (
    NEW,
    Ask,
    make_room,
    mode_of,
    resumed_spec,
    should_resume,
)
from holdfast.tune.study.spec import StudySpec
from holdfast.tune.tune_config import ResumeConfig
from holdfast.tune.tuner import Tuner

_SHOWN_MAX = 5
# Arguments of `run` by where they go.
_EXPERIMENT_ARGUMENTS = (
    "stop", "config", "resources_per_trial", "num_samples", "local_dir", "upload_dir",
    "trial_name_creator", "loggers", "time_budget_s", "storage_path", "storage_filesystem",
    "sync_config", "checkpoint_config", "trial_dirname_creator", "log_to_file", "export_formats",
    "max_failures", "restore", "checkpoint_freq", "checkpoint_at_end", "keep_checkpoints_num",
    "checkpoint_score_attr",
)  # fmt: skip
_SEARCH_ARGUMENTS = (
    "metric", "mode", "search_alg", "scheduler", "reuse_actors", "max_concurrent_trials",
)  # fmt: skip
_RUN_ARGUMENTS = ("callbacks", "verbose", "progress_reporter")


def run(
    run_or_experiment: Any,
    name: str | None = None,
    stop: Any = None,
    config: Mapping[str, Any] | None = None,
    resources_per_trial: Any = None,
    num_samples: int = 1,
    local_dir: Any = None,
    upload_dir: str | None = None,
    trial_name_creator: Callable[[Any], str] | None = None,
    loggers: Sequence[Any] | None = None,
    *,
    metric: Any = None,
    mode: Any = None,
    time_budget_s: Any = None,
    storage_path: Any = None,
    storage_filesystem: Any = None,
    search_alg: Any = None,
    scheduler: Any = None,
    checkpoint_config: Any = None,
    verbose: Any = None,
    progress_reporter: Any = None,
    log_to_file: Any = False,
    trial_dirname_creator: Callable[[Any], str] | None = None,
    sync_config: Any = None,
    export_formats: Sequence[str] | None = None,
    max_failures: int = 0,
    fail_fast: bool | str = False,
    restore: Any = None,
    resume: bool | str | None = None,
    resume_config: ResumeConfig | None = None,
    reuse_actors: bool = False,
    raise_on_failed_trial: bool = True,
    callbacks: Sequence[Any] | None = None,
    max_concurrent_trials: int | None = None,
    keep_checkpoints_num: int | None = None,
    checkpoint_score_attr: str | None = None,
    checkpoint_freq: int = 0,
    checkpoint_at_end: bool = False,
    chdir_to_trial_dir: Any = None,
    sync_to_cloud: Any = None,
    sync_to_driver: Any = None,
    sync_function: Any = None,
    global_checkpoint_period: float = 10,
    with_server: bool = False,
    server_port: int = 4321,
    queue_trials: bool = False,
    trial_executor: Any = None,
    return_trials: bool = False,
    ray_auto_init: bool = True,
    _remote: Any = None,
    _prompt: Ask | None = None,
) -> Any:
    """Run a study to its end and return an `ExperimentAnalysis`, or a list with `return_trials`.

    `run_or_experiment` is a trainable as for `Tuner`, an `Experiment`, or a list of experiments
    that are stored in one place and run one after the other. Arguments mean what they mean for
    `Experiment`; deprecated ones warn. The default `name` is the trainable's with the time, made
    unique. `resume` says what happens to an existing study of that name or, without a name, to the
    newest of the trainable: see `resume_modes`.

    Raises `TuneError` if a trial has failed, unless `raise_on_failed_trial` is false.
    """
    return _run(dict(locals()))


def run_experiments(
    experiments: Any,
    scheduler: Any = None,
    verbose: Any = None,
    *,
    search_alg: Any = None,
    progress_reporter: Any = None,
    resume: bool | str | None = None,
    resume_config: ResumeConfig | None = None,
    reuse_actors: bool = False,
    raise_on_failed_trial: bool = True,
    concurrent: bool = True,
    callbacks: Sequence[Any] | None = None,
    with_server: bool = False,
    server_port: int = 4321,
    queue_trials: bool = False,
    trial_executor: Any = None,
    _remote: Any = None,
    _prompt: Ask | None = None,
) -> list[TrialSummary]:
    """Run several studies, one after the other, and return all their trials.

    `experiments` is an `Experiment`, a list of them, or a dictionary `{name: {"run": trainable,
    "stop": …, "config": …}}`. Failed trials raise a `TuneError` after all have run.
    """
    given = dict(locals())
    warn_of_older(run_experiments, given)
    outcomes = _outcomes(_experiments(experiments), given)
    return [trial for outcome in outcomes for trial in outcome.grid.trials]


def _run(given: Mapping[str, Any]) -> Any:
    trainable = given["run_or_experiment"]
    of_study = {name: given[name] for name in _EXPERIMENT_ARGUMENTS}
    warn_of_older(run, {name: value for name, value in given.items() if name not in of_study})
    if isinstance(trainable, Experiment | list | tuple):
        experiments = _experiments(trainable)
        parameters = inspect.signature(run).parameters
        ignored = [
            name for name, value in of_study.items() if value is not parameters[name].default
        ]
        if ignored:
            warn_user(f"the Experiment says what to run; ignored: {', '.join(ignored)}")
    else:
        experiments = [Experiment(given["name"], trainable, **of_study)]
    if len(experiments) > 1:
        _must_be_in_one_place(experiments)
    outcomes = _outcomes(experiments, given)
    if given["return_trials"]:
        return [trial for outcome in outcomes for trial in outcome.grid.trials]
    return _analysis(outcomes[0]) if len(experiments) == 1 else _analysis_of_all(outcomes)


def _analysis(outcome: _Outcome) -> ExperimentAnalysis:
    filesystem = outcome.spec.run_config.storage_filesystem
    return ExperimentAnalysis(
        outcome.grid.experiment_path if filesystem is not None else outcome.url,
        storage_filesystem=filesystem,
        trials=outcome.grid.trials,
        default_metric=outcome.spec.tune_config.metric,
        default_mode=outcome.spec.tune_config.mode,
        _interrupted=outcome.grid.interrupted,
    )


def _analysis_of_all(outcomes: Sequence[_Outcome]) -> ExperimentAnalysis:
    """Return the trials of several studies as those of one, in the folder of all of them."""
    spec = outcomes[0].spec
    return ExperimentAnalysis(
        spec.run_config.storage_path,
        storage_filesystem=spec.run_config.storage_filesystem,
        trials=[
            replace(trial, folder=f"{outcome.spec.name}/{trial.folder}")
            for outcome in outcomes
            for trial in outcome.grid.trials
            if isinstance(trial, StoredTrial)
        ],
        default_metric=spec.tune_config.metric,
        default_mode=spec.tune_config.mode,
        _interrupted=outcomes[-1].grid.interrupted,
    )


def _must_be_in_one_place(experiments: Sequence[Experiment]) -> None:
    """Raise unless all are stored in one folder."""
    configs = [experiment.to_study().run_config for experiment in experiments]
    urls = {open_store(config.storage_path, config.storage_filesystem).url for config in configs}
    if len(urls) > 1:
        raise InvalidStudy(
            f"the experiments are stored in {len(urls)} places, {', '.join(sorted(urls))}, and an"
            " analysis covers only one",
            hint="the same storage_path for all; tune.run_experiments([…]) returns their trials",
        )


@dataclass(frozen=True)
class _Outcome:
    """A study that has run, and its results."""

    spec: StudySpec
    grid: ResultGrid
    url: str


def _outcomes(experiments: Sequence[Experiment], given: Mapping[str, Any]) -> list[_Outcome]:
    """Run studies one after the other, up to the first that is interrupted.

    Raises `TuneError` at the end if a trial has failed, if `raise_on_failed_trial`.
    """
    outcomes = []
    for experiment in experiments:
        outcomes.append(_outcome(experiment, given))
        if outcomes[-1].grid.interrupted:
            break
    if given["raise_on_failed_trial"]:
        _must_have_completed(outcomes)
    return outcomes


def _outcome(experiment: Experiment, given: Mapping[str, Any]) -> _Outcome:
    """Run one study, new or resumed, to its end."""
    mode = mode_of(given["resume"], given["resume_config"])
    spec = experiment.to_study(
        fail_fast=given.get("fail_fast", False),
        run_options={name: given[name] for name in _RUN_ARGUMENTS},
        **{name: given[name] for name in _SEARCH_ARGUMENTS if name in given},
    )
    if spec.has_made_up_name and mode.base != NEW:
        spec = newest_unnamed(spec) or spec
    store = spec.store()
    uploads = experiment.upload_dir is not None
    resumption = Resumption()
    if should_resume(mode, store, uploads=uploads, ask=given["_prompt"]):
        spec, resumption = resumed_spec(spec, store), mode.resumption
    else:
        _must_work(spec)
        spec = with_claimed_name(spec)
        store = spec.store()
        make_room(spec, store)
    grid = Tuner(_restored=(spec, resumption)).fit()
    return _Outcome(spec, grid, store.url)


def _must_work(spec: StudySpec) -> None:
    """Raise if the study cannot run, before an older one is moved out of its way."""
    spec.trainable.program(spec.run_config.checkpoint_config, spec.export_formats)
    spec.search()
    spec.scheduler()
    spec.stopper()
    if spec.resources is not None and not callable(spec.resources):
        bundles_of(spec.resources, {})


def _must_have_completed(outcomes: Sequence[_Outcome]) -> None:
    """Raise if trials have failed in studies that were not interrupted."""
    grids = [outcome.grid for outcome in outcomes if not outcome.grid.interrupted]
    trials = [trial for grid in grids for trial in grid.trials]
    failed = [trial for trial in trials if trial.status is Status.ERROR]
    if not failed:
        return
    names = [str(trial) for trial in failed[:_SHOWN_MAX]]
    if len(failed) > _SHOWN_MAX:
        names.append(f"and {len(failed) - _SHOWN_MAX} more")
    first = error_of(failed[0])
    raise TuneError(
        f"{len(failed)} of {len(trials)} trials did not complete: {', '.join(names)};"
        f" the first: {str(first).splitlines()[0]}",
        hint="resume='LOCAL+ERRORED' resumes them; raise_on_failed_trial=False returns without"
        " raising",
    ) from first


def _must_have_names_of_their_own(experiments: Sequence[Experiment]) -> None:
    """Raise if two studies would have one folder; generated names are unique anyway."""
    folders = Counter(
        (experiment.name, experiment.storage_path)
        for experiment in experiments
        if experiment.is_named
    )
    for (name, _), count in folders.items():
        if count > 1:
            raise InvalidStudy(
                f"{count} of the experiments are called {name!r}, and each would move the one"
                " before out of its way",
                hint=f"tune.Experiment('{name}_2', …)",
            )


def _experiments(given: Any) -> list[Experiment]:
    if isinstance(given, Experiment):
        return [given]
    if isinstance(given, Mapping):
        return [Experiment.from_json(str(name), spec) for name, spec in given.items()]
    if isinstance(given, list | tuple) and given:
        for experiment in given:
            if not isinstance(experiment, Experiment):
                raise InvalidStudy(
                    f"experiments={shown(given)}: {shown(experiment)} is not an Experiment,"
                    f" {this_is(experiment)}",
                    hint="tune.Experiment('my_study', trainable)",
                )
        _must_have_names_of_their_own(given)
        return list(given)
    raise InvalidStudy(
        f"experiments={shown(given)}: {this_is(given) if given else 'there is nothing to run'}",
        hint="run_experiments({'my_study': {'run': trainable}}), or a list of Experiment",
    )
