"""What ranks find when their function begins: each other, and nobody else."""

from __future__ import annotations

import os
import random
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from holdfast import train
from holdfast.train import (
    DataParallelTrainer,
    FailureConfig,
    Result,
    RunConfig,
    ScalingConfig,
    WorkerGroupError,
)
from holdfast.train.torch import (
    ProcessGroupError,
    TorchConfig,
    TorchTrainer,
    get_device,
    prepare_data_loader,
    prepare_model,
)
from tests.integration.torch.conftest import TorchLab
from tests.integration.train.loops import is_first, note, read_notes
from tests.patience import pause

VARIABLES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "GLOO_SOCKET_IFNAME",
    "ACCELERATE_TORCH_DEVICE",
)


class Noise(Dataset[list[float]]):
    """Twelve samples: each its number, and what was drawn for it in a loader's own process."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> list[float]:
        return [index, torch.rand(1).item(), random.random(), float(np.random.rand())]


def _samples() -> list[list[float]]:
    """Return what this rank gets of the noise, although all ranks have the same seed."""
    torch.manual_seed(0)
    loader: DataLoader[Any] = DataLoader(
        Noise(), batch_size=2, shuffle=True, num_workers=2, collate_fn=list
    )
    return [sample for batch in prepare_data_loader(loader) for sample in batch]


def _look_around(notes: Path) -> None:
    """Note what there is; in the first attempt, rank 1 fails after that."""
    rank = train.get_context().get_world_rank()
    total = torch.tensor([float(rank + 1)])
    dist.all_reduce(total)
    listens = [
        one.laddr.ip
        for one in psutil.Process().net_connections("inet")
        if one.status == psutil.CONN_LISTEN
    ]
    note(
        notes,
        what="found",
        rank=rank,
        total=total.item(),
        backend=dist.get_backend(),
        size=dist.get_world_size(),
        own=dist.get_rank(),
        variables={name: os.environ.get(name) for name in VARIABLES},
        listens=listens,
        threads=torch.get_num_threads(),
        device=str(get_device()),
        drawn=[torch.rand(1).item(), float(np.random.rand())],
        samples=_samples(),
    )
    dist.barrier()
    if rank == 1 and is_first(notes.with_name("death")):
        raise ValueError("once")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What both ranks of two attempts found, in the order of attempt and rank."""
    lab = TorchLab(tmp_path_factory.mktemp("found"))
    notes = lab.notes
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OMP_NUM_THREADS", raising=False)
        lab.fit(lambda: _look_around(notes), max_failures=1)
    facts = lab.noted("found")
    return sorted(facts[:2], key=_rank) + sorted(facts[2:], key=_rank)


def _rank(fact: dict[str, Any]) -> int:
    return int(fact["rank"])


def test_all_ranks_are_in_one_group(found: list[dict[str, Any]]) -> None:
    assert [fact["total"] for fact in found] == [3.0] * 4
    assert {(fact["backend"], fact["size"], fact["device"]) for fact in found} == {
        ("gloo", 2, "cpu")
    }
    assert [fact["own"] for fact in found] == [0, 1, 0, 1]


def test_the_variables_of_torchrun_are_set(found: list[dict[str, Any]]) -> None:
    for fact in found:
        variables = dict(fact["variables"])
        assert int(variables.pop("MASTER_PORT")) > 0
        assert variables == {
            "RANK": str(fact["rank"]),
            "WORLD_SIZE": "2",
            "LOCAL_RANK": str(fact["rank"]),
            "LOCAL_WORLD_SIZE": "2",
            "NODE_RANK": "0",
            "GROUP_RANK": "0",
            "MASTER_ADDR": "127.0.0.1",
            "GLOO_SOCKET_IFNAME": "lo",
            "ACCELERATE_TORCH_DEVICE": fact["device"],
        }


def test_nothing_listens_to_the_outside(found: list[dict[str, Any]]) -> None:
    assert all(fact["listens"] for fact in found), "nothing listens at all?"
    assert {address for fact in found for address in fact["listens"]} == {"127.0.0.1"}


