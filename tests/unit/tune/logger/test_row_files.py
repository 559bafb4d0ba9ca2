"""The files of loggers: every iteration once, in order, whatever is reported again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.storage.base import Store
from holdfast.storage.locate import open_store
from tests.unit.tune.logger.logging_files import (
    a_logger,
    a_trial,
    events,
    every_kind,
    log_all,
    result,
    rows,
)


@every_kind
def test_every_result_is_in_the_file_in_order(kind: str, store: Store) -> None:
    logger = a_logger(kind, store)
    logger.log_trial_start(a_trial())
    log_all(logger, result(1, 0.5), result(2, 0.25))
    assert logger.flush()
    log_all(logger, result(3, 0.125))
    assert logger.flush()

    assert rows(kind, store, "train_00000") == [(1, 0.5), (2, 0.25), (3, 0.125)]


@every_kind
def test_a_rewind_takes_away_all_rows_after_the_iteration(kind: str, store: Store) -> None:
    logger = a_logger(kind, store)
    log_all(logger, *[result(step, float(step)) for step in range(1, 6)])
    logger.flush()
    log_all(logger, result(6), result(7))

    logger.rewind(a_trial(), 3)

    assert rows(kind, store, "train_00000") == [(1, 1.0), (2, 2.0), (3, 3.0)]
    log_all(logger, result(4, 40.0))
    logger.flush()
    assert rows(kind, store, "train_00000")[-2:] == [(3, 3.0), (4, 40.0)]


@every_kind
def test_a_rewind_to_the_very_beginning_leaves_no_row(kind: str, store: Store) -> None:
    logger = a_logger(kind, store)
    log_all(logger, result(1), result(2))
    logger.flush()

    logger.rewind(a_trial(), 0)

    assert rows(kind, store, "train_00000") == []
    log_all(logger, result(1, 9.0))
    logger.flush()
    assert rows(kind, store, "train_00000") == [(1, 9.0)]


@every_kind
def test_a_new_process_takes_away_rows_that_an_earlier_one_has_written(
    kind: str, store: Store
) -> None:
    first = a_logger(kind, store)
    log_all(first, result(1), result(2), result(3))
    first.flush()

    a_logger(kind, store).rewind(a_trial(), 1)

    assert rows(kind, store, "train_00000") == [(1, 0.0)]


@pytest.mark.parametrize("is_reconciled", [True, False])
def test_parameters_stay_also_where_no_row_does(store: Store, is_reconciled: bool) -> None:
    first = a_logger("events", store)
    first.log_trial_start(a_trial())
    log_all(first, result(1), result(2))
    first.flush()

    logger = a_logger("events", store)
    if is_reconciled:
        logger.reconcile(a_trial(), [result(1, 1.0)])
    else:
        logger.rewind(a_trial(), 0)

    assert len([seen for seen in events(store, "train_00000") if seen.plugins]) == 1


@every_kind
@pytest.mark.parametrize("flushes", [True, False])
def test_an_iteration_reported_again_is_there_once_also_without_a_rewind(
    kind: str, store: Store, flushes: bool
) -> None:
    logger = a_logger(kind, store)
    log_all(logger, result(1), result(2), result(3))
    if flushes:
        logger.flush()

    log_all(logger, result(2, 20.0))
    logger.flush()

    assert rows(kind, store, "train_00000") == [(1, 0.0), (2, 20.0)]


@every_kind
def test_a_new_process_goes_on_where_the_file_ends(kind: str, store: Store) -> None:
    first = a_logger(kind, store)
    log_all(first, result(1), result(2))
    first.flush()

    second = a_logger(kind, store)
    second.log_trial_start(a_trial())
    log_all(second, result(3, 3.0))
    second.flush()

    assert rows(kind, store, "train_00000") == [(1, 0.0), (2, 0.0), (3, 3.0)]


@every_kind
def test_trials_do_not_mix(kind: str, store: Store) -> None:
    logger = a_logger(kind, store)
    for step in (1, 2):
        for number in range(3):
            log_all(logger, result(step, float(number)), trial=a_trial(number))
    logger.flush()
    logger.rewind(a_trial(1), 1)

    assert rows(kind, store, "train_00000") == [(1, 0.0), (2, 0.0)]
    assert rows(kind, store, "train_00001") == [(1, 1.0)]
    assert rows(kind, store, "train_00002") == [(1, 2.0), (2, 2.0)]


# ---------------------------------------------------------------------- after a crash


@every_kind
def test_reconciling_keeps_what_comes_before_and_has_the_rows_given(
    kind: str, store: Store
) -> None:
    crashed = a_logger(kind, store)
    log_all(crashed, *[result(step) for step in range(1, 7)])
    crashed.flush()

    logger = a_logger(kind, store)
    logger.reconcile(a_trial(), [result(4, 40.0), result(5, 50.0)])

    expected = [(1, 0.0), (2, 0.0), (3, 0.0), (4, 40.0), (5, 50.0)]
    assert rows(kind, store, "train_00000") == expected


@every_kind
def test_reconciling_a_file_that_never_was_writes_the_rows(kind: str, store: Store) -> None:
    logger = a_logger(kind, store)

    logger.reconcile(a_trial(), [result(1, 1.0), result(2, 2.0)])

    assert rows(kind, store, "train_00000") == [(1, 1.0), (2, 2.0)]
    if kind == "events":
        assert [seen.plugins.keys() for seen in events(store, "train_00000") if seen.plugins]


@every_kind
def test_reconciling_what_is_right_writes_nothing(kind: str, tmp_path: Path) -> None:
    store = open_store(tmp_path)
    first = a_logger(kind, store)
    first.log_trial_start(a_trial())
    log_all(first, result(1, 1.0), result(2, 2.0))
    first.flush()
    files = {path: path.stat().st_ino for path in (tmp_path / "train_00000").iterdir()}

    logger = a_logger(kind, store)
    logger.reconcile(a_trial(), [result(2, 2.0)])
    logger.reconcile(a_trial(), [])
    logger.flush()

    assert {path: path.stat().st_ino for path in (tmp_path / "train_00000").iterdir()} == files


ROW = b'{"training_iteration": 2, "loss": 2.0}\n'
Damage = Callable[[bytes], bytes]
SHAPES: dict[tuple[str, str], Damage] = {
    ("json", "only the newline is missing"): lambda data: data[:-1],
    ("json", "half a row"): lambda data: data + b'{"training_iteration": 3, "lo',
    ("json", "zeros"): lambda data: data + b"\x00" * 40,
    ("json", "a hole before a row"): lambda data: data + b"\x00" * 40 + ROW,
    ("json", "all rows twice"): lambda data: data + data,
    ("json", "a row twice"): lambda data: data + ROW,
    ("json", "two rows on a line"): lambda data: data[:-1] + ROW,
    ("json", "no text"): lambda data: data + b'{"training_iteration": 3, "x": "\xff\xfe"}\n',
    ("json", "empty lines"): lambda data: data.replace(b"\n", b"\n\n"),
    ("csv", "half a row"): lambda data: data + b"3,0.1",
    ("csv", "zeros"): lambda data: data + b"\x00" * 30,
    ("csv", "a line of zeros"): lambda data: data + b"\x00" * 30 + b"\n",
    ("csv", "half a quoted field"): lambda data: data + b'3,"half a quoted',
    ("csv", "a row after half a field"): lambda data: data + b'3,"half a\n2,2.0,1002\n',
    ("csv", "a row twice"): lambda data: data + b"2,2.0,1002\n",
    ("csv", "two rows on a line"): lambda data: data + b"3,0.11,2.0,1002\n",
    ("csv", "no text"): lambda data: data + b"3,\xff\xfe,1003\n",
    ("events", "half a frame"): lambda data: data + data[:20],
    ("events", "zeros"): lambda data: data + b"\x00" * 64,
    ("events", "the middle of a frame"): lambda data: data + data[-100:],
    ("events", "a length without its data"): lambda data: data + data[:12],
}


@pytest.mark.parametrize(
    ("kind", "damage"),
    [(kind, damage) for (kind, _), damage in SHAPES.items()],
    ids=["-".join(shape) for shape in SHAPES],
)
def test_what_a_crash_left_at_the_end_of_a_file_is_cut(
    kind: str, damage: Damage, store: Store
) -> None:
    first = a_logger(kind, store)
    log_all(first, result(1, 1.0), result(2, 2.0))
    first.flush()
    (key,) = (e.key for e in store.entries("train_00000") if "params" not in e.key)
    store.put(key, damage(store.get(key).data))

    logger = a_logger(kind, store)
    logger.reconcile(a_trial(), [])
    assert rows(kind, store, "train_00000") == [(1, 1.0), (2, 2.0)]

    logger.reconcile(a_trial(), [result(2, 20.0), result(3, 3.0)])
    assert rows(kind, store, "train_00000") == [(1, 1.0), (2, 20.0), (3, 3.0)]


@every_kind
def test_a_torn_end_is_cut_before_a_row_is_added_also_if_nobody_reconciles(
    kind: str, store: Store
) -> None:
    first = a_logger(kind, store)
    log_all(first, result(1, 1.0), result(2, 2.0))
    first.flush()
    (key,) = (e.key for e in store.entries("train_00000") if "params" not in e.key)
    store.put(key, store.get(key).data[:-9])

    logger = a_logger(kind, store)
    log_all(logger, result(3, 3.0))
    logger.flush()

    assert rows(kind, store, "train_00000") == [(1, 1.0), (3, 3.0)]
