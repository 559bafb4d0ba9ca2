"""A study on an object store: begun, killed and carried on without a copy of it here."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import train, tune
from holdfast.tune import Tuner
from tests.integration.train.loops import is_first
from tests.integration.tune.conftest import Lab, last
from tests.integration.tune.trainables import begin, save
from tests.servers.storage import S3Server


@pytest.mark.req("U-022")
def test_a_study_on_s3_goes_on_from_there(
    lab: Lab, s3_server: S3Server, new_folder: Callable[[], str]
) -> None:
    notes, driver = lab.notes, os.getpid()

    def train(config: dict[str, Any]) -> None:
        for step in range(begin(notes), 4):
            if step == 2 and config["x"] == 1 and is_first(notes.with_name("stop")):
                os.kill(driver, signal.SIGINT)
            save(step)

    where = s3_server.uri("lab", f"studies/{new_folder()}")
    place, _, query = where.partition("?")
    lab.fit(train, {"x": tune.grid_search([0, 1])}, storage_path=where)
    path = f"{place}/study?{query}"
    assert Tuner.can_restore(path)
    results = Tuner.restore(path, train).fit()

    assert [last(one)["step"] for one in results] == [3, 3]
    assert results.num_errors == 0
    assert not lab.storage.exists()
    for one in results:
        assert one.checkpoint is not None
        assert [row["step"] for row in one.metrics_dataframe.to_dict("records")] == [1, 2, 3]


def test_a_trainer_is_a_trial_on_s3_with_what_opens_it_in_the_path_alone(
    lab: Lab, s3_server: S3Server, new_folder: Callable[[], str]
) -> None:
    """No variable of the environment names the server or its keys."""

    def loop() -> None:
        save(1)

    trainer = train.DataParallelTrainer(loop)
    where = s3_server.uri("lab", f"studies/{new_folder()}")
    [result] = lab.fit(trainer, storage_path=where)

    assert result.error is None
    assert last(result)["step"] == 1
    assert result.checkpoint is not None
    with result.checkpoint.as_directory() as folder:
        assert os.listdir(folder)
