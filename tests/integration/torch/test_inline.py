"""Training in the driver's own process, where a process group may be there already."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
import torch.distributed as dist
from holdfast.train import RunConfig, ScalingConfig
from holdfast.train.torch import TorchTrainer

def fit(name):
    return TorchTrainer(
        lambda: (dist.get_world_size(), dist.get_backend()),
        scaling_config=ScalingConfig(num_workers=0),
        run_config=RunConfig(storage_path=sys.argv[1], name=name),
    ).fit().return_value

print(fit("one"))
print(fit("two"))
if dist.is_initialized():
    dist.destroy_process_group()
from torch.testing._internal.distributed.fake_pg import FakeStore
dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=3)
print(fit("three"), dist.is_initialized())
"""


def test_a_run_in_this_process_has_a_group_and_leaves_that_of_the_user_alone(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["(1, 'gloo')", "(1, 'gloo')", "(3, 'fake') True"]
