"""The least that starts workers: import torch, fork, join. What no system can go below."""

from __future__ import annotations

import json
import os
import sys

import plain
import tasks
from joining import free_port, join

if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    port = free_port()
    for rank in range(options["workers"]):
        if os.fork() == 0:
            join(rank, options["workers"], port)
            tasks.run(plain.Place(rank, options["folder"]), options)
            os._exit(0)
    for _ in range(options["workers"]):
        os.wait()
