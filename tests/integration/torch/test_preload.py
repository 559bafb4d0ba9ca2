"""What of torch is loaded before workers are made, and what while they train."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from holdfast.frameworks.torch.config import PRELOADED, PRELOADED_LATER

LOADING = """
import importlib, json, sys
loaded, missing = [], []
for name in json.loads(sys.argv[1]):
    try:
        importlib.import_module(name)
    except ImportError:
        missing.append(name)
    loaded.append(name if "torch._dynamo" in sys.modules else "")
before = set(sys.modules)
import torch
torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
new = sorted({name.split(".")[0] for name in set(sys.modules) - before})
print(json.dumps({"missing": missing, "first": next(filter(None, loaded), None), "new": new}))
"""


def load(*names: str) -> dict[str, object]:
    ran = subprocess.run(
        [sys.executable, "-c", LOADING, json.dumps(names)],
        capture_output=True,
        text=True,
        check=True,
    )
    told: dict[str, object] = json.loads(ran.stdout)
    return told


@pytest.mark.slow
def test_workers_do_not_wait_for_what_only_their_first_step_needs() -> None:
    told = load(*PRELOADED)

    assert told["missing"] == []
    assert told["first"] is None, "it takes as long as torch itself"


@pytest.mark.slow
def test_what_is_loaded_later_is_all_that_an_optimizer_needs_and_comes_in_parts() -> None:
    told = load(*PRELOADED, *PRELOADED_LATER)

    assert told["missing"] == []
    assert told["first"] == "torch._dynamo", "a part before it would have loaded all of it"
    assert told["new"] == []
