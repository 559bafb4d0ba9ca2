"""Nodes that are lost and nodes that join, on simulated nodes with real processes."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast import train
from holdfast.engine.nodes import LocalNodes
from holdfast.errors import ConfigError
from holdfast.train import FailureConfig, RunConfig, ScalingConfig, UserCallback, WorkerGroupError
from holdfast.train.trainer import DataParallelTrainer
from tests.integration.train.conftest import Lab
from tests.integration.train.loops import begin, is_first, note, save, wait_for


@pytest.fixture
def nodes() -> Iterator[LocalNodes]:
    """Two nodes with room for two workers each."""
    try:
        yield holdfast.init(nodes=2, num_cpus=2)
    finally:
        holdfast.shutdown()


class AfterStep(UserCallback):
    """Does something, once, when a step is saved."""

    def __init__(self, step: int, act: Any) -> None:
        self._step, self._act = step, act

    def after_report(self, run_context: object, metrics: Any, checkpoint: object) -> None:
        if checkpoint is not None and metrics[0]["step"] == self._step and self._act is not None:
            act, self._act = self._act, None
            act()


def fit(
    lab: Lab,
    loop: Any,
    *callbacks: UserCallback,
    workers: int | tuple[int, int] = 4,
    max_failures: int = 1,
) -> train.Result:
    failures = FailureConfig(max_failures=max_failures, backoff_max_s=0.0)
    return DataParallelTrainer(
        loop,
        scaling_config=ScalingConfig(num_workers=workers, elastic_resize_monitor_interval_s=0.1),
        run_config=RunConfig(
            name="run",
            storage_path=str(lab.storage),
            failure_config=failures,
            callbacks=list(callbacks),
        ),
    ).fit()


def loop_until(lab: Lab, steps: int, *, waits_at: int | None = None) -> Any:
    """Return a loop that saves each step; at one of them it waits for the test, the first time."""
    notes = lab.notes
    gate = notes.with_name("gate")

    def loop() -> None:
        context = train.get_context()
        for step in range(begin(notes), steps):
            save(step)
            note(
                notes,
                what="did",
                step=step,
                rank=context.get_world_rank(),
                size=context.get_world_size(),
                node_rank=context.get_node_rank(),
                local_rank=context.get_local_rank(),
            )
            if step == waits_at:
                wait_for(gate)

    return loop


@pytest.mark.req("T-035", "T-037", "T-040", "T-043", "T-048", "T-060", "T-061", "T-062")
def test_a_run_survives_the_loss_of_a_node_when_there_is_another(
    lab: Lab, nodes: LocalNodes
) -> None:
    """Four workers on two nodes; one node fails and a new one joins."""

    def lose() -> None:
        nodes.join("node-2")
        nodes.fail("node-1")

    result = fit(lab, loop_until(lab, 4), AfterStep(1, lose))

    assert result.metrics == {"step": 3}
    assert len(lab.begun()) == 8, "all four ranks began twice"
    gone = {fact["pid"] for fact in lab.begun()[:4]}
    assert all(gone.isdisjoint(fact["alive"]) for fact in lab.begun()[4:])
    first = [fact for fact in lab.noted("did") if fact["step"] == 0]
    assert sorted((f["rank"], f["node_rank"], f["local_rank"]) for f in first) == [
        (0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 1, 1),
    ]  # fmt: skip


def test_the_loss_of_a_node_counts_as_one_failure(lab: Lab, nodes: LocalNodes) -> None:
    def lose() -> None:
        nodes.join("node-2")
        nodes.fail("node-1")

    with pytest.raises(WorkerGroupError, match="node-1"):
        fit(lab, loop_until(lab, 4), AfterStep(1, lose), max_failures=0)


@pytest.mark.req("T-044", "T-063", "T-064", "T-065")
def test_a_run_waits_for_a_node_to_join_and_loses_no_retry_by_it(
    lab: Lab, nodes: LocalNodes, caplog: pytest.LogCaptureFixture
) -> None:
    """The new node joins only once the run has said that it waits."""

    class Joins(UserCallback):
        def after_exception(self, run_context: object, worker_exceptions: object) -> None:
            def join_when_waiting() -> None:
                while "waiting for room" not in caplog.text:
                    threading.Event().wait(0.01)
                nodes.join()

            threading.Thread(target=join_when_waiting, daemon=True).start()

    result = fit(lab, loop_until(lab, 4), AfterStep(1, lambda: nodes.fail("node-1")), Joins())

    assert result.metrics == {"step": 3}
    assert "2 workers" not in caplog.text, "it waited for room for all four"
    assert len(lab.begun()) == 8


def test_an_elastic_run_goes_on_with_fewer_workers_and_grows_again_after_a_checkpoint(
    lab: Lab, nodes: LocalNodes
) -> None:
    gate = lab.notes.with_name("gate")

    def grow() -> None:
        nodes.join()
        gate.touch()

    loop = loop_until(lab, 8)
    result = fit(
        lab,
        loop,
        AfterStep(1, lambda: nodes.fail("node-1")),
        AfterStep(4, grow),
        workers=(1, 4),
    )

    assert result.metrics == {"step": 7}
    sizes = {fact["step"]: fact["size"] for fact in lab.noted("did")}
    assert sizes[0] == 4 and sizes[3] == 2 and sizes[7] == 4
    done = [fact["step"] for fact in lab.noted("did") if fact["rank"] == 0]
    assert sorted(done) == sorted(set(done)), "growing cost no step"


def test_a_rank_stays_on_its_node_when_another_node_is_replaced(
    lab: Lab, nodes: LocalNodes
) -> None:
    notes = lab.notes

    def lose() -> None:
        nodes.join("node-2")
        nodes.fail("node-0")

    def loop() -> None:
        context = train.get_context()
        for step in range(begin(notes), 3):
            save(step)
        note(notes, what="ended", rank=context.get_world_rank(), node=context.get_node_rank())

    fit(lab, loop, AfterStep(0, lose))

    ended = {fact["rank"]: fact["node"] for fact in lab.noted("ended")}
    assert ended == {0: 0, 1: 0, 2: 1, 3: 1}


# ---------------------------------------------------------------------- what cannot be had


@pytest.mark.parametrize(
    ("scaling", "said"),
    [
        (ScalingConfig(num_workers=2, use_gpu=True), "0 GPU"),
        (ScalingConfig(num_workers=1, resources_per_worker={"CPU": 4096}), "4096 CPU"),
        (ScalingConfig(num_workers=1, resources_per_worker={"unobtainium": 1}), "unobtainium"),
    ],
    ids=["GPUs", "CPUs", "something else"],
)
def test_what_this_machine_can_never_give_is_refused_before_anything_is_made(
    lab: Lab, scaling: ScalingConfig, said: str
) -> None:
    trainer = DataParallelTrainer(
        lambda: None,
        scaling_config=scaling,
        run_config=RunConfig(name="run", storage_path=str(lab.storage)),
    )

    with pytest.raises(ConfigError, match=said) as caught:
        trainer.fit()

    assert "node-0" in str(caught.value), "it says what there is"
    assert not lab.storage.exists()


def test_more_workers_than_cpus_are_no_problem_on_a_machine_of_ones_own(lab: Lab) -> None:
    def loop() -> int:
        return train.get_context().get_world_size()

    result = DataParallelTrainer(
        loop,
        scaling_config=ScalingConfig(num_workers=6),
        run_config=RunConfig(name="run", storage_path=str(lab.storage)),
    ).fit()

    assert result.return_value == 6


def test_gpus_are_given_out_so_that_no_two_workers_share_one(lab: Lab) -> None:
    """Of GPUs that are only names; what a worker sees of them is CUDA_VISIBLE_DEVICES."""
    notes = lab.notes

    def loop() -> None:
        rank = train.get_context().get_world_rank()
        note(notes, what="gpus", rank=rank, gpus=os.environ["CUDA_VISIBLE_DEVICES"])

    holdfast.init(nodes=2, num_cpus=8, num_gpus=4)
    try:
        DataParallelTrainer(
            loop,
            scaling_config=ScalingConfig(
                num_workers=4, use_gpu=True, resources_per_worker={"GPU": 2}
            ),
            run_config=RunConfig(name="run", storage_path=str(lab.storage)),
        ).fit()
    finally:
        holdfast.shutdown()

    gpus = {fact["rank"]: fact["gpus"] for fact in lab.noted("gpus")}
    assert gpus == {0: "0,1", 1: "2,3", 2: "0,1", 3: "2,3"}


def test_a_marker_is_used_once(lab: Lab) -> None:
    """`is_first` decides who dies in these tests, so it must be right."""
    assert [is_first(lab.folder / "mark") for _ in range(3)] == [True, False, False]
