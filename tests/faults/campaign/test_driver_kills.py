"""Drivers that are killed at random points of one run, again and again."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.train import Result
from tests.faults.campaign.conftest import STEPS, Campaign
from tests.faults.campaign.deaths import BEFORE, SPARED, Death, campaign_of
from tests.faults.campaign.toy_script import WORKERS, weights_after
from tests.servers.storage import S3Server

pytestmark = pytest.mark.slow

KILLS = [40, pytest.param(100, marks=pytest.mark.long)]
TORCH_KILLS = [6, pytest.param(20, marks=pytest.mark.long)]
ENOUGH = 100_000  # more steps than the run gets to before it is told where to end


FIRST = Death("SIGKILL", BEFORE, (0,))  # in the first step of an attempt


class Killer:
    """Launches a run and kills its driver, at a moment that chance decides.

    Half of the drivers are killed from outside, soon after so many steps were acknowledged; none
    is a moment too. The others are killed just before something they do, from their first deed on.

    Args:
        deeds: How much a driver does before it has a step or two; chance takes one of them.
        takes_trees: Whether all that a driver has started is killed with it, every other time.
    """

    def __init__(
        self, campaign: Campaign, *, seed: int, deeds: int, takes_trees: bool = False
    ) -> None:
        self._campaign, self._chance, self._deeds = campaign, random.Random(seed), deeds
        self._takes_trees = takes_trees
        self.at_deeds = self.outside = 0

    def __call__(self, **given: Any) -> None:
        campaign = self._campaign
        if self._chance.random() < 0.5:
            launch = campaign.launch(deed=self._chance.randint(1, self._deeds), **given)
            campaign.observe(launch)
            campaign.settle(launch)
            self.at_deeds += 1
        else:
            launch = campaign.launch(**given)
            begun, acked = len(campaign.begun()), len(campaign.acknowledged())
            more = self._chance.randint(0, 3)
            assert campaign.wait(
                launch,
                lambda: (
                    len(campaign.begun()) > begun and len(campaign.acknowledged()) >= acked + more
                ),
            ), launch.said()
            self.outside += 1
            campaign.kill(launch, tree=self._takes_trees and self.outside % 2 == 0)
        assert launch.driver.returncode == -9, launch.said()
        assert campaign.is_nothing_lost()


@pytest.mark.req("T-012", "T-014", "T-016", "T-066", "T-067", "T-071", "T-073", "T-074")
@pytest.mark.parametrize("kills", KILLS)
def test_a_run_whose_driver_is_killed_so_many_times_ends_as_if_nothing_had_happened(
    toy: Campaign, kills: int
) -> None:
    """Only drivers are killed; what they started ends with them.

    Now and then a worker dies, too, in attempts that live long enough.
    """
    deaths = [
        one.to_data()
        for death in campaign_of([(0,), (1,), (0, 1)])
        for one in (death, SPARED, SPARED)
    ]
    kill = Killer(toy, seed=5, deeds=160)

    for _ in range(kills):
        kill(steps=ENOUGH, deaths=deaths)
    steps = max(toy.acknowledged()) + 6
    printed = toy.finish(steps=steps, deaths=deaths)

    assert kill.at_deeds > 0.3 * kills and kill.outside > 0.3 * kills
    assert printed["weights"] == weights_after(steps, 0)
    checkpoint = Result.from_path(toy.run).checkpoint
    assert checkpoint is not None
    with checkpoint.as_directory() as folder:
        saved = [Path(folder, f"weights-{rank}").read_text() for rank in range(WORKERS)]
    assert saved == [weights_after(steps, rank) for rank in range(WORKERS)]
    toy.must_be_whole(steps)


@pytest.mark.req("T-041", "T-080")
def test_a_killed_driver_takes_no_retry_from_the_workers(toy: Campaign) -> None:
    """One failure is allowed, and there is one before the driver is killed and one after."""
    deaths = [one.to_data() for one in (FIRST, SPARED, FIRST)]
    launch = toy.launch(steps=ENOUGH, deaths=deaths, max_failures=1)
    assert toy.wait(launch, lambda: any(one["attempt"] == 2 for one in toy.begun())), launch.said()
    toy.kill(launch)

    toy.finish(steps=max([0, *toy.acknowledged()]) + 4, deaths=deaths, max_failures=1)

    assert [one["attempt"] for one in toy.noted("dies")] == [1, 3]
    assert max(one["attempt"] for one in toy.begun()) == 4


@pytest.mark.req("T-016", "T-038", "T-066", "T-070", "T-074", "T-086")
@pytest.mark.parametrize("kills", TORCH_KILLS)
def test_drivers_killed_at_random_do_not_change_a_bit_of_the_weights(
    torch_run: Campaign, undisturbed: str, kills: int
) -> None:
    kill = Killer(torch_run, seed=11, deeds=160, takes_trees=True)

    for _ in range(kills):
        kill(steps=STEPS)
    printed = torch_run.finish(steps=STEPS)

    assert kill.at_deeds > 1 and kill.outside > 1
    assert printed["weights"] == undisturbed
    torch_run.must_be_whole(STEPS)


@pytest.mark.s3
def test_no_copy_of_a_checkpoint_from_a_bucket_is_left_when_a_run_is_over(
    toy: Campaign, s3_server: S3Server, new_folder: Callable[[], str]
) -> None:
    storage = s3_server.uri("lab", new_folder())
    toy.finish(storage=storage, steps=2)

    toy.finish(storage=storage, steps=4)

    assert [fact["step"] for fact in toy.begun()] == [-1, -1, 1, 1]
    assert [path for path in toy.temporary.rglob("*") if path.is_file()] == []
