"""A training script that starts its workers with `torch.multiprocessing.spawn`."""

from __future__ import annotations

import json
import sys
from typing import Any

import plain
import tasks
import torch.multiprocessing
from joining import free_port, join


def worker(rank: int, options: dict[str, Any], port: int) -> None:
    join(rank, options["workers"], port)
    tasks.run(plain.Place(rank, options["folder"]), options)


if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    torch.multiprocessing.spawn(worker, (options, free_port()), nprocs=options["workers"])
