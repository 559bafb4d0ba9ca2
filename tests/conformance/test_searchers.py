from __future__ import annotations

import pytest

from holdfast.testing.suites.searcher import Make, SearcherSuite
from holdfast.tune.search import BasicVariantGenerator
from tests.faults.study.plays import SEARCHERS


class TestChance(SearcherSuite):
    learns = False

    @pytest.fixture
    def searcher(self) -> Make:
        return lambda: BasicVariantGenerator(random_state=11)


class TestOurs(SearcherSuite):
    @pytest.fixture(params=["sampler", "hyperopt", "bohb"])
    def searcher(self, request: pytest.FixtureRequest) -> Make:
        return SEARCHERS[request.param]
