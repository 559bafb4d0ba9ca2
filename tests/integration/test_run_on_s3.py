"""A whole run on a real S3 server: storms, an outage, a driver killed in the middle of a commit."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.checkpoint.commit import deliver
from holdfast.control.record.litter import sweep
from holdfast.control.record.open_run import open_run
from holdfast.control.record.run_view import look, verify
from holdfast.core.checkpoint.retention import Retention
from holdfast.errors import Damaged, StoreError
from holdfast.storage.base import Store
from holdfast.storage.locate import open_store
from holdfast.storage.retry import RetryPolicy
from holdfast.storage.transfer import upload_files
from tests.patience import PATIENCE_S
from tests.runs import commit_to, save_files
from tests.servers.proxy import Answer, DropAnswer, DropRequest, FaultyProxy
from tests.servers.storage import S3Server

pytestmark = pytest.mark.s3

HURRIED = RetryPolicy(wait_first_s=0.001, wait_max_s=0.02, deadline_s=PATIENCE_S)


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(s3_server.url)
    yield proxy
    proxy.stop()


@pytest.fixture
def uri(s3_server: S3Server, proxy: FaultyProxy, new_folder: Callable[[], str]) -> str:
    return s3_server.uri("lab", f"runs/{new_folder()}", endpoint_override=proxy.url)


@pytest.fixture
def store(uri: str) -> Store:
    return open_store(uri, retry=HURRIED)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    large = random.Random(1).randbytes((17 << 20) + 5)
    return save_files(tmp_path / "files", {"large.bin": large, "inner/small": b"small"})


def test_a_run_keeps_its_checkpoints_and_its_journal(store: Store, files: Path) -> None:
    for _ in range(2):
        with open_run(store) as run:
            for step in range(3):
                commit_to(run, files, step=step, metrics={"loss": float("nan")})
            run.retain(Retention(keep=2))
            run.compact()
    result = verify(look(store))

    assert (result.checkpoints, result.files) == (2, 4)
    assert result.damaged == {}
    assert result.litter == []
    assert [kept.directory for kept in look(store).record.usable()] == [
        "checkpoint_000005",
        "checkpoint_000004",
    ]


@pytest.mark.parametrize(
    "fault",
    [Answer(503, "SlowDown"), Answer(500), DropRequest(), DropAnswer()],
    ids=["slow down", "500", "cut uploads", "lost answers"],
)
def test_commits_go_through_a_storm(
    store: Store, proxy: FaultyProxy, files: Path, fault: Answer | DropRequest | DropAnswer
) -> None:
    calls = random.Random(7)
    with open_run(store) as run:
        proxy.plan(fault, times=None, when=lambda request: calls.random() < 0.3)
        for step in range(3):
            commit_to(run, files, step=step)
        proxy.heal()
    result = verify(look(store))

    assert result.checkpoints == 3
    assert result.damaged == {}


def test_a_commit_waits_for_a_server_that_comes_back(
    store: Store, proxy: FaultyProxy, files: Path
) -> None:
    with open_run(store) as run:
        commit_to(run, files, step=1)
        proxy.go_away()
        back = threading.Timer(0.5, proxy.come_back)
        back.start()
        commit_to(run, files, step=2)
        back.join()
        newest = run.newest_good()

    assert newest is not None
    assert newest.step == 2


def test_a_server_that_stays_away_costs_only_the_commit_under_way(
    uri: str, proxy: FaultyProxy, files: Path
) -> None:
    run = open_run(open_store(uri, retry=RetryPolicy(deadline_s=0.2, tries_min=1)), beats=False)
    commit_to(run, files, step=1)
    slot = run.begin_checkpoint(attempt=1)
    part = deliver(run.store, slot, 0, files)
    proxy.go_away()
    with pytest.raises(StoreError):
        run.commit_checkpoint(slot, [part], step=2)
    proxy.come_back()

    newest = run.newest_good()
    assert newest is not None
    assert newest.step == 1
    assert commit_to(run, files, step=3).number == 2
    run.close()


DRIVER = """
import sys
from pathlib import Path
from holdfast.checkpoint.commit import deliver
from holdfast.control.record.open_run import open_run
from holdfast.storage.locate import open_store
run = open_run(open_store(sys.argv[1]))
while True:
    slot = run.begin_checkpoint(attempt=1)
    print("begun", slot.number, flush=True)
    part = deliver(run.store, slot, 0, sys.argv[2])
    run.commit_checkpoint(slot, [part])
    print("acked", slot.number, flush=True)
