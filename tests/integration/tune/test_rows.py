"""Files of a trial have one row for each step, whatever the user counts as an iteration."""

from __future__ import annotations

import csv
import json
import os
import signal
from typing import Any

from holdfast import tune
from tests.integration.train.loops import is_first
from tests.integration.tune.conftest import Lab
from tests.integration.tune.trainables import begin, save
from tests.unit.tune.logger.event_reader import read_events

COUNTED = [1, 1, 2, 2, 1, 5, 6]


def test_every_step_has_its_row_whatever_its_training_iteration(lab: Lab) -> None:
    notes, driver = lab.notes, os.getpid()

    def train(config: dict[str, Any]) -> None:
        for step in range(begin(notes), 8):
            counted = {"training_iteration": COUNTED[step - 1]}
            if step == 4 and is_first(notes.with_name("lost")):
                tune.report({"step": step, **counted})  # a row that is done again
                os._exit(1)
            if step == 5 and is_first(notes.with_name("stopped")):
                os.kill(driver, signal.SIGINT)
            save(step, counted)

    lab.fit(train, {"x": 0}, max_failures=1)
    results = lab.restore(train)

    [folder] = (path.parent for path in lab.study.glob("*/result.json"))
    rows = [json.loads(line) for line in (folder / "result.json").read_text().splitlines()]
    with (folder / "progress.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    [events] = folder.glob("events.*")
    seen = [one.scalars for one in read_events(events.read_bytes()) if one.scalars]
    steps = list(range(1, 8))
    assert [row["step"] for row in rows] == [int(row["step"]) for row in table] == steps
    assert [row["training_iteration"] for row in rows] == COUNTED
    assert [int(one["ray/tune/step"]) for one in seen] == steps
    [result] = results
    frame = result.metrics_dataframe
    assert frame is not None and list(frame["training_iteration"]) == COUNTED
    assert not [name for name in frame.columns if "holdfast" in name]
