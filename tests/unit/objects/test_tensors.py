"""Tensors are read without a copy, and writing to them is invisible to other readers."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

import holdfast

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "bfloat16", "float16", "int64", "uint8", "bool", "complex64"]
)
@pytest.mark.parametrize("shape", [(), (1,), (3, 5)], ids=str)
def test_a_tensor_comes_back_as_it_was(dtype: str, shape: tuple[int, ...]) -> None:
    tensor = torch.ones(shape, dtype=getattr(torch, dtype))

    again = holdfast.get(holdfast.put(tensor))

    assert again.dtype == tensor.dtype
    assert again.shape == tensor.shape
    assert torch.equal(again, tensor)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6).reshape(2, 3).T,
        torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.zeros(0, 3),
        torch.eye(3).to_sparse(),
        torch.ones(2, dtype=torch.complex64).conj(),
        torch.ones(3).expand(4, 3),
        torch.arange(10)[2:5],
    ],
    ids=["transposed", "channels_last", "empty", "sparse", "conjugate", "expanded", "slice"],
)
def test_a_tensor_that_is_more_than_its_bytes_comes_back_as_it_was(tensor: Any) -> None:
    again = holdfast.get(holdfast.put({"x": tensor}))["x"]

    assert again.layout == tensor.layout
    assert torch.equal(again.to_dense(), tensor.to_dense())
    if tensor.layout is torch.strided:
        assert again.stride() == tensor.stride()


def test_a_tensor_that_wants_gradients_still_does() -> None:
    tensor = torch.ones(3, requires_grad=True)

    again = holdfast.get(holdfast.put(tensor))

    assert again.requires_grad
    assert again.is_leaf


def test_what_is_written_to_a_tensor_is_seen_by_nobody_else() -> None:
    ref = holdfast.put({"w": torch.zeros(10_000), "b": torch.zeros(3)})
    first, other = holdfast.get(ref), holdfast.get(ref)

    first["w"] += 1
    first["b"] += 1

    assert first["w"].sum() == 10_000
    assert other["w"].sum() == other["b"].sum() == 0
    assert holdfast.get(ref)["w"].sum() == 0


def test_a_module_can_be_trained_after_it_was_got() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    before = copy.deepcopy(model.state_dict())
    ref = holdfast.put(model)
    mine = holdfast.get(ref)
    optimizer = torch.optim.SGD(mine.parameters(), lr=1.0)

    mine(torch.ones(2, 4) * torch.tensor([[1.0], [2.0]])).sum().backward()
    optimizer.step()

    assert not torch.equal(mine[1].bias, before["1.bias"])
    fresh = holdfast.get(ref).state_dict()
    assert all(torch.equal(fresh[name], before[name]) for name in before)


def test_a_tensor_that_is_only_read_is_not_copied() -> None:
    size = 32 << 20
    ref = holdfast.put(torch.ones(size // 4))
    holdfast.get(ref).sum()
    before = _private_bytes()

    tensor = holdfast.get(ref)
    assert tensor.sum() == size // 4
    read = _private_bytes() - before
    tensor += 1
    written = _private_bytes() - before

    assert read < size // 4
    assert written > size // 2


def _private_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    raise AssertionError("the kernel tells no RssAnon")
