"""One launch of a run: from what a trainer says to how it came out.

Here the configs that users write become the plan that the controller follows, and here is decided
what the run is told by signals and what people see of it.
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
from holdfast.train.display import Display, LossWatch
from holdfast.train.reported import ValidationConfig, ValidationTaskConfig
from holdfast.wire import Waiting
from holdfast.worker.context import WorkerContext, current
from holdfast.worker.entry import doing_here, is_in_function
from holdfast.worker.job import Task

ENTRY = "holdfast.worker.entry:main"
RESERVE_AGAIN_S = 0.1
ENTRY_INLINE = "holdfast.worker.entry:main_inline"
WORKER_MODULES = ("holdfast.worker.entry", "holdfast.train.functions", "holdfast.train.collective")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Everything a trainer says about one launch.

    Attributes:
        function: What workers call, with `config`, or with nothing if that is None.
        setups: What prepares a framework in each worker.
        modules: What every worker will want imported.
        later_modules: What they will want, but the first ones not at once.
        first_checkpoint: What a run without a checkpoint of its own begins with.
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
        """Whether the function runs in this very process."""
        return self.scaling.max_workers == 0


def with_data(launch: Launch) -> Launch:
    """Return a launch whose workers share what of its datasets is in memory.

    Raises if there is no room for it, or if it is known that a worker would get no row.
    """
    check_shares(launch.datasets, launch.dataset_config, max(1, launch.scaling.max_workers))
    return launch if launch.is_inline else replace(launch, datasets=shared(launch.datasets))


def engine_for(launch: Launch) -> Engine:
    """Return where the workers will run; raise if they can never fit there."""
    if launch.is_inline:
        return InlineEngine(ENTRY_INLINE)
    engine = _new_engine(launch)
    try:
        _must_fit(launch.scaling, engine)
        scaling = launch.scaling
        demand = _demand(scaling, engine)
        while not engine.reserve(demand, scaling.min_workers, scaling.max_workers):
            _say_waiting()
            engine.next_event(RESERVE_AGAIN_S)
        engine.warm_up()
    except BaseException:
        engine.close()
        raise
    return engine


def _say_waiting() -> None:
    """Have the study of this trial, if it is one, know that it is not hung."""
    trial = current()
    if trial is not None:
        trial.conversation.say(Waiting())


def _new_engine(launch: Launch) -> Engine:
    trial = current()  # if this is the process of one
    return new_engine(
        ENTRY,
        _modules(launch),
        later=launch.later_modules,
        offer=None if trial is None else trial.job.offer,
    )


def _modules(launch: Launch) -> list[str]:
    """Return what every worker will want imported."""
    of_data = ["holdfast.data.dataset"] if launch.datasets else []
    return [*WORKER_MODULES, *of_data, *launch.modules]


def drive(launch: Launch, run: OpenTrainingRun, engine: Engine) -> Outcome:
    """Run to the end, carrying on from wherever the run is."""
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
    # In this very process everything is seen as it happens.
    level = "CRITICAL" if launch.is_inline else launch.run.logging_config.log_level
    display = Display(engine, level)
    losses = LossWatch(launch.run.checkpoint_config.checkpoint_score_attribute)
    callbacks = [CallbackObserver(callback, context) for callback in launch.run.callbacks]
    controller = RunController(run, engine, plan, observers=[display, losses, *callbacks])
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
    """Return what a launch says, in the words of the layers below."""
    failures = launch.run.failure_config
    scaling = launch.scaling
    budget = replace(budget_of(failures), starts_alike=STARTS_ALIKE_MAX)
    if launch.is_inline:  # what the function raises goes to the caller, who can try again
        budget = Budget(failures=0, preemptions=0, starts=0)
        # What is done here, `doing_here` has: it does not travel, and need not be able to.
        launch = replace(launch, function=_nothing, config=None, setups=())
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
        shards=_dealer(launch),
        hang_timeout_s=failures.hang_timeout_s,
        late_after_s=failures.late_timeout_s,
        notice_s=failures.preemption_notice_s + failures.preemption_grace_s,
        resize_after_s=scaling.elastic_resize_monitor_interval_s,
        validator=_validator(launch),
        copies=CopyKeeper() if run.store.local is None else None,
    )


def _nothing() -> None:
    """Stand for a function that stays here."""


# ---------------------------------------------------------------------- room


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
    """Return what each worker needs of what can run out.

    On a machine of one's own workers may outnumber its CPUs, and nobody knows what its GPUs are.
    """
    each = {
        name: need / scaling.max_workers
        for name, need in scaling.total_resources.items()
        if scaling.max_workers
        and (engine.can_grow() or (name != "CPU" and not name.startswith("accelerator_type")))
    }
    return Demand(each=each, strategy=scaling.placement_strategy)


# ---------------------------------------------------------------------- what workers are given


def _environment(runtime: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables that `worker_runtime_env` sets; of what else it may say, nothing."""
    variables = runtime.get("env_vars") or {}
    return {str(name): str(value) for name, value in variables.items()}


