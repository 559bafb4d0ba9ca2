"""What loggers write: each format as a reader of that format finds it."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from holdfast.core.config_data import Mark
from holdfast.storage.base import Store
from holdfast.storage.locate import open_store
from tests.unit.tune.logger.logging_files import (
    a_logger,
    a_trial,
    event_keys,
    events,
    log_all,
    result,
    rows,
)


def test_a_row_of_json_says_all_and_its_config(store: Store) -> None:
    logger = a_logger("json", store)
    log_all(logger, result(1, math.nan, eval={"acc": 0.5}, big=np.float32(0.5), a=np.arange(3)))
    logger.flush()

    (row,) = map(json.loads, store.get("train_00000/result.json").data.splitlines())

    assert math.isnan(row.pop("loss"))
    assert row.pop("eval") == {"acc": 0.5}
    assert row.pop("config") == {"lr": 0.5}
    assert row == {"training_iteration": 1, "timestamp": 1001, "big": 0.5, "a": [0, 1, 2]}


class Untellable:
    def __str__(self) -> str:
        raise RuntimeError("no")


def test_what_json_has_no_word_for_costs_no_row(store: Store) -> None:
    circle: dict[str, Any] = {}
    circle["self"] = circle
    odd = [object(), Untellable(), {1, 2}, {("a", 1): 2}, circle, "\ud800", b"x", len, 10**400]
    logger = a_logger("json", store)
    log_all(logger, *[result(step, odd=value) for step, value in enumerate(odd, 1)])
    logger.flush()

    assert [step for step, _ in rows("json", store, "train_00000")] == list(range(1, 10))
    logger.rewind(a_trial(), 7)
    assert len(rows("json", store, "train_00000")) == 7


def test_the_config_is_in_params_json_and_follows_changes(store: Store) -> None:
    logger = a_logger("json", store)
    logger.log_trial_start(a_trial(config={"lr": 0.5, "layer": {"size": 3}, "f": max}))
    logger.flush()
    params = json.loads(store.get("train_00000/params.json").data)
    assert params == {"lr": 0.5, "layer": {"size": 3}, "f": str(max)}

    logger.log_trial_start(a_trial(config={"lr": 0.25}))
    logger.log_trial_end(a_trial())
    logger.flush()
    assert json.loads(store.get("train_00000/params.json").data) == {"lr": 0.25}


def test_columns_grow_and_never_shift(store: Store) -> None:
    logger = a_logger("csv", store)
    log_all(logger, result(1, 1.0))
    logger.flush()
    log_all(logger, result(2, 2.0, eval={"acc": 0.5}), result(3, 3.0))
    logger.flush()
    again = a_logger("csv", store)
    log_all(again, {"training_iteration": 4, "new": 'a,b\n"c"'}, result(5, 5.0))
    again.flush()

    read = list(csv.DictReader(io.StringIO(store.get("train_00000/progress.csv").data.decode())))

    assert list(read[0]) == ["training_iteration", "loss", "timestamp", "eval/acc", "new"]
    assert [row["loss"] for row in read] == ["1.0", "2.0", "3.0", "", "5.0"]
    assert [row["eval/acc"] for row in read] == ["", "0.5", "", "", ""]
    assert read[3]["new"] == 'a,b\n"c"'
    assert not [row for row in read if None in row]
    again.rewind(a_trial(), 4)
    assert len(pd.read_csv(io.BytesIO(store.get("train_00000/progress.csv").data))) == 4


def test_what_a_metric_was_is_what_pandas_reads_from_the_csv(tmp_path: Path) -> None:
    logger = a_logger("csv", open_store(tmp_path))
    values = [0.1, math.inf, -math.inf, math.nan, np.float64(1 / 3), 10**20, True, None]
    log_all(logger, *[result(step, x=value) for step, value in enumerate(values, 1)])
    logger.flush()

    column = pd.read_csv(tmp_path / "train_00000" / "progress.csv", dtype=str)["x"]

    assert list(map(float, column[:3])) == [0.1, math.inf, -math.inf]
    assert float(column[4]) == 1 / 3 and int(column[5]) == 10**20 and column[6] == "True"
    assert column.isna()[[3, 7]].all()


def test_events_hold_every_number_by_its_path_at_its_step(store: Store) -> None:
    logger = a_logger("events", store)
    logger.log_trial_start(a_trial())
    log_all(
        logger,
        result(1, 0.5, eval={"acc": np.float32(0.25)}, name="x", done=True, pid=3),
        result(2, 1e300, timesteps_total=300),
    )
    logger.flush()

    version, started, parameters, first, second = events(store, "train_00000")

    assert version.file_version == "brain.Event:2"
    assert started.session_status == 1
    name, content = parameters.plugins["_hparams_/session_start_info"]
    assert name == "hparams" and b"lr" in content
    assert (first.step, first.wall_time) == (1, 1001.0)
    assert first.scalars == {
        "ray/tune/training_iteration": 1.0,
        "ray/tune/loss": 0.5,
        "ray/tune/eval/acc": 0.25,
    }
    assert second.step == 300 and second.scalars["ray/tune/loss"] == math.inf


def test_a_number_beyond_tensorboards_reach_leaves_those_beside_it_as_they_are(
    store: Store,
) -> None:
    logger = a_logger("events", store)
    log_all(logger, result(1, math.nan, large=1e300, count=-(10**400)))
    logger.flush()

    scalars = events(store, "train_00000")[-1].scalars

    assert math.isnan(scalars["ray/tune/loss"])
    assert scalars["ray/tune/large"] == math.inf
    assert scalars["ray/tune/count"] == -math.inf


def test_parameters_stand_first_also_if_a_result_is_told_before_the_trial_goes_on(
    store: Store,
) -> None:
    """Its driver died over the result, and before anything of the trial was in a file."""
    logger = a_logger("events", store)
    log_all(logger, result(1))
    logger.flush()
    logger.log_trial_start(a_trial())
    log_all(logger, result(2))
    logger.flush()

    written = events(store, "train_00000")

    assert [len(seen.plugins) for seen in written] == [0, 0, 1, 0, 0]
    assert [seen.step for seen in written[3:]] == [1, 2]


def test_objects_among_the_parameters_are_told_by_their_kind(store: Store) -> None:
    reference = Mark(("data",), "ObjectRef")
    logger = a_logger("events", store)
    trial = a_trial(evaluated_params={"data": reference, "size": (1, 2), "on": True})
    logger.log_trial_start(trial)
    log_all(logger, result(1), trial=trial)
    logger.flush()

    [(_, content)] = [
        seen.plugins["_hparams_/session_start_info"]
        for seen in events(store, "train_00000")
        if seen.plugins
    ]

    assert b"ObjectRef" in content and b"(1, 2)" in content and b"Mark" not in content


def test_a_rewind_counts_iterations_also_where_events_count_timesteps(store: Store) -> None:
    logger = a_logger("events", store)
    log_all(logger, *[result(step, timesteps_total=100 * step) for step in (1, 2, 3)])
    logger.flush()

    logger.rewind(a_trial(), 2)

    assert [seen.step for seen in events(store, "train_00000") if seen.scalars] == [100, 200]


def test_event_files_that_are_replaced_get_a_later_name_and_users_files_stay(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "train_00000"
    folder.mkdir()
    own = folder / "events.out.tfevents.1700000000.host.1234"
    own.write_bytes(b"the user's")
    logger = a_logger("events", open_store(tmp_path))
    log_all(logger, result(1), result(2))
    logger.flush()
    first = {path.name for path in folder.iterdir()} - {own.name}

    logger.rewind(a_trial(), 1)

    second = {path.name for path in folder.iterdir()} - {own.name}
    assert len(first) == len(second) == 1 and max(second) > max(first)
    assert own.read_bytes() == b"the user's"


def test_a_crash_between_two_event_files_leaves_the_newer(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    logger = a_logger("events", store)
    log_all(logger, result(1), result(2))
    logger.flush()
    (key,) = event_keys(store, "train_00000")
    old = store.get(key).data
    logger.rewind(a_trial(), 1)
    store.put(key, old)  # it was not removed yet

    a_logger("events", store).reconcile(a_trial(), [])

    assert rows("events", store, "train_00000") == [(1, 0.0)]
