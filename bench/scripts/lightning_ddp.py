"""A training script for Lightning, two processes with DDP: `python lightning_ddp.py OPTIONS`."""

from __future__ import annotations

import json
import sys
from typing import Any

import lightning
import plain
import tasks
import torch
from torch.utils.data import DataLoader, TensorDataset

OPTIONS = json.loads(sys.argv[1])


class Model(lightning.LightningModule):
    """One weight, so that only the launch takes time."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        tasks.run(plain.Place(self.global_rank, OPTIONS["folder"]), OPTIONS)
        return self.layer(batch[0]).sum()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=OPTIONS["workers"],
        strategy="ddp",
        max_steps=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Model(), DataLoader(TensorDataset(torch.ones(2, 1))))