def _dealer(launch: Launch) -> Callable[[int], Sequence[Mapping[str, Any]]] | None:
    if not launch.datasets:
        return None

    alive: list[Mapping[str, Any]] = []  # of this attempt: what is shared lasts as long as these

    def deal(workers: int) -> list[Mapping[str, Any]]:
        made = evaluated(launch.datasets, launch.dataset_config)
        alive[:] = [made if launch.is_inline else shared(made)]
        return [shards(alive[0], launch.dataset_config, workers, rank) for rank in range(workers)]

    return deal


def _validator(launch: Launch) -> Validator | None:
    if launch.validation is None:
        return None
    usual = launch.validation.task_config or ValidationTaskConfig()
    return Validator(
        function=launch.validation.fn,
        arguments=usual.fn_kwargs or {},
        timeout_s=usual.timeout_s,
        retries=launch.validation.retries,
        retried_errors=launch.validation.retried_errors,
        engine=lambda: _new_engine(launch),
    )


# ---------------------------------------------------------------------- signals, notices


@contextmanager
def _listening(
    config: RunConfig, controller: RunController, engine: Engine, run: OpenRun
) -> Iterator[None]:
    """Pass signals and the notices of a cloud on to the run while it goes on."""
    with _interrupts(engine, run) as interrupts:
        if isinstance(engine, InlineEngine):
            engine.interrupt = interrupts.insist
        controller.listen_to(lambda: map(_news, interrupts.take()))
        source = config.preemption_notices
        watcher = None
        if source is not None:
            watcher = watch(source_named(source), controller.notice)
        try:
            yield
        finally:
            if watcher is not None:
                watcher.stop()
    if Interrupt.STOP in interrupts.take():
        raise KeyboardInterrupt  # it came when the run was over already


def _interrupts(engine: Engine, run: OpenRun) -> Interrupts:
    def wake() -> None:
        if interrupts.wants_stop:
            run.hurry()
        engine.wake()

    interrupts = Interrupts(wake)
    if isinstance(engine, InlineEngine):
        interrupts = Interrupts(wake, insists=is_in_function)
    return interrupts


def _news(interrupt: Interrupt) -> Notice | Ending:
    if interrupt is Interrupt.STOP:
        return Ending.STOPPED
    return Notice(None, None, "a signal to the driver")


def _drive_inline(controller: RunController, engine: InlineEngine) -> Outcome:
    """Run the function in this thread, and the controller in another.

    What the function raises is raised, unless the run was to end: then that is why.
    """
    found: list[Outcome] = []
    raised: BaseException | None = None
    failed: list[BaseException] = []

    def control() -> None:
        try:
            found.append(controller.drive())
        except BaseException as error:  # noqa: BLE001  # it is raised below, where it is seen
            failed.append(error)
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
    if failed:
        raise failed[0]
    is_ours = engine.has_insisted or found[0].over.ending in (Ending.STOPPED, Ending.PREEMPTED)
    if raised is not None and not is_ours:
        raise raised
    return found[0]
