"""What the workers of an attempt are started with, and what each is given to do."""

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
    """Return the workers of an attempt as the engine needs to know them."""
    found = []
    for one in places:
        environment = dict(plan.environment)
        if one.gpus is not None:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(one.gpus)
        log = plan.log_path(attempt, one.rank)
        spec = WorkerSpec(rank=one.rank, node=one.node, log=log, environment=environment)
        found.append(spec)
    return found


def jobs(
    plan: Plan, run: OpenRun, attempt: int, places: Sequence[Place], newest: Manifest | None
) -> list[Job]:
    """Return what the workers of an attempt are to do, carrying on from `newest`."""
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
            place=one,
            run_name=run.identity.name,
            run_id=run.identity.run_id,
            attempt=attempt,
            store=store,
            checkpoint=checkpoint,
            reports_before=(newest.step or 0) if newest is not None else 0,
            shards=shards[one.rank],
            metadata=plan.metadata,
            validates=plan.validator is not None,
        )
        for one in places
    ]
