"""One launch of a run: turns a trainer's configs into the controller's plan, and drives it.

Also connects signals, preemption notices, callbacks and output to the controller.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.api.config import RunConfig, budget_of, retention_of
from holdfast.api.scaling import ScalingConfig
from holdfast.checkpoint import Checkpoint
from holdfast.checkpoint.fetch import CopyKeeper
from holdfast.control.host.log_folders import log_folder
from holdfast.control.host.preemption import Notice, source_named, watch
from holdfast.control.host.signals import Interrupt, Interrupts
from holdfast.control.record.open_run import OpenRun, OpenTrainingRun
from holdfast.control.run.controller import RunController
from holdfast.control.run.plan import Outcome, Plan
from holdfast.control.run.validation import Validator
from holdfast.core.placement import Demand, capacity, why_not
from holdfast.core.run.budget import STARTS_ALIKE_MAX, Budget
from holdfast.core.run.machine import Ending
from holdfast.data.config import DataConfig, check_shares, evaluated, shards, shared
from holdfast.engine.base import Engine
from holdfast.engine.inline import InlineEngine
from holdfast.engine.selection import new_engine
from holdfast.errors import ConfigError
from holdfast.train.backend import BackendConfig
from holdfast.train.callbacks import CallbackObserver, TrainRunContext
from holdfast.train.display import Display, NotFiniteWatch
from holdfast.train.reported import ValidationConfig, ValidationTaskConfig
from holdfast.wire import Waiting
from holdfast.worker.context import WorkerContext, current
from holdfast.worker.entry import doing_here, is_in_function
from holdfast.worker.job import Task

ENTRY = "holdfast.worker.entry:main"
ENTRY_INLINE = "holdfast.worker.entry:main_inline"
RESERVE_AGAIN_S = 0.1
WORKER_MODULES = ("holdfast.worker.entry", "holdfast.train.functions", "holdfast.train.collective")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Everything a trainer passes on for one launch.

    Attributes:
        function: What workers call with `config`, or without an argument if that is None.
        setups: Functions that prepare a framework in each worker.
        modules: Modules that every worker needs.
        later_modules: Modules to import after the first workers have started.
        first_checkpoint: What a run without a checkpoint of its own starts from.
    """

    function: Callable[..., Any]
    config: Mapping[str, Any] | None
    scaling: ScalingConfig
    run: RunConfig
    setups: Sequence[Callable[[WorkerContext], None]] = ()
    modules: Sequence[str] = ()
    later_modules: Sequence[str] = ()
    datasets: Mapping[str, Any] = field(default_factory=dict)
    dataset_config: DataConfig | None = None
    backend: BackendConfig | None = None
    validation: ValidationConfig | None = None
    first_checkpoint: Checkpoint | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_inline(self) -> bool:
        """Whether the function runs in this process."""
        return self.scaling.max_workers == 0


def with_shared_data(launch: Launch) -> Launch:
    """Return the launch with its in-memory datasets in shared memory.

    Raises if they do not fit, or if a worker would certainly get no row.
    """
    check_shares(launch.datasets, launch.dataset_config, max(1, launch.scaling.max_workers))
    return launch if launch.is_inline else replace(launch, datasets=shared(launch.datasets))


def engine_for(launch: Launch) -> Engine:
    """Return the engine for the workers; raise if they can never fit there."""
    if launch.is_inline:
        return InlineEngine(ENTRY_INLINE)
    engine = _new_engine(launch)
    scaling = launch.scaling
    try:
        _must_fit(scaling, engine)
        demand = _demand(scaling, engine)
        while not engine.reserve(demand, scaling.min_workers, scaling.max_workers):
            _tell_study_of_waiting()
            engine.next_event(RESERVE_AGAIN_S)
        engine.warm_up()
    except BaseException:
        engine.close()
        raise
    return engine


def _tell_study_of_waiting() -> None:
    """Tell the study, if this process is one of its trials, that it is not hung."""
    trial = current()
    if trial is not None:
        trial.conversation.say(Waiting())


