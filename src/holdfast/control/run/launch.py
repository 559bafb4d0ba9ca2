"""Builds the worker specs and jobs of an attempt."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.checkpoint import Checkpoint
from holdfast.control.record.open_run import OpenRun
from holdfast.control.run.plan import Plan
from holdfast.core.checkpoint.manifest import Manifest
from holdfast.core.placement import Place
from holdfast.engine.base import WorkerSpec
from holdfast.storage import locate
from holdfast.worker.job import Job, Task, pack


def specs(plan: Plan, attempt: int, places: Sequence[Place]) -> list[WorkerSpec]:
    """Return the specs with which the engine starts the workers of an attempt."""
    workers = []
    for place in places:
        environment = dict(plan.environment)
        if place.gpus is not None:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(place.gpus)
        log = plan.log_path(attempt, place.rank)
        workers.append(
            WorkerSpec(rank=place.rank, node=place.node, log=log, environment=environment)
        )
    return workers


def jobs(
    plan: Plan, run: OpenRun, attempt: int, places: Sequence[Place], newest: Manifest | None
) -> list[Job]:
    """Return the jobs of the workers of an attempt, which go on from `newest`."""
    checkpoint = plan.first_checkpoint
    if newest is not None:
        checkpoint = Checkpoint.in_run(run.store, newest.directory)
    elif checkpoint is not None:
        checkpoint.verify()
    task = pack(Task(plan.function, plan.config, tuple(plan.setups)))
    shards = plan.shards(len(places)) if plan.shards is not None else [{} for _ in places]
    store = locate.describe(run.store)
    return [
        Job(
            task=task,
            place=place,
            run_name=run.identity.name,
            run_id=run.identity.run_id,
            attempt=attempt,
            store=store,
            checkpoint=checkpoint,
            reports_before=(newest.step or 0) if newest is not None else 0,
            shards=shards[place.rank],
            metadata=plan.metadata,
            validates=plan.validator is not None,
        )
        for place in places
    ]
