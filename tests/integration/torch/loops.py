"""A training loop as careful users write them; it runs inside workers.

Everything that the next step depends on is saved: model, optimizer, place in the data, and where
each rank is in its random numbers. So what dies and resumes must end with the very same weights.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from holdfast import train
from holdfast.train.torch import ResumableSampler, prepare_model, rng_state, set_rng_state
from tests.integration.train.loops import die, is_first, note

SAMPLES, BATCH, EPOCHS, SAVE_EVERY = 48, 4, 2, 2  # two ranks make six steps in an epoch
Deaths = dict[int, tuple[str, tuple[int, ...]]]  # by step: in which way which ranks die in it


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 1))


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(SAMPLES, 8, generator=generator)
    return TensorDataset(torch.arange(SAMPLES), inputs, inputs.sum(1, keepdim=True))


def digest(model: nn.Module) -> str:
    """Return a fingerprint of every bit of a model's weights."""
    weights = [value.numpy().tobytes() for value in model.state_dict().values()]
    return hashlib.sha256(b"".join(weights)).hexdigest()


def train_careful(config: dict[str, Any]) -> str:
    """Train, note every sample that was trained on, die where it is said, return the weights."""
    notes, rank = Path(config["notes"]), train.get_context().get_world_rank()
    torch.manual_seed(1)
    model = prepare_model(net())
    torch.manual_seed(2 + rank)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    dataset = data()
    sampler = ResumableSampler(dataset, seed=3)
    # With a generator of its own it takes no random number from us each time it begins.
    loader = DataLoader(
        dataset, batch_size=BATCH, sampler=sampler, generator=torch.Generator().manual_seed(0)
    )
    step = load(rank, model, optimizer, sampler)
    note(notes, what="began", rank=rank, step=step, pid=os.getpid())
    for epoch in range(sampler.epoch, EPOCHS):
        sampler.set_epoch(epoch)
        for index, inputs, wanted in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), wanted)
            loss.backward()
            optimizer.step()
            sampler.advance(BATCH)
            step += 1
            note(notes, what="did", rank=rank, step=step, epoch=epoch, samples=index.tolist())
            _die_if_doomed(notes, rank, step, config["deaths"])
            if step % SAVE_EVERY == 0:
                save(rank, step, loss, model, optimizer, sampler)
    return digest(_inner(model))


def save(
    rank: int,
    step: int,
    loss: torch.Tensor,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    sampler: ResumableSampler,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        torch.save(rng_state(), f"{folder}/rng-{rank}.pt")
        if rank == 0:
            state = {
                "step": step,
                "model": _inner(model).state_dict(),
                "optimizer": optimizer.state_dict(),
                "sampler": sampler.state_dict(),
            }
            torch.save(state, f"{folder}/state.pt")
        train.report({"loss": loss}, checkpoint=train.Checkpoint.from_directory(folder))


def load(
    rank: int, model: nn.Module, optimizer: torch.optim.Optimizer, sampler: ResumableSampler
) -> int:
    checkpoint = train.get_checkpoint()
    if checkpoint is None:
        return 0
    with checkpoint.as_directory() as folder:
        state = torch.load(f"{folder}/state.pt", weights_only=True)
        _inner(model).load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        sampler.load_state_dict(state["sampler"])
        own = Path(folder, f"rng-{rank}.pt")
        if own.exists():  # a rank that joined later has none
            set_rng_state(torch.load(own, weights_only=True))
    return int(state["step"])


def _inner(model: nn.Module) -> nn.Module:
    inner = getattr(model, "module", model)
    assert isinstance(inner, nn.Module)
    return inner


def _die_if_doomed(notes: Path, rank: int, step: int, deaths: Deaths) -> None:
    """Die if it is this rank's turn, once; a step that is done again is survived."""
    if step not in deaths:
        return
    way, ranks = deaths[step]
    is_time = is_first(notes.with_name(f"death of {rank} at {step}"))
    torch.distributed.barrier()  # nobody is stopped before it has left its mark
    if is_time and rank in ranks:
        die(way)