def _new_engine(launch: Launch) -> Engine:
    trial = current()  # None unless this process is a trial
    return new_engine(
        ENTRY,
        _modules(launch),
        later=launch.later_modules,
        offer=None if trial is None else trial.job.offer,
    )


def _modules(launch: Launch) -> list[str]:
    """Return the modules that every worker needs."""
    data_modules = ["holdfast.data.dataset"] if launch.datasets else []
    return [*WORKER_MODULES, *data_modules, *launch.modules]


def drive(launch: Launch, run: OpenTrainingRun, engine: Engine) -> Outcome:
    """Run to the end, from wherever the run is."""
    run.wait_without_end("training goes on until it reports, and checkpoints wait")
    plan = plan_of(launch, run, engine)
    context = TrainRunContext(
        run.identity.run_id,
        launch.run,
        launch.config,
        launch.scaling,
        launch.backend,
        launch.dataset_config,
    )
    # A function in this process prints and raises here itself.
    level = "CRITICAL" if launch.is_inline else launch.run.logging_config.log_level
    display = Display(engine, level)
    not_finite = NotFiniteWatch(launch.run.checkpoint_config.checkpoint_score_attribute)
    callbacks = [CallbackObserver(callback, context) for callback in launch.run.callbacks]
    controller = RunController(run, engine, plan, observers=[display, not_finite, *callbacks])
    try:
        with _listening(launch.run, controller, engine, run):
            if isinstance(engine, InlineEngine):
                with doing_here(Task(launch.function, launch.config, tuple(launch.setups))):
                    return _drive_inline(controller, engine)
            return controller.drive()
    finally:
        display.close()
        if plan.copies is not None:
            plan.copies.close()


def plan_of(launch: Launch, run: OpenRun, engine: Engine) -> Plan:
    """Return the controller's plan for a launch."""
    failures = launch.run.failure_config
    scaling = launch.scaling
    budget = replace(budget_of(failures), starts_alike=STARTS_ALIKE_MAX)
    if launch.is_inline:  # the caller gets what the function raises, and can retry
        budget = Budget(failures=0, preemptions=0, starts=0)
        # `doing_here` holds the real function, which need not be picklable.
        launch = replace(launch, function=_do_nothing, config=None, setups=())
    return Plan(
        function=launch.function,
        config=launch.config,
        setups=launch.setups,
        workers=max(1, scaling.max_workers),
        workers_min=max(1, scaling.min_workers),
        demand=_demand(scaling, engine),
        budget=budget,
        backoff_max_s=failures.backoff_max_s,
        retention=retention_of(launch.run.checkpoint_config),
        log_folder=log_folder(run.store, run.identity.run_id),
        environment=_environment(launch.run.worker_runtime_env),
        first_checkpoint=launch.first_checkpoint,
        metadata=launch.metadata,
        shards=_shard_function(launch),
        hang_timeout_s=failures.hang_timeout_s,
        late_after_s=failures.late_timeout_s,
        notice_s=failures.preemption_notice_s + failures.preemption_grace_s,
        resize_after_s=scaling.elastic_resize_monitor_interval_s,
        validator=_validator(launch),
        copies=CopyKeeper() if run.store.local is None else None,
    )


def _do_nothing() -> None:
    """Take the place of a function that runs in this process."""


# ---------------------------------------------------------------------- resources


def _must_fit(scaling: ScalingConfig, engine: Engine) -> None:
    nodes = engine.nodes()
    if engine.can_grow():
        return
    demand = _demand(scaling, engine)
    if capacity(nodes, demand) < scaling.min_workers:
        raise ConfigError(
            why_not(nodes, demand, scaling.min_workers),
            hint="ask for less in ScalingConfig(num_workers, use_gpu, resources_per_worker)",
        )
    cpus = max(node.room.get("CPU", 0.0) for node in nodes)
    if scaling.resources_per_worker is not None and scaling.num_cpus_per_worker > cpus:
        each = Demand(each={"CPU": scaling.num_cpus_per_worker})
        raise ConfigError(
            why_not(nodes, each, 1), hint="ask for fewer in ScalingConfig(resources_per_worker)"
        )


