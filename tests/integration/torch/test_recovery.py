"""Ranks that die while they train as one, and what becomes of the weights."""

from __future__ import annotations

import pytest

from holdfast.train import WorkerGroupError
from tests.integration.torch.conftest import TorchLab
from tests.integration.torch.loops import EPOCHS, SAMPLES, Deaths, train_careful


def _trained(lab: TorchLab, deaths: Deaths, *, workers: int = 2, max_failures: int = 0) -> object:
    config = {"notes": str(lab.notes), "deaths": deaths}
    result = lab.fit(train_careful, workers=workers, max_failures=max_failures, config=config)
    return result.return_value


@pytest.mark.req("T-001", "T-004", "T-005", "T-007", "T-011", "T-036", "T-039", "T-046")
def test_a_run_that_dies_and_resumes_ends_with_the_same_weights_to_the_bit(
    lab: TorchLab, tmp_path_factory: pytest.TempPathFactory
) -> None:
    undisturbed = _trained(TorchLab(tmp_path_factory.mktemp("undisturbed")), {})
    deaths: Deaths = {
        3: ("MemoryError", (0,)),
        5: ("SIGKILL", (1,)),
        6: ("ValueError", (1,)),  # the last step of an epoch, not saved yet
        9: ("SIGKILL", (0, 1)),
        10: ("SIGKILL", (0,)),  # just before it is saved
    }

    weights = _trained(lab, deaths, max_failures=len(deaths))

    assert weights == undisturbed
    assert [fact["step"] for fact in lab.begun(rank=0)] == [0, 2, 4, 4, 8, 8]
    assert [fact["step"] for fact in lab.begun(rank=1)] == [0, 2, 4, 4, 8, 8]


def test_each_sample_comes_once_in_an_epoch_also_when_the_number_of_ranks_changes(
    lab: TorchLab,
) -> None:
    """Two ranks get through 32 samples, four through the rest and 16 of epoch 1, one to the end."""
    deaths: Deaths = {5: ("ValueError", (0,)), 7: ("ValueError", (3,))}
    kept: list[dict[str, object]] = []
    for workers, saved in ((2, 4), (4, 6)):
        before = len(lab.noted("did"))
        with pytest.raises(WorkerGroupError, match="loss is nan"):
            _trained(lab, deaths, workers=workers)
        kept += [fact for fact in lab.noted("did")[before:] if fact["step"] <= saved]
    before = len(lab.noted("did"))

    _trained(lab, deaths, workers=1)

    kept += lab.noted("did")[before:]
    assert len(kept) < len(lab.noted("did")), "nothing was to be done again"
    for epoch in range(EPOCHS):
        seen: list[int] = []
        for fact in kept:
            if fact["epoch"] == epoch:
                assert isinstance(fact["samples"], list)
                seen += fact["samples"]
        assert sorted(seen) == list(range(SAMPLES))
