from __future__ import annotations

import pytest

from holdfast.testing.suites.scheduler import Make, SchedulerSuite
from holdfast.tune.schedulers import TrialScheduler
from tests.faults.study.plays import SCHEDULERS, pbt, to_the_best

KINDS = ("FIFO", "ASHA", "HyperBand", "BOHB", "median that pauses", "shared resources")
POPULATIONS = ("PBT", "synchronous PBT", "PB2", "PBT with resources")


WRAPPED = "synchronous PBT with resources"


def made(name: str) -> Make:
    def make() -> TrialScheduler:
        scheduler = to_the_best(pbt(synch=True)) if name == WRAPPED else SCHEDULERS[name]()
        scheduler.set_search_properties("loss", "min")
        return scheduler

    return make


class TestOurs(SchedulerSuite):
    @pytest.fixture(params=[*KINDS, *POPULATIONS, WRAPPED])
    def scheduler(self, request: pytest.FixtureRequest) -> Make:
        return made(request.param)
