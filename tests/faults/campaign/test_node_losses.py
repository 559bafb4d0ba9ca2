"""Whole nodes that are lost, simulated ones with real processes, in the middle of a run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.control.record.run_view import look, verify
from holdfast.storage.locate import open_store
from tests.faults.campaign.conftest import STEPS, Campaign
from tests.faults.campaign.node_losses import AFTER, BEFORE, WAITED_FOR, Loss
from tests.faults.campaign.test_worker_kills import card_of
from tests.faults.campaign.toy_script import weights_after
from tests.servers.storage import S3Server

pytestmark = pytest.mark.slow


@pytest.mark.req("T-035", "T-037", "T-043", "T-044", "T-045", "T-046", "T-061", "T-063", "T-064")
def test_nodes_that_are_lost_do_not_change_a_bit_of_the_weights(
    torch_run: Campaign, undisturbed: str
) -> None:
    """One rank on each of two nodes. One is lost, the other, both; new ones come early or late."""
    losses: list[Loss] = [
        (3, [0], BEFORE),
        (6, [1], AFTER),
        (9, [0, 1], BEFORE),
        (12, [0], WAITED_FOR),
        (16, [0, 1], AFTER),
        (21, [1], BEFORE),
    ]

    printed = torch_run.finish(steps=STEPS, node_losses=losses)

    assert printed["weights"] == undisturbed
    assert [fact["step"] for fact in torch_run.noted("loses")] == [3, 6, 9, 9, 12, 16, 16, 21]
    lost = iter(torch_run.noted("loses"))
    for attempt, (_, nodes, _) in enumerate(losses, 1):
        for _ in nodes:
            assert f"lost with node {next(lost)['node']}" in card_of(torch_run, attempt)
    torch_run.must_be_whole(STEPS)


@pytest.mark.s3
@pytest.mark.req("T-037", "T-043", "T-044", "T-045", "T-048", "T-060", "T-061", "T-062", "T-063")
@pytest.mark.req("T-064", "T-065")
def test_a_cluster_that_loses_a_node_waits_for_another_and_resumes_from_the_bucket(
    toy: Campaign, s3_server: S3Server, new_folder: Callable[[], str]
) -> None:
    """Two nodes with two workers each, as the guide draws them."""
    storage, steps = s3_server.uri("lab", new_folder()), 6

    printed = toy.finish(
        storage=storage, steps=steps, workers=4, node_losses=[(2, [1], WAITED_FOR)]
    )

    assert printed["weights"] == weights_after(steps, 0)
    assert len(toy.noted("waits")) == 1
    first, second = (
        sorted(
            (one["rank"], one["node"], one["step"]) for one in toy.begun() if one["attempt"] == n
        )
        for n in (1, 2)
    )
    assert first == [(0, 0, -1), (1, 0, -1), (2, 1, -1), (3, 1, -1)]
    assert [(rank, node) for rank, node, _ in second] == [(0, 0), (1, 0), (2, 1), (3, 1)]
    assert all(2 <= step <= 3 for _, _, step in second)
    assert all(one["alive"] == [] for one in toy.begun())
    path, _, query = storage.partition("?")
    view = look(open_store(f"{path}/run?{query}"))
    assert view.history.run.attempts == 2
    assert [kept.metrics["step"] for kept in view.record.kept.values()] == [*range(steps)]
    assert verify(view).damaged == {}
    left = toy.census.leftovers()
    assert (left.processes, left.sockets, left.shared_memory) == ([], [], [])
