"""All names of `ray.exceptions` exist, and catch what they should."""

from __future__ import annotations

import pickle

import pytest

import holdfast
from holdfast import exceptions
from holdfast.core.run.outcomes import Died, Raised
from holdfast.errors import HoldfastError
from holdfast.objects.memory import ObjectLost
from holdfast.train import WorkerGroupError
from holdfast.train.errors import exceptions_of


@pytest.mark.parametrize("name", exceptions.__all__)
def test_every_name_is_an_error_of_ours_that_travels(name: str) -> None:
    kind = getattr(holdfast.exceptions, name)
    again = pickle.loads(pickle.dumps(kind("why", hint="this")))

    assert issubclass(kind, HoldfastError) and kind.__doc__
    assert type(again) is kind and str(again).startswith("why")


def test_whatever_holdfast_raises_is_a_ray_error() -> None:
    with pytest.raises(exceptions.RayError):
        holdfast.train.ScalingConfig(num_workers=-1)


def test_a_worker_that_died_is_caught_by_each_of_its_names() -> None:
    exits = (
        Died(0, "n", 7, signal=9),
        Died(1, "n", 8, signal=9, out_of_memory=True),
        Died(2, "n", 9, signal=9, node_lost=True),
        Raised(3, "n", "ValueError: x", "trace"),
    )
    failures = exceptions_of(exits, {})

    for rank in (0, 1, 2):
        assert isinstance(failures[rank], exceptions.ActorDiedError | exceptions.RayActorError)
        assert isinstance(failures[rank], exceptions.WorkerCrashedError)
    assert isinstance(failures[1], exceptions.OutOfMemoryError)
    assert isinstance(failures[2], exceptions.NodeDiedError)
    assert not isinstance(failures[0], exceptions.OutOfMemoryError | exceptions.NodeDiedError)


def test_a_group_that_failed_is_a_task_that_raised_and_knows_what() -> None:
    error = WorkerGroupError("rank 0 raised ValueError", {0: ValueError("x")})
    assert error.as_instanceof_cause() is error
    error.__cause__ = cause = ValueError("x")

    assert isinstance(error, exceptions.RayTaskError)
    assert error.cause is cause is error.as_instanceof_cause()


def test_an_object_that_is_gone_is_lost() -> None:
    assert issubclass(ObjectLost, exceptions.ObjectLostError)
