"""The examples of the guides, with nothing changed but the import line."""

from __future__ import annotations

import os
import tempfile
import uuid
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import holdfast as ray
import holdfast.train.torch
from tests.integration.train.loops import die, is_first, note, read_notes


def _fault_tolerant(config: dict[str, Any]) -> None:
    notes, rank = Path(config["notes"]), ray.train.get_context().get_world_rank()
    checkpoint = ray.train.get_checkpoint()
    start = 0
    if checkpoint:
        with checkpoint.as_directory() as checkpoint_dir:
            start = torch.load(os.path.join(checkpoint_dir, "state.pt"))["epoch"] + 1
    note(notes, what="began", rank=rank, epoch=start)
    model = ray.train.torch.prepare_model(nn.Linear(4, 1))
    for epoch in range(start, 4):
        model(torch.ones(2, 4)).sum().backward()
        if epoch == 2 and rank == 3 and is_first(notes.with_name("death")):
            die("SIGKILL")
        with tempfile.TemporaryDirectory() as temp_checkpoint_dir:
            torch.save({"epoch": epoch}, os.path.join(temp_checkpoint_dir, "state.pt"))
            checkpoint = ray.train.Checkpoint.from_directory(temp_checkpoint_dir)
            ray.train.report({"loss": 0.1}, checkpoint=checkpoint)


@pytest.mark.req("T-052", "T-053", "T-001", "T-043", "T-045")
def test_all_workers_restart_from_the_last_checkpoint_when_one_is_killed(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    trainer = ray.train.torch.TorchTrainer(
        _fault_tolerant,
        train_loop_config={"notes": str(notes)},
        scaling_config=ray.train.ScalingConfig(num_workers=4),
        run_config=ray.train.RunConfig(
            name=f"train_run-{uuid.uuid4().hex}",
            storage_path=str(tmp_path / "storage"),
            failure_config=ray.train.FailureConfig(max_failures=3),
        ),
    )

    result = trainer.fit()

    assert result.error is None
    assert result.metrics == {"loss": 0.1}
    begun = [(fact["rank"], fact["epoch"]) for fact in read_notes(notes, "began")]
    assert sorted(begun) == [(0, 0), (0, 2), (1, 0), (1, 2), (2, 0), (2, 2), (3, 0), (3, 2)]


def _saves_model(config: dict[str, Any]) -> None:
    """Rank 0 saves for all; an error after epoch 1 is recovered from."""
    notes = Path(config["notes"])
    model: nn.Module = nn.Linear(4, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    start_epoch = 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as checkpoint_dir:
            model.load_state_dict(torch.load(os.path.join(checkpoint_dir, "model.pt")))
            optimizer.load_state_dict(torch.load(os.path.join(checkpoint_dir, "optimizer.pt")))
            extra = torch.load(os.path.join(checkpoint_dir, "extra_state.pt"))
            start_epoch = extra["epoch"] + 1
            note(
                notes,
                what="loaded",
                files=sorted(os.listdir(checkpoint_dir)),
                epoch=extra["epoch"],
                steps=[float(one["step"]) for one in optimizer.state.values()],
                is_same=bool(torch.equal(model.weight, extra["weight"])),  # type: ignore[arg-type]
            )
    model = ray.train.torch.prepare_model(model)
    for epoch in range(start_epoch, 4):
        loss = model(torch.ones(2, 4)).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        metrics = {"loss": loss.item(), "epoch": epoch}
        if ray.train.get_context().get_world_rank() == 0:
            with tempfile.TemporaryDirectory() as temp_checkpoint_dir:
                inner = model.module
                assert isinstance(inner, nn.Linear)
                torch.save(inner.state_dict(), os.path.join(temp_checkpoint_dir, "model.pt"))
                torch.save(
                    optimizer.state_dict(), os.path.join(temp_checkpoint_dir, "optimizer.pt")
                )
                extra = {"epoch": epoch, "weight": inner.weight.detach()}
                torch.save(extra, os.path.join(temp_checkpoint_dir, "extra_state.pt"))
                saved = ray.train.Checkpoint.from_directory(temp_checkpoint_dir)
                ray.train.report(metrics, checkpoint=saved)
        else:
            ray.train.report(metrics, checkpoint=None)
        torch.distributed.barrier()  # else rank 1, which saves nothing, may fail before rank 0 has
        if epoch == 1:
            raise RuntimeError("Intentional error to showcase restoration!")


@pytest.mark.req("T-004", "T-005", "T-011", "T-046", "T-055")
def test_model_optimizer_and_epoch_that_rank_0_saved_are_restored_on_all_ranks(
    tmp_path: Path,
) -> None:
    notes = tmp_path / "notes"
    trainer = ray.train.torch.TorchTrainer(
        _saves_model,
        train_loop_config={"notes": str(notes)},
        scaling_config=ray.train.ScalingConfig(num_workers=2),
        run_config=ray.train.RunConfig(
            name="run",
            storage_path=str(tmp_path / "storage"),
            failure_config=ray.train.FailureConfig(max_failures=1),
        ),
    )

    result = trainer.fit()

    assert result.metrics is not None
    assert result.metrics["epoch"] == 3
    assert (
        read_notes(notes, "loaded")
        == [
            {
                "what": "loaded",
                "files": ["extra_state.pt", "model.pt", "optimizer.pt"],
                "epoch": 1,
                "steps": [2.0, 2.0],
                "is_same": True,
            }
        ]
        * 2
    )


def _saves_shards() -> None:
    rank = ray.train.get_context().get_world_rank()
    with tempfile.TemporaryDirectory() as temp_checkpoint_dir:
        torch.save({"part": rank}, os.path.join(temp_checkpoint_dir, f"model-rank={rank}.pt"))
        checkpoint = ray.train.Checkpoint.from_directory(temp_checkpoint_dir)
        ray.train.report({"metric": 1}, checkpoint=checkpoint)


def test_what_each_rank_saves_of_a_model_becomes_one_checkpoint(tmp_path: Path) -> None:
    trainer = ray.train.torch.TorchTrainer(
        _saves_shards,
        scaling_config=ray.train.ScalingConfig(num_workers=2),
        run_config=ray.train.RunConfig(name="run", storage_path=str(tmp_path)),
    )

    result = trainer.fit()

    assert result.checkpoint is not None
    with result.checkpoint.as_directory() as folder:
        shards = {path.name: torch.load(path) for path in Path(folder).iterdir()}
    assert shards == {"model-rank=0.pt": {"part": 0}, "model-rank=1.pt": {"part": 1}}
