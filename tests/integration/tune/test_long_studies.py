"""Studies of many trials: what is over leaves memory, the journal stays short, nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import tune
from holdfast.control.study import journal as study_journal
from holdfast.storage.locate import open_store
from holdfast.tune import Tuner
from holdfast.tune.analysis import ExperimentAnalysis
from tests.integration.tune.conftest import Lab, last
from tests.integration.tune.trainables import begin


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have states and archives written after a few trials."""
    monkeypatch.setattr(study_journal, "STATE_AFTER", 20)
    monkeypatch.setattr(study_journal, "ARCHIVE_AFTER", 5)


@pytest.mark.usefixtures("often")
@pytest.mark.req("U-064")
@pytest.mark.req("U-075")
def test_what_is_over_is_archived_and_nothing_is_lost(lab: Lab) -> None:
    notes = lab.notes

    def train(config: dict[str, Any]) -> None:
        begin(notes)
        if config["x"] % 10 == 3:
            raise RuntimeError("unlucky")
        tune.report({"square": config["x"] ** 2})

    results = lab.fit(
        train,
        {"x": tune.grid_search(list(range(30)))},
        tune={"metric": "square", "mode": "max", "reuse_actors": True},
    )

    archives = list((lab.study / ".holdfast" / "trials").glob("*.jsonl"))
    assert len(archives) >= 3
    assert (len(results), results.num_errors) == (30, 3)
    assert last(results.get_best_result())["square"] == 29**2
    again = lab.restore(train)
    assert [one.metrics for one in again] == [one.metrics for one in results]
    assert len(lab.noted("began")) == 30
    tried = Tuner.restore(str(lab.study), train, resume_errored=True).fit()
    assert tried.num_errors == 3  # they fail again
    assert len(lab.noted("began")) == 33
    assert len(tried) == 30


@pytest.mark.usefixtures("often")
@pytest.mark.req("U-076")
def test_results_can_be_looked_at_without_the_code(lab: Lab) -> None:
    lab.fit(lambda config: {"double": 2 * config["x"]}, {"x": tune.grid_search(list(range(12)))})

    analysis = ExperimentAnalysis(str(lab.study), default_metric="double", default_mode="max")

    assert len(analysis.trials) == 12
    best = analysis.best_result
    assert best["double"] == 22
    store = open_store(lab.study)
    assert store.stat(".holdfast/study.json") is not None
