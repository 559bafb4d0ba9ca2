"""Tensors as metrics: what they hold arrives, and what cannot be read is said."""

from __future__ import annotations

import json
from typing import Any

import torch

from holdfast import train
from tests.integration.torch.conftest import TorchLab
from tests.integration.train.loops import folder_with, note

LOSS = torch.tensor(0.5, requires_grad=True)
READABLE: dict[str, tuple[Any, Any]] = {
    "a number": (torch.tensor(0.25), 0.25),
    "of one element": (torch.tensor([0.25]), 0.25),
    "of one element in two dimensions": (torch.ones(1, 1), 1.0),
    "with a gradient": (LOSS * 2, 1.0),
    "a leaf with a gradient": (LOSS, 0.5),
    "bfloat16": (torch.tensor(0.5, dtype=torch.bfloat16), 0.5),
    "float16": (torch.tensor(0.5, dtype=torch.float16), 0.5),
    "an integer": (torch.tensor(7), 7),
    "a flag": (torch.tensor(True), True),
    "a parameter": (torch.nn.Parameter(torch.tensor(2.0)), 2.0),
    "a list": (torch.tensor([[1.0, 2.0]]), [[1.0, 2.0]]),
    "a list with a gradient": (LOSS * torch.ones(2), [0.5, 0.5]),
    "bfloat16 list": (torch.tensor([0.5, 1.5], dtype=torch.bfloat16), [0.5, 1.5]),
    "empty": (torch.tensor([]), []),
    "nested": ({"a": [torch.tensor(1.0)]}, {"a": [1.0]}),
}
UNREADABLE: dict[str, Any] = {
    "meta": torch.tensor(1.0, device="meta"),
    "meta list": torch.ones(3, device="meta"),
    "complex": torch.tensor(1j),
}


def test_a_tensor_is_reported_as_what_it_holds_and_one_without_values_as_an_error(
    lab: TorchLab,
) -> None:
    notes = lab.notes

    def loop() -> None:
        for name, value in UNREADABLE.items():
            try:
                train.report({name: value})
            except Exception as error:  # noqa: BLE001  # which one it is, is the question
                note(notes, what="error", name=name, kind=type(error).__name__, said=str(error))
        with folder_with({"file": ""}) as folder:
            saved = train.Checkpoint.from_directory(folder)
            train.report({name: given for name, (given, _) in READABLE.items()}, saved)

    result = lab.fit(loop, workers=1)

    assert result.metrics == {name: wanted for name, (_, wanted) in READABLE.items()}
    assert type(json.loads(json.dumps(result.metrics))["a flag"]) is bool
    errors = {fact["name"]: fact for fact in lab.noted("error")}
    assert set(errors) == set(UNREADABLE), "one of them was reported as if it had a value"
    assert all(name.split()[0] in fact["said"] for name, fact in errors.items())
