"""Whole nodes that are lost, simulated ones with real processes, in the middle of a run."""

from __future__ import annotations

import pytest

from tests.faults.campaign.conftest import STEPS, Campaign
from tests.faults.campaign.test_worker_kills import card_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.req("T-035", "T-037", "T-043", "T-044", "T-045", "T-046", "T-061", "T-063", "T-064")
def test_nodes_that_are_lost_do_not_change_a_bit_of_the_weights(
    torch_run: Campaign, undisturbed: str
) -> None:
    """A rank is on each of two nodes. One is lost, the other, both; new ones come early or late."""
    losses = [(3, [0]), (6, [1]), (9, [0, 1]), (12, [0]), (16, [0, 1]), (21, [1])]

    printed = torch_run.finish(steps=STEPS, node_losses=losses)

    assert printed["weights"] == undisturbed
    assert [fact["step"] for fact in torch_run.noted("loses")] == [3, 6, 9, 9, 12, 16, 16, 21]
    lost = iter(torch_run.noted("loses"))
    for attempt, (_, nodes) in enumerate(losses, 1):
        for _ in nodes:
            assert f"lost with node {next(lost)['node']}" in card_of(torch_run, attempt)
    torch_run.must_be_whole(STEPS)
