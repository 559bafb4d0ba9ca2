"""`restore` and `can_restore` of older eras: a run is carried on with from its folder alone."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import train
from holdfast.control.record.run_view import look
from holdfast.data import from_items
from holdfast.errors import ConfigError
from holdfast.storage.locate import open_store
from holdfast.train import (
    DataParallelTrainer,
    FailureConfig,
    RunConfig,
    ScalingConfig,
    TrainingFailedError,
)
from holdfast.train.restore.references import CannotRestore
from tests.integration.train.conftest import Lab
from tests.integration.train.restorable import (
    fail_less,
    fail_once,
    interrupted,
    read_given,
    say_word,
    steps_begun_with,
)
from tests.servers.storage import S3Server

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*restore is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*resume_from_checkpoint=.*:DeprecationWarning"),
]


# ---------------------------------------------------------------------- the path alone


SPELLED: dict[str, Callable[[Path], Any]] = {
    "text": str,
    "path": lambda run: run,
    "trailing slash": lambda run: f"{run}/",
    "uri": lambda run: run.as_uri(),
}


@pytest.mark.req("T-021", "T-032", "T-014")
@pytest.mark.parametrize("spelled", SPELLED)
def test_the_path_of_a_run_is_all_that_restore_needs(lab: Lab, spelled: str) -> None:
    interrupted(lab)
    before = look(open_store(lab.run)).identity

    result = DataParallelTrainer.restore(SPELLED[spelled](lab.run)).fit()

    assert result.return_value == 2
    assert steps_begun_with(lab) == [None, 1]
    assert result.path == str(lab.run)
    assert look(open_store(lab.run)).identity == before
    assert [path.name for path in lab.storage.iterdir()] == ["run"]


@pytest.mark.req("T-091")
def test_the_constructor_with_the_same_pair_does_what_restore_did(lab: Lab) -> None:
    interrupted(lab)

    result = lab.fit(fail_once, config={"notes": str(lab.notes), "steps": 4})

    assert result.return_value == 2
    assert steps_begun_with(lab) == [None, 1]


def test_a_moved_folder_is_restored_where_it_is(lab: Lab) -> None:
    interrupted(lab)
    moved = lab.folder / "elsewhere" / "renamed"
    moved.parent.mkdir()
    shutil.move(lab.run, moved)

    result = DataParallelTrainer.restore(moved).fit()

    assert result.return_value == 2
    assert result.path == str(moved)
    assert list(lab.storage.iterdir()) == []


def test_a_finished_run_is_run_again_with_its_newest_checkpoint(lab: Lab) -> None:
    interrupted(lab)
    DataParallelTrainer.restore(lab.run).fit()

    result = DataParallelTrainer.restore(lab.run).fit()

    assert result.return_value == 4
    assert steps_begun_with(lab) == [None, 1, 3]


def test_budget_and_retention_are_as_they_were(lab: Lab) -> None:
    trainer = DataParallelTrainer(
        fail_once,
        train_loop_config={"notes": str(lab.notes), "steps": 4, "betas": (0.9, 0.99)},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            "run",
            str(lab.storage),
            failure_config=FailureConfig(backoff_max_s=0.5),
            checkpoint_config=train.CheckpointConfig(3, "step"),
            logging_config=train.LoggingConfig("warning"),
        ),
    )
    with pytest.raises(TrainingFailedError):
        trainer.fit()

    again = DataParallelTrainer.restore(lab.run)

    assert again.train_loop_config == trainer.train_loop_config
    assert again.scaling_config == trainer.scaling_config
    for name in ("failure_config", "checkpoint_config", "logging_config", "name", "storage_path"):
        assert getattr(again.run_config, name) == getattr(trainer.run_config, name)
    assert again.run_config.resume == "must"


@pytest.mark.req("T-023")
def test_what_is_given_again_wins(lab: Lab) -> None:
    interrupted(lab)

    trainer = DataParallelTrainer.restore(
        str(lab.run),
        say_word,
        {"word": "other"},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig("ignored", "/ignored", failure_config=FailureConfig(7)),
    )
    result = trainer.fit()

    assert result.return_value == "other after step 1"
    assert result.path == str(lab.run)
    assert trainer.run_config.failure_config.max_failures == 7
    assert trainer.scaling_config.num_workers == 2


# ---------------------------------------------------------------------- datasets


def add_up() -> int:
    return sum(row["item"] for row in train.get_dataset_shard("train").iter_rows())


@pytest.mark.req("T-024")
def test_datasets_must_be_given_again_by_the_same_names(lab: Lab) -> None:
    rows = from_items([1, 2, 3])
    run_config = RunConfig("run", str(lab.storage))
    DataParallelTrainer(
        add_up, datasets={"valid": rows, "train": rows}, run_config=run_config
    ).fit()
    refusals: list[tuple[dict[str, Any] | None, str]] = [
        (None, "missing 'train', 'valid'"),
        ({"train": rows}, "missing 'valid'"),
        ({"train": rows, "valid": rows, "test": rows}, "not there before 'test'"),
        ({"trian": rows, "valid": rows}, "missing 'train'; not there before 'trian'"),
    ]

    for given, said in refusals:
        with pytest.raises(ValueError, match=re.escape(said)) as refused:
            DataParallelTrainer.restore(lab.run, datasets=given)
        assert isinstance(refused.value, ConfigError)
    more = from_items([10, 20])
    again = DataParallelTrainer.restore(lab.run, datasets={"train": more, "valid": rows})
    assert again.fit().return_value == 30


@pytest.mark.req("T-024")
def test_a_run_without_datasets_takes_none(lab: Lab) -> None:
    lab.fit(say_word, config={"word": "x"})

    with pytest.raises(ValueError, match="not there before 'train'"):
        DataParallelTrainer.restore(lab.run, datasets={"train": from_items([1])})


# ---------------------------------------------------------------------- what cannot be restored


@pytest.mark.req("T-028")
@pytest.mark.parametrize("place", ["missing", "empty", "parent", "file", "no state", "bucket"])
def test_there_is_nothing_to_restore_where_there_is_no_run(lab: Lab, place: str) -> None:
    lab.fit(say_word, config={"word": "x"})
    (lab.folder / "empty").mkdir()
    (lab.folder / "file").write_text("not a folder")
    (lab.run / ".holdfast" / "trainer.json").unlink()
    places: dict[str, str | Path] = {
        "missing": lab.storage / "other",
        "empty": lab.folder / "empty",
        "parent": lab.storage,
        "file": lab.folder / "file" / "run",
        "no state": lab.run,
        "bucket": "s3://lab",
    }
    path = places[place]

    assert not DataParallelTrainer.can_restore(path)
    with pytest.raises(ValueError, match=r"\[HF\d+\]\n  Try: "):
        DataParallelTrainer.restore(path)


def test_a_run_made_by_another_class_is_restored_with_a_warning(lab: Lab) -> None:
    class Mine(DataParallelTrainer):
        pass

    lab.fit(say_word, config={"word": "x"})

    with pytest.warns(UserWarning, match="made by .*DataParallelTrainer, and .*Mine restores it"):
        trainer = Mine.restore(lab.run)

    assert isinstance(trainer, Mine)


# ---------------------------------------------------------------------- the way back from a failure


def test_a_failure_says_what_carries_on_and_recommends_nothing_that_is_deprecated(
    lab: Lab,
) -> None:
    failure = interrupted(lab)

    assert failure.hint is not None
    assert failure.hint.endswith("; the same command then carries on from checkpoint_000001")
    assert "restore(" not in str(failure)


def test_the_cause_of_a_failure_is_what_the_function_raised(lab: Lab) -> None:
    failure = interrupted(lab)

    assert isinstance(failure.__cause__, ValueError)
    assert str(failure.__cause__) == "loss is nan"


@pytest.mark.req("T-020", "T-079")
def test_a_run_is_kept_under_its_name_and_nowhere_else(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = lab.folder / "here"
    here.mkdir()
    monkeypatch.chdir(here)

    result = lab.fit(fail_less, config={"notes": str(lab.notes)}, name="bert-7")

    assert result.path == str(lab.storage / "bert-7")
    assert look(open_store(result.path)).identity.name == "bert-7"
    assert [path.name for path in lab.storage.iterdir()] == ["bert-7"]
    assert list(here.iterdir()) == []


# ---------------------------------------------------------------------- far away


@pytest.mark.s3
@pytest.mark.req("T-022")
def test_a_run_in_a_bucket_is_restored_by_its_uri(
    lab: Lab, s3_server: S3Server, new_folder: Callable[[], str]
) -> None:
    storage = s3_server.uri("lab", f"train/{new_folder()}")
    base, _, query = storage.partition("?")
    path = f"{base}/unique_run_id=da823d5?{query}"
    source = lab.fit(
        fail_less, config={"notes": str(lab.notes)}, storage_path=storage, name="source"
    )
    interrupted(lab, storage_path=storage, name="unique_run_id=da823d5")

    assert DataParallelTrainer.can_restore(path)
    assert not DataParallelTrainer.can_restore(storage)
    result = DataParallelTrainer.restore(path).fit()

    assert result.return_value == 2
    stored = open_store(path).get(".holdfast/trainer.json").data
    assert not re.search(rb"access_key|secret_key", stored)
    assert source.checkpoint is not None
    given = {"begin_with": source.checkpoint}
    lab.fit(read_given, config=given, storage_path=storage, name="reader")
    again = DataParallelTrainer.restore(f"{base}/reader?{query}").fit()
    assert json.loads(again.return_value) == {"step": 1}


def test_restoring_nothing_is_a_refusal_of_its_own_kind(tmp_path: Path) -> None:
    with pytest.raises(CannotRestore, match="there is no run"):
        DataParallelTrainer.restore(tmp_path)
