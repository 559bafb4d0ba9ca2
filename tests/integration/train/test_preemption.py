"""Machines that are taken away, with notice: what can be saved is saved in time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import holdfast
from holdfast import train
from holdfast.control.host.preemption import AwsNotices
from holdfast.engine.nodes import LocalNodes
from holdfast.train import FailureConfig, Interrupted, RunConfig, ScalingConfig
from holdfast.train.backend import BackendConfig
from holdfast.train.trainer import DataParallelTrainer
from holdfast.worker.context import WorkerContext, current
from tests.integration.train.conftest import Lab
from tests.integration.train.loops import (
    begin,
    is_first,
    is_running,
    load,
    note,
    read_notes,
    save,
    wait_for,
)
from tests.patience import pause
from tests.servers.metadata import MetadataServer

RESUMABLE = 75
SCRIPT = Path(__file__).with_name("preempted_script.py")


def launch(lab: Lab, *, saves: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.integration.train.preempted_script"]
    return subprocess.Popen(
        [*command, str(lab.storage), str(lab.notes), saves],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_notes(lab: Lab, what: str, count: int, process: subprocess.Popen[str]) -> None:
    while len(read_notes(lab.notes, what)) < count:
        assert process.poll() is None, process.communicate()[1]
        pause()


@pytest.mark.req("T-040")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("whom", ["driver", "worker", "everyone"])
def test_a_signal_makes_user_code_save_in_time_and_the_driver_exit_resumable(
    lab: Lab, number: signal.Signals, whom: str
) -> None:
    process = launch(lab, saves="when told")
    wait_for_notes(lab, "step", 6, process)
    workers = [fact["pid"] for fact in lab.begun()]
    targets = {"driver": [process.pid], "worker": workers[:1], "everyone": [process.pid, *workers]}
    for pid in targets[whom]:
        os.kill(pid, number)
    _, errors = process.communicate()

    assert process.returncode == RESUMABLE, errors
    assert "the same command" in errors
    reached = max(fact["step"] for fact in read_notes(lab.notes, "step"))
    (lab.folder / "enough").touch()
    again = launch(lab, saves="when told")
    _, errors = again.communicate()
    assert again.returncode == 0, errors
    resumed = lab.begun()[-1]["step"]
    assert resumed is not None and resumed >= reached - 1, "no more than a step was lost"
    assert len(lab.committed()) == 2, "one in time, and one at the end"


def test_a_run_whose_code_does_not_listen_loses_no_more_than_since_its_last_checkpoint(
    lab: Lab,
) -> None:
    process = launch(lab, saves="always")
    wait_for_notes(lab, "step", 6, process)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate()

    assert process.returncode == RESUMABLE, errors
    before = lab.committed()
    (lab.folder / "enough").touch()
    again = launch(lab, saves="always")
    again.communicate()
    assert again.returncode == 0
    assert len(before) >= 3 and set(before) <= set(lab.committed())


def test_a_run_that_cannot_save_in_time_is_ended_at_the_deadline(lab: Lab) -> None:
    process = launch(lab, saves="never")
    wait_for_notes(lab, "step", 2, process)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate()

    assert process.returncode == RESUMABLE, errors
    assert lab.committed() == []


def test_who_fails_while_the_machine_is_taken_away_is_not_the_cause(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    """What a function has started may get the signal too, and the function raise because of it."""
    driver = os.getpid()

    def loop() -> None:
        save(0)
        os.kill(driver, signal.SIGTERM)
        while train.get_preemption_info() is None:
            train.report({})
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Terminated")

    with pytest.raises(Interrupted):
        lab.fit(loop, workers=2)

    assert "rank 0 raised RuntimeError: DataLoader worker" in caplog.text


def test_a_worker_that_dies_with_the_signal_to_all_is_not_the_cause_either(lab: Lab) -> None:
    """The driver hears of both at once."""
    process = launch(lab, saves="always")
    wait_for_notes(lab, "step", 2, process)
    worker = lab.begun()[0]["pid"]
    os.kill(process.pid, signal.SIGSTOP)
    os.kill(process.pid, signal.SIGTERM)
    os.kill(worker, signal.SIGKILL)
    while is_running(worker):
        pause()
    os.kill(process.pid, signal.SIGCONT)
    _, errors = process.communicate()

    assert process.returncode == RESUMABLE, errors


class TakenAway(BackendConfig):
    """Has every worker be told to go while it gets ready."""

    def setups(self) -> Sequence[Callable[[WorkerContext], None]]:
        return (lambda _: os.kill(os.getpid(), signal.SIGTERM),)


def test_workers_that_are_told_to_go_while_they_get_ready_save_in_time_and_charge_nobody(
    lab: Lab,
) -> None:
    def loop() -> None:
        while train.get_preemption_info() is None:
            train.report({})
        save(0)
        save(1)

    trainer = lab.trainer(loop, workers=2)
    trainer.backend_config = TakenAway()
    with pytest.raises(Interrupted):
        trainer.fit()

    assert lab.committed() == ["checkpoint_000000"]


def test_the_notice_of_a_cloud_reaches_user_code_with_its_deadline(lab: Lab) -> None:
    notes = lab.notes
    told = time.time() + 600

    def loop() -> None:
        note(notes, what="began")
        while (info := train.get_preemption_info()) is None:
            train.report({})
        note(notes, what="info", deadline_ms=info.deadline_ms, ranks=info.preempted_ranks)
        save(0)
        save(1)

    server = MetadataServer()

    def announce_once_they_train() -> None:
        while not lab.noted("began"):
            pause()
        server.reclaim_on_aws(told)

    threading.Thread(target=announce_once_they_train, daemon=True).start()
    try:
        with pytest.raises(Interrupted) as caught:
            fit(lab, loop, workers=2, preemption_notices=AwsNotices(server.url))
    finally:
        server.stop()

    assert caught.value.code == RESUMABLE
    facts = lab.noted("info")
    assert [fact["ranks"] for fact in facts] == [[0, 1], [0, 1]]
    assert abs(facts[0]["deadline_ms"] / 1000 - told) < 2
    assert lab.committed() == ["checkpoint_000000"], "it ends once one checkpoint is saved"


# ---------------------------------------------------------------------- some machines of several


@pytest.fixture
def nodes() -> object:
    try:
        yield holdfast.init(nodes=2, num_cpus=2)
    finally:
        holdfast.shutdown()


def fit(lab: Lab, loop: object, *, workers: int = 4, **run: object) -> train.Result:
    return DataParallelTrainer(
        loop,  # type: ignore[arg-type]
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(
            name="run",
            storage_path=str(lab.storage),
            failure_config=FailureConfig(max_failures=0, backoff_max_s=0.0),
            **run,  # type: ignore[arg-type]
        ),
    ).fit()


@pytest.mark.req("T-040")
def test_a_node_that_drains_is_left_after_the_next_checkpoint_and_nothing_is_charged(
    lab: Lab, nodes: LocalNodes
) -> None:
    notes = lab.notes
    drained = notes.with_name("drained")

    class Drain(train.UserCallback):
        def after_report(self, run_context: object, metrics: object, checkpoint: object) -> None:
            if checkpoint is not None and is_first(drained):
                nodes.drain("node-1", time.time() + 600)
                nodes.join()

    def loop() -> None:
        rank = train.get_context().get_world_rank()
        for step in range(begin(notes), 6):
            info = train.get_preemption_info()
            if rank == 0:
                note(notes, what="step", step=step, info=info and info.preempted_ranks)
            if step == 0 or info is not None or step == 5:
                save(step)
            else:
                train.report({"step": step})
            if step == 0 and load() is None:
                wait_for(drained)

    result = fit(lab, loop, callbacks=[Drain()])

    assert result.metrics == {"step": 5}
    saved = [fact["step"] for fact in lab.noted("step") if fact["info"] is not None]
    assert len(saved) == 1, "told once, saved once"
    assert [fact["info"] for fact in lab.noted("step") if fact["info"]] == [[2, 3]]
    steps = [fact["step"] for fact in lab.noted("step")]
    assert steps == [0, 1, 2, 3, 4, 5], "no step was lost, none was done twice"
    assert [fact["step"] for fact in lab.begun(rank=0)] == [None, saved[0]]


# ---------------------------------------------------------------------- before there are workers


def test_a_node_that_leaves_before_the_first_group_is_not_used_if_there_is_another(
    lab: Lab, nodes: LocalNodes
) -> None:
    notes = lab.notes
    nodes.drain("node-0", time.time() + 600)

    def loop() -> None:
        context = current()
        assert context is not None
        note(notes, what="at", node=context.place.node)
        save(0)

    result = fit(lab, loop, workers=2)

    assert result.metrics == {"step": 0}
    assert lab.noted("at") == [{"what": "at", "node": "node-1"}] * 2


def test_a_driver_whose_machine_leaves_before_the_first_group_exits_resumable_at_once(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    """It would take the group along, wherever that is; and where the driver goes, so can it."""
    nodes = holdfast.init(nodes=1, num_cpus=2)
    nodes.drain("node-0", time.time() + 600)

    def give_notice() -> None:
        while "waiting for room" not in caplog.text:
            pause()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=give_notice, daemon=True).start()
    try:
        with pytest.raises(Interrupted) as caught:
            fit(lab, lambda: save(0), workers=2)
        nodes.join()
        result = fit(lab, lambda: save(0), workers=2)
    finally:
        holdfast.shutdown()

    assert caught.value.code == RESUMABLE
    assert result.metrics == {"step": 0}
