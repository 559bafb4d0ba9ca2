"""Whatever is wrong with a run's folder, `can_restore` says what `restore` and `fit` then do."""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import HoldfastError
from holdfast.storage.records import seal, unseal
from holdfast.train import DataParallelTrainer, RunConfig
from tests.integration.train.loops import load, save

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*restore is deprecated:DeprecationWarning"),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run with two checkpoints, a pickled function and a pickled config."""
    storage = tmp_path_factory.mktemp("whole")

    def loop(config: dict[str, Any]) -> int | None:
        before = load()
        save(0 if before is None else before + 1)
        return before

    for _ in range(2):
        DataParallelTrainer(
            loop,
            train_loop_config={"kinds": {"a", "b"}},
            run_config=RunConfig("run", str(storage)),
        ).fit()
    return storage / "run"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


DAMAGES: dict[str, Callable[[Path], None]] = {"gone": Path.unlink, "cut": cut, "flipped": flip}


def files_of(run: Path) -> list[str]:
    found = sorted(path for path in run.rglob("*") if path.is_file() and path.stat().st_size)
    return [str(path.relative_to(run)) for path in found]


def be_found_an_hour_later(run: Path) -> None:
    """Make everything old, so that a lease that cannot be read has surely run out."""
    for name in files_of(run):
        os.utime(run / name, (time.time() - 3600,) * 2)


def works(folder: Path) -> bool:
    try:
        DataParallelTrainer.restore(folder).fit()
    except HoldfastError:
        return False
    return True


@pytest.mark.req("T-028")
@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_whether_a_damaged_run_can_be_restored_is_known_before_it_is_tried(
    whole: Path, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Journal, lease, manifests and checkpoints heal or are done without; the trainer does not."""
    caplog.set_level(logging.CRITICAL)
    said, done = {}, {}
    for number, name in enumerate(files_of(whole)):
        folder = tmp_path / str(number) / "run"
        shutil.copytree(whole, folder)
        DAMAGES[damage](folder / name)
        be_found_an_hour_later(folder)
        said[name] = DataParallelTrainer.can_restore(folder)
        done[name] = works(folder)

    hopeless = {name for name, is_good in said.items() if not is_good}
    assert said == done
    pickles = [name for name in said if Path(name).parent.name == "pickled"]
    assert hopeless == {".holdfast/trainer.json", *pickles}
    assert len(pickles) == 2
    assert len(said) >= 10


@pytest.mark.parametrize("key", ["run.json", "trainer.json"])
def test_what_a_newer_version_wrote_is_not_touched(whole: Path, tmp_path: Path, key: str) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    path = folder / ".holdfast" / key
    record = unseal(path.read_bytes().removesuffix(b"\n"))
    path.write_bytes(seal({**record, "format": 99}) + b"\n")

    assert not DataParallelTrainer.can_restore(folder)
    assert not works(folder)
    assert json.loads(path.read_text())["format"] == 99


def test_a_study_is_not_a_training_run(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    path = folder / ".holdfast" / "run.json"
    record = unseal(path.read_bytes().removesuffix(b"\n"))
    path.write_bytes(seal({**record, "kind": "tune"}) + b"\n")

    assert not DataParallelTrainer.can_restore(folder)
    with pytest.raises(ValueError, match="is a study, not a training run"):
        DataParallelTrainer.restore(folder)


@pytest.mark.parametrize("path", [None, 3, b"x", "", "s3:/x", "nothing://x", "file://host/x"])
def test_no_path_makes_can_restore_raise(path: Any) -> None:
    assert DataParallelTrainer.can_restore(path) is False
