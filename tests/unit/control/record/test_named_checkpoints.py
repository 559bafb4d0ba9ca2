"""Names that users give to checkpoints: none may cost another checkpoint or file anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.checkpoint.commit import deliver
from holdfast.checkpoint.verification import verify_checkpoint
from holdfast.control.record.litter import sweep
from holdfast.control.record.open_run import OpenRun, open_run
from holdfast.control.record.run_view import look, verify
from holdfast.core.checkpoint.retention import Retention
from holdfast.errors import ConfigError
from holdfast.storage.base import Store
from holdfast.storage.local.store import LocalStore
from holdfast.storage.memory import MemoryStore
from tests.runs import save_files


@pytest.fixture(params=["local", "objects"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return LocalStore(tmp_path / "run") if request.param == "local" else MemoryStore()


@pytest.fixture
def run(store: Store) -> OpenRun:
    return open_run(store, name="run", beats=False)


def commit(run: OpenRun, tmp_path: Path, directory: str | None = None) -> None:
    slot = run.begin_checkpoint(attempt=1, directory=directory)
    source = save_files(tmp_path / f"source-{slot.number}", {"model.pt": b"w"})
    run.commit_checkpoint(slot, [deliver(run.store, slot, 0, source)])


@pytest.mark.parametrize(("first", "second"), [("best/one", "best"), ("best", "best/one")])
def test_a_checkpoint_cannot_lie_inside_another(
    run: OpenRun, tmp_path: Path, first: str, second: str
) -> None:
    """What is published or retired is a whole folder: with the outer one the inner would go."""
    commit(run, tmp_path, first)

    with pytest.raises(ConfigError, match="best"):
        commit(run, tmp_path, second)

    assert verify(look(run.store)).damaged == {}


@pytest.mark.parametrize("names", [("best/one", "best"), ("best", "best/one")])
def test_no_retention_costs_a_checkpoint_that_is_kept(
    run: OpenRun, tmp_path: Path, names: tuple[str, str]
) -> None:
    for name in (*names, None, None):
        try:
            commit(run, tmp_path, name)
        except ConfigError:
            continue

        run.retain(Retention(keep=3))

        assert verify(look(run.store)).damaged == {}


@pytest.mark.parametrize("name", ["logs", "logs/attempt-1"])
def test_a_name_that_holds_files_of_others_is_refused_and_they_are_left_alone(
    run: OpenRun, tmp_path: Path, name: str
) -> None:
    run.store.put("logs/attempt-1/rank-0.log", b"precious")

    with pytest.raises(ConfigError, match="logs"):
        commit(run, tmp_path, name)

    assert run.store.get("logs/attempt-1/rank-0.log").data == b"precious"


def test_a_name_whose_first_use_was_never_committed_can_be_used_again(
    run: OpenRun, tmp_path: Path
) -> None:
    slot = run.begin_checkpoint(attempt=1, directory="best")
    source = save_files(tmp_path / "half", {"model.pt": b"v", "leftover": b"x"})
    deliver(run.store, slot, 0, source)

    commit(run, tmp_path, "best")
    sweep(run)

    folder = "best-000001"
    assert run.store.folders() == [".holdfast", folder]
    assert [entry.key for entry in run.store.entries(folder)] == [f"{folder}/model.pt"]
    assert verify(look(run.store)).damaged == {}


def test_parts_join_what_user_code_has_put_into_the_folder(run: OpenRun, tmp_path: Path) -> None:
    source = save_files(tmp_path / "source", {"brought": b"b", "deep/er": b"d"})
    run.store.put("mine/placed", b"p")
    slot = run.begin_checkpoint(attempt=1, directory="mine", is_shared=True)
    part = deliver(run.store, slot, 0, source)

    manifest = run.commit_checkpoint(slot, [part], placed="mine", placed_by=1, world_size=2)

    assert [entry.path for entry in manifest.files] == ["brought", "deep/er", "placed"]
    assert not verify_checkpoint(run.store, "mine").problems
    with pytest.raises(ConfigError, match="it is a checkpoint already"):
        run.begin_checkpoint(attempt=1, directory="mine", is_shared=True)