"""


def test_a_driver_killed_while_it_uploads_loses_nothing_and_leaves_nothing(
    s3_server: S3Server, new_folder: Callable[[], str], files: Path
) -> None:
    location = s3_server.uri("lab", f"runs/{new_folder()}")
    chance, acked, begun = random.Random(3), set[int](), set[int]()
    for _ in range(4):
        command = [sys.executable, "-c", DRIVER, location, str(files)]
        driver = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert driver.stdout is not None
        lives = chance.randint(1, 3)
        for line in driver.stdout:
            verb, number = line.split()
            (acked if verb == "acked" else begun).add(int(number))
            lives -= verb == "begun"
            if not lives:  # in the middle of an upload
                os.kill(driver.pid, signal.SIGKILL)
                break
        acked.update(int(line.split()[1]) for line in driver.stdout if line.startswith("acked"))
        driver.wait()
        driver.stdout.close()

    store = open_store(location)
    with open_run(store) as run:  # at once: the last driver is proven dead
        usable = {kept.number for kept in run.record.usable()}
        sweep(run)
        assert list(store.litter()) == [], "unfinished uploads are aborted"
        assert acked <= usable <= begun
        assert run.record.next_number > max(begun)
    result = verify(look(store))

    assert result.damaged == {}
    assert result.litter == []
    assert result.checkpoints == len(usable)
    # By the files in them: this server lists a folder for a while after its last file has gone.
    folders = {entry.key.partition("/")[0] for entry in store.entries() if entry.key[0] != "."}
    assert folders == {f"checkpoint_{number:06d}" for number in usable}


def test_the_lowest_rank_wins_where_ranks_save_different_files_under_one_name(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sources = {
        rank: save_files(tmp_path / str(rank), {"model.pt": f"of {rank}".encode(), f"{rank}": b"."})
        for rank in range(3)
    }
    with open_run(store) as run:
        slot = run.begin_checkpoint(attempt=1)
        parts = [deliver(store, slot, rank, sources[rank]) for rank in (1, 0, 2)]
        with pytest.raises(Damaged, match="has files of losing ranks"):
            run.commit_checkpoint(slot, parts)
        upload_files(store, sources[0], slot.directory, ["model.pt"])
        manifest = run.commit_checkpoint(slot, parts, world_size=3)

    assert store.get(f"{slot.directory}/model.pt").data == b"of 0"
    assert [entry.path for entry in manifest.files] == ["0", "1", "2", "model.pt"]
    assert "rank 0 and rank 1, 2 saved different contents as 'model.pt'" in caplog.text


def test_a_name_used_again_holds_nothing_of_its_first_use(store: Store, tmp_path: Path) -> None:
    with open_run(store) as run:
        slot = run.begin_checkpoint(attempt=1, directory="best")
        deliver(store, slot, 0, save_files(tmp_path / "1", {"old.bin": b"o", "model.pt": b"1"}))
        slot = run.begin_checkpoint(attempt=2, directory="best")
        part = deliver(store, slot, 0, save_files(tmp_path / "2", {"model.pt": b"2"}))
        manifest = run.commit_checkpoint(slot, [part])
        sweep(run)

    assert manifest.directory == "best-000001"
    assert [entry.key for entry in store.entries("best-000001")] == ["best-000001/model.pt"]
    assert store.get("best-000001/model.pt").data == b"2"
    assert list(store.entries("best")) == []
