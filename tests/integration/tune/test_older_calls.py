"""What functions of older eras call in a trial, as they are."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from holdfast import train, tune
from holdfast.air import session
from tests.integration.tune.conftest import Lab, last

pytestmark = pytest.mark.timeout(120)


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