def test_the_workers_of_a_node_share_its_processors(found: list[dict[str, Any]]) -> None:
    mine = max(1, len(os.sched_getaffinity(0)) // 2)

    assert [fact["threads"] for fact in found] == [mine] * 4


def test_no_two_ranks_and_no_two_attempts_draw_the_same_numbers(
    found: list[dict[str, Any]],
) -> None:
    for library in (0, 1):
        assert len({fact["drawn"][library] for fact in found}) == 4


def test_a_prepared_loader_gives_each_rank_its_part_and_noise_of_its_own(
    found: list[dict[str, Any]],
) -> None:
    samples = found[0]["samples"] + found[1]["samples"]

    assert sorted(sample[0] for sample in samples) == list(range(12))
    for library in (1, 2, 3):
        assert len({sample[library] for sample in samples}) == 12


def _train_alone() -> dict[str, Any]:
    model = torch.nn.Linear(2, 2)
    loader: DataLoader[Any] = DataLoader(Noise(), batch_size=2)
    total = torch.ones(1)
    dist.all_reduce(total)
    return {
        "size": dist.get_world_size(),
        "total": total.item(),
        "model is unwrapped": prepare_model(model) is model,
        "loader is unchanged": prepare_data_loader(loader) is loader,
        "threads": torch.get_num_threads(),
    }


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[TorchLab, Result]:
    """The run of one worker, where somebody has set how many threads there shall be."""
    lab = TorchLab(tmp_path_factory.mktemp("alone"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        result = lab.fit(_train_alone, workers=1, torch_config=TorchConfig(timeout_s=77))
    return lab, result


def test_one_worker_has_a_group_and_a_model_without_a_wrapper(
    alone: tuple[TorchLab, Result],
) -> None:
    assert alone[1].return_value == {
        "size": 1,
        "total": 1.0,
        "model is unwrapped": True,
        "loader is unchanged": True,
        "threads": 1,
    }


@pytest.mark.req("T-025")
def test_a_restored_trainer_makes_its_group_as_before(alone: tuple[TorchLab, Result]) -> None:
    with pytest.warns(DeprecationWarning, match="restore is deprecated"):
        restored = TorchTrainer.restore(str(alone[0].run))

    assert isinstance(restored, TorchTrainer)
    assert restored.torch_config == TorchConfig(timeout_s=77)
    assert restored.train_loop_per_worker is _train_alone
    assert signature(TorchTrainer.restore) == signature(DataParallelTrainer.restore)


def test_a_rank_that_returns_at_once_does_not_disturb_those_that_still_join(
    lab: TorchLab,
) -> None:
    """Rank 0 holds what the others meet at; in a loop without collectives it is soon gone."""
    notes, attempts = lab.notes, 6

    def loop() -> None:
        rank = train.get_context().get_world_rank()
        note(notes, what="joined", rank=rank)
        if rank == 2 and len(all_have_joined()) < 3 * attempts:
            raise ValueError("once more")

    def all_have_joined() -> list[dict[str, Any]]:
        """Return all notes, once every rank has made as many: who has not yet would be stopped."""
        while len(found := read_notes(notes, "joined")) % 3:
            pause()
        return found

    lab.fit(loop, workers=3, max_failures=2 * attempts)

    joined = [fact["rank"] for fact in lab.noted("joined")]
    assert joined.count(0) == joined.count(1) == joined.count(2) >= attempts


@pytest.mark.req("T-039")
def test_a_rank_that_cannot_join_fails_its_attempt_and_is_named(tmp_path: Path) -> None:
    trainer = DataParallelTrainer(
        lambda: None,
        backend_config=TorchConfig(backend="telepathy"),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            storage_path=str(tmp_path),
            name="run",
            failure_config=FailureConfig(max_failures=1, backoff_max_s=0.0),
        ),
    )

    with pytest.raises(WorkerGroupError, match=r"rank [01] of 2 on .* could not join") as raised:
        trainer.fit()

    assert "attempt 2" in str(raised.value)
    failures = raised.value.worker_failures.values()
    assert all(isinstance(error, ProcessGroupError) for error in failures)


def test_without_a_process_group_many_workers_are_told_what_is_missing(tmp_path: Path) -> None:
    trainer = DataParallelTrainer(
        lambda: prepare_model(torch.nn.Linear(2, 2)),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=str(tmp_path), name="run"),
    )

    with pytest.raises(WorkerGroupError, match="run this function with TorchTrainer"):
        trainer.fit()
