"""Trainable classes outside trials: saved, restored, and what is left in folders."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.tune import class_checkpoints
from holdfast.tune.trainable import Trainable, can_save


class Counter(Trainable):
    def _setup(self, config: dict[str, Any]) -> None:
        self.count = config.get("first", 0)

    def _train(self) -> dict[str, Any]:
        self.count += 1
        return {"count": self.count, "timesteps_this_iter": 10}

    def _save(self, checkpoint_dir: str) -> str:
        path = os.path.join(checkpoint_dir, "model.ckpt")
        Path(f"{path}.index").write_text(str(self.count))
        return path

    def _restore(self, prefix: str) -> None:
        self.count = int(Path(f"{prefix}.index").read_text())


def test_counters_go_on_where_a_trainable_was_saved(tmp_path: Path) -> None:
    first, second = Counter({}), Counter({"first": 50})
    for _ in range(3):
        first.train()
    first.save(str(tmp_path / "saved"))

    second.restore(str(tmp_path / "saved"))
    result = second.train()

    assert result["count"] == result["training_iteration"] == second.iteration == 4
    assert result["timesteps_total"] == 40
    assert result["iterations_since_restore"] == 1


def test_a_trainable_is_restored_from_the_prefix_that_its_save_returned(tmp_path: Path) -> None:
    first, second = Counter({}), Counter({})
    first.train()
    first.save(str(tmp_path))

    second.restore(str(tmp_path / "model.ckpt"))

    assert second.count == 1


@pytest.mark.parametrize("path", ["nothing", "saved/another.ckpt"])
def test_where_nothing_was_saved_nothing_is_restored(tmp_path: Path, path: str) -> None:
    trainable = Counter({})
    trainable.save(str(tmp_path / "saved"))

    with pytest.raises(ConfigError, match="there is no checkpoint at"):
        trainable.restore(str(tmp_path / path))


def test_a_folder_that_is_saved_to_again_is_what_it_was_saved_as_last(tmp_path: Path) -> None:
    folder = str(tmp_path)
    for returned, loaded in (
        ({"a": 1}, {"a": 1}),
        (None, folder),
        (f"{folder}/model", f"{folder}/model"),
        (folder, folder),
        ({"b": 2}, {"b": 2}),
    ):
        class_checkpoints.store(folder, returned, "Mine")

        assert class_checkpoints.load(folder) == loaded


def test_a_folder_may_be_reached_by_another_way(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")

    class_checkpoints.store(str(tmp_path / "link"), str(tmp_path / "real" / "model"), "Mine")

    assert class_checkpoints.load(str(tmp_path / "link")) == str(tmp_path / "link" / "model")


@pytest.mark.parametrize("outside", ["..", "../beside", "/", "model"])
@pytest.mark.req("U-050")
def test_a_path_outside_the_folder_is_refused(
    tmp_path: Path, outside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative one is outside, too: it is relative to where the process is."""
    monkeypatch.chdir("/")
    folder = tmp_path / "folder"
    folder.mkdir()
    returned = outside if outside == "model" else str(folder / outside)

    with pytest.raises(ValueError, match="says it is at"):
        class_checkpoints.store(str(folder), returned, "Mine")


def test_a_class_can_be_saved_if_it_has_both_methods_of_either_era() -> None:
    class OnlySaves(Trainable):
        def save_checkpoint(self, checkpoint_dir: str) -> None:
            pass

    class Modern(OnlySaves):
        def load_checkpoint(self, checkpoint: Any) -> None:
            pass

    assert can_save(Counter) and can_save(Modern)
    assert not can_save(OnlySaves) and not can_save(Trainable)
