"""A training script for torchrun: `torchrun --nproc-per-node 2 elastic.py OPTIONS`."""

from __future__ import annotations

import json
import sys

import plain
import tasks
import torch.distributed as dist

if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    dist.init_process_group("gloo")
    tasks.run(plain.Place(dist.get_rank(), options["folder"]), options)
