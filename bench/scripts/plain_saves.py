"""What a large checkpoint costs without a system: raw, by `torch.save`, or by torch's own async."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

import plain
import torch
from joining import free_port, join
from marks import mark
from memory_at_hand import settle


def raw(state: Mapping[str, torch.Tensor], folder: str) -> Callable[[], object]:
    plain.write_synced(state, folder)
    return lambda: None


def torch_save(state: Mapping[str, torch.Tensor], folder: str) -> Callable[[], object]:
    torch.save(dict(state), f"{folder}/model.pt")
    return lambda: None


WAYS = {"raw": raw, "torch.save": torch_save, "dcp": plain.begin_saving}


def main(options: Mapping[str, Any]) -> None:
    join(0, 1, free_port())
    state = {"weights": torch.rand(options["size"] // 4)}
    blocked, durable = [], []
    for _ in range(options["saves"] + 1):
        folder = tempfile.mkdtemp(dir=options["folder"])
        settle(options["size"])
        begun = time.perf_counter()
        wait = WAYS[options["way"]](state, folder)
        returned = time.perf_counter()
        wait()
        blocked.append(returned - begun)
        durable.append(time.perf_counter() - begun)
    medians = {
        "report_s": statistics.median(blocked[1:]),
        "durable_s": statistics.median(durable[1:]),
    }
    mark(options["folder"], "done-0", write_s=0.0, **medians)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
