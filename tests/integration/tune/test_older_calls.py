"""What functions of older eras call in a trial, as they are."""

from __future__ import annotations

import os
import signal
import warnings
from pathlib import Path
from typing import Any

import pytest

from holdfast import air, train, tune
from holdfast.air import session
from holdfast.errors import ConfigError
from tests.integration.train.loops import is_first
from tests.integration.tune.conftest import Lab, last
from tests.integration.tune.trainables import begin, save


def test_a_function_that_asks_train_or_a_session_hears_of_its_own_trial(lab: Lab) -> None:
    def asks(config: dict[str, Any]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            now, then, here = tune.get_context(), train.get_context(), session
            told = {
                "ids": [one.get_trial_id() for one in (now, then, here)],
                "names": [one.get_trial_name() for one in (now, then, here)],
                "folders": [one.get_trial_dir() for one in (now, then, here)],
                "studies": [one.get_experiment_name() for one in (now, then, here)],
                "cpus": session.get_trial_resources().required_resources["CPU"],
            }
        if config["by"] == "train":
            train.report(told)
        else:
            session.report(told)

    results = lab.fit(asks, {"by": tune.grid_search(["train", "session"])})

    for result in results:
        told = last(result)
        assert told["ids"] == [told["trial_id"]] * 3
        assert told["names"] == [f"asks_{told['trial_id']}"] * 3
        assert told["folders"] == [result.path] * 3
        assert told["studies"] == ["study"] * 3
        assert told["cpus"] == 1
    assert last(results[0])["ids"] != last(results[1])["ids"]


def test_a_function_of_the_years_before_2_0_saves_and_goes_on(lab: Lab) -> None:
    marker = lab.notes

    def counts(config: dict[str, Any], checkpoint_dir: str | None = None) -> None:
        warnings.simplefilter("ignore", DeprecationWarning)
        begun = checkpoint_dir is not None
        done = int(Path(checkpoint_dir, "count").read_text()) if checkpoint_dir else 0
        for count in range(done + 1, 5):
            if count % 2 == 0:
                with tune.checkpoint_dir(step=count) as folder:
                    Path(folder, "count").write_text(str(count))
            tune.report(count=count, begun=begun)
            if count == 3 and is_first(marker):
                raise RuntimeError("the first time only")

    results = lab.fit(counts, {"x": tune.grid_search([1, 2])}, max_failures=1)

    assert results.num_errors == 0
    for result in results:
        assert [metrics["count"] for _, metrics in result.best_checkpoints] == [2, 4]
        rows = lab.rows(last(result)["trial_id"])
        assert [row["count"] for row in rows] == [1, 2, 3, 4]
    assert sorted(row["begun"] for one in results for row in [last(one)]) == [False, True]


@pytest.mark.req("U-112")
@pytest.mark.req("U-125")
def test_by_a_config_of_the_air_era_a_study_goes_on_if_there_is_one_of_its_name(lab: Lab) -> None:
    notes, driver = lab.notes, os.getpid()

    def train_model(config: dict[str, Any]) -> None:
        for step in range(begin(notes), 4):
            if step == 2 and is_first(notes.with_name("stop")):
                os.kill(driver, signal.SIGINT)
            save(step)

    def fit(**more: Any) -> list[int]:
        config = air.RunConfig(name="study", local_dir=str(lab.storage), **more)
        return [last(one)["step"] for one in tune.Tuner(train_model, run_config=config).fit()]

    fit()
    assert fit() == [3]
    assert fit() == [3]  # and there is nothing more to do
    assert len(lab.noted("began")) == 2
    assert lab.noted("began")[1]["step"] is not None
    with pytest.raises(ConfigError, match="already"):
        fit(resume="never")
