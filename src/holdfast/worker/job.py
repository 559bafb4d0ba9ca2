"""What a worker is given to do. It crosses a socket as a pickle and never rests on a disk."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import cloudpickle

from holdfast.checkpoint import Checkpoint
from holdfast.core.placement import Place
from holdfast.core.study.offers import Offer
from holdfast.core.study.trial import Verdict

if TYPE_CHECKING:
    from holdfast.worker.context import WorkerContext


@dataclass(frozen=True, slots=True)
class Task:
    """The user's function, the same for all workers of a run.

    Attributes:
        config: What it is called with, None to call it with nothing.
        setups: Called in order before the function; they prepare a framework.
    """

    function: Callable[..., Any]
    config: Mapping[str, Any] | None = None
    setups: Sequence[Callable[[WorkerContext], None]] = ()


@dataclass(kw_only=True)  # neither frozen nor with slots: such an object is pickled fastest
class TrialJob:
    """What the process of a trial knows of its trial.

    Attributes:
        config: What the trainable is called with.
        resources: What the trial has reserved: a mapping for each process.
        last_result: The last result that counts; iterations and times are counted on from there.
        verdict: STOP if the trial was to end, and its process died before it had.
    """

    trial_id: str
    name: str
    config: Mapping[str, Any] = field(default_factory=dict)
    resources: Sequence[Mapping[str, float]] = ()
    last_result: Mapping[str, Any] = field(default_factory=dict)
    verdict: Verdict = Verdict.CONTINUE


@dataclass(kw_only=True)
class Job:
    """Everything a worker must know.

    Attributes:
        task: A `Task`, pickled once for all workers; empty for that of the job before.
        store: The run's store as plain data, from `holdfast.storage.locate.describe`.
        checkpoint: Where to carry on from, None to begin.
        reports_before: How many reports the run had made by then; counting goes on from there.
        shards: This worker's parts of the datasets.
        metadata: What the user has attached to a training run.
        trial: What there is to know of the trial, None in a training run.
        stays: Whether the process waits for another job when this one is done.
        landmark: A key by which a worker sees that its store is the driver's, None not to look.
        home: Where to look for it if that is not `store` itself but what `store` is a part of.
        offer: What runs may use that the function launches, None for whatever they find.
    """

    task: bytes
    place: Place
    run_name: str
    run_id: str
    attempt: int
    store: Mapping[str, Any]
    checkpoint: Checkpoint | None = None
    reports_before: int = 0
    shards: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    trial: TrialJob | None = None
    validates: bool = False
    landmark: str | None = ".holdfast/run.json"
    home: Mapping[str, Any] | None = None
    stays: bool = False
    offer: Offer | None = None


def pack(thing: Task | Job) -> bytes:
    """Return a task or a job as bytes for the way to a worker."""
    if isinstance(thing, Job) and not thing.shards and _are_plain(_user_data(thing)):
        return pickle.dumps(thing)  # much faster, and only the task may hold code of the user's
    packed: bytes = cloudpickle.dumps(thing)
    return packed


def _user_data(job: Job) -> list[object]:
    trial = job.trial
    return [job.metadata] if trial is None else [job.metadata, trial.config, trial.last_result]


def _is_plain(value: object) -> bool:
    """Whether it is data that any process can unpickle."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind is dict:
        return _are_plain(value) and _are_plain(value.values())  # type: ignore[arg-type,attr-defined]
    return kind in (list, tuple) and _are_plain(value)  # type: ignore[arg-type]


def _are_plain(values: Iterable[object]) -> bool:
    return _PLAIN.issuperset(map(type, values)) or all(map(_is_plain, values))


_PLAIN = frozenset({type(None), bool, int, float, str, bytes})


def unpack_job(data: bytes) -> Job:
    """Return the job that a driver has packed."""
    job = pickle.loads(data)  # noqa: S301  # from our own driver, over a private socket
    assert isinstance(job, Job)
    return job


def unpack_task(data: bytes) -> Task:
    """Return the task that a driver has packed."""
    task = pickle.loads(data)  # noqa: S301  # from our own driver, over a private socket
    assert isinstance(task, Task)
    return task


def unpack_value(data: bytes) -> Any:
    """Return what a worker returned or raised; unpickling runs its own code, which may raise."""
    return pickle.loads(data)  # noqa: S301  # from our own worker, over a private socket