def _demand(scaling: ScalingConfig, engine: Engine) -> Demand:
    """Return the resources that each worker must be given.

    On an engine that cannot grow, workers may outnumber the CPUs, and the types of its GPUs are
    not known.
    """
    each = {
        name: need / scaling.max_workers
        for name, need in scaling.total_resources.items()
        if scaling.max_workers
        and (engine.can_grow() or (name != "CPU" and not name.startswith("accelerator_type")))
    }
    return Demand(each=each, strategy=scaling.placement_strategy)


# ---------------------------------------------------------------------- inputs of workers


def _environment(runtime: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables that `worker_runtime_env` sets."""
    variables = runtime.get("env_vars") or {}
    return {str(name): str(value) for name, value in variables.items()}


def _shard_function(launch: Launch) -> Callable[[int], Sequence[Mapping[str, Any]]] | None:
    """Return a function from a number of workers to the datasets of each; None without any."""
    if not launch.datasets:
        return None

    alive: list[Mapping[str, Any]] = []  # shared memory of this attempt lasts as long as these

    def shards_for(workers: int) -> list[Mapping[str, Any]]:
        datasets = evaluated(launch.datasets, launch.dataset_config)
        alive[:] = [datasets if launch.is_inline else shared(datasets)]
        return [shards(alive[0], launch.dataset_config, workers, rank) for rank in range(workers)]

    return shards_for


def _validator(launch: Launch) -> Validator | None:
    if launch.validation is None:
        return None
    task = launch.validation.task_config or ValidationTaskConfig()
    return Validator(
        function=launch.validation.fn,
        arguments=task.fn_kwargs or {},
        timeout_s=task.timeout_s,
        retries=launch.validation.retries,
        retried_errors=launch.validation.retried_errors,
        engine=lambda: _new_engine(launch),
    )


# ---------------------------------------------------------------------- signals, notices


@contextmanager
def _listening(
    config: RunConfig, controller: RunController, engine: Engine, run: OpenRun
) -> Iterator[None]:
    """Pass signals and preemption notices on to the run while it is driven."""
    with _interrupts(engine, run) as interrupts:
        if isinstance(engine, InlineEngine):
            engine.interrupt = interrupts.insist
        controller.listen_to(lambda: map(_notice_or_ending, interrupts.take()))
        source = config.preemption_notices
        watcher = None if source is None else watch(source_named(source), controller.notice)
        try:
            yield
        finally:
            if watcher is not None:
                watcher.stop()
    if Interrupt.STOP in interrupts.take():
        raise KeyboardInterrupt  # the signal came after the end of the run


def _interrupts(engine: Engine, run: OpenRun) -> Interrupts:
    def wake() -> None:
        if interrupts.wants_stop:
            run.hurry()
        engine.wake()

    is_inline = isinstance(engine, InlineEngine)
    interrupts = Interrupts(wake, insists=is_in_function) if is_inline else Interrupts(wake)
    return interrupts


def _notice_or_ending(interrupt: Interrupt) -> Notice | Ending:
    if interrupt is Interrupt.STOP:
        return Ending.STOPPED
    return Notice(None, None, "a signal to the driver")


def _drive_inline(controller: RunController, engine: InlineEngine) -> Outcome:
    """Run the function in this thread, and the controller in another.

    What the function raises is raised, unless it raised because the run was asked to end.
    """
    outcomes: list[Outcome] = []
    raised: BaseException | None = None
    controller_errors: list[BaseException] = []

    def control() -> None:
        try:
            outcomes.append(controller.drive())
        except BaseException as error:  # noqa: BLE001  # it is raised below
            controller_errors.append(error)
        finally:
            engine.close()

    thread = threading.Thread(target=control, name="holdfast-controller")
    thread.start()
    try:
        engine.serve()
    except BaseException as error:  # noqa: BLE001  # it is raised below
        raised = error
    finally:
        thread.join()
    if controller_errors:
        raise controller_errors[0]
    [outcome] = outcomes
    was_asked = engine.has_insisted or outcome.over.ending in (Ending.STOPPED, Ending.PREEMPTED)
    if raised is not None and not was_asked:
        raise raised
    return outcome
