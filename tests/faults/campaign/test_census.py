"""The census itself: what is planted is found, and where nothing is, nothing is found."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.control.record.open_run import open_run
from holdfast.storage.locate import open_store
from tests.faults.campaign import census
from tests.faults.campaign.census import Leftovers
from tests.faults.campaign.conftest import TOY, Campaign
from tests.runs import commit, save_files

WAITS = "import sys; print('here', flush=True); sys.stdin.read()"


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    """One with a run that is over and left nothing."""
    memory = tmp_path / "memory"  # others look at the real one
    memory.mkdir()
    made = Campaign(tmp_path / "campaign", TOY, memory=memory)
    commit(made.run, save_files(tmp_path / "source", {"weights": b"w"}))
    return made


@contextmanager
def marked_process(campaign: Campaign, *handles: int) -> Iterator[int]:
    """Run a process that belongs to the campaign, and holds some files."""
    process = subprocess.Popen(
        [sys.executable, "-c", WAITS],
        env={**os.environ, **campaign.environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=handles,
    )
    assert process.stdout is not None and process.stdout.readline()
    try:
        yield process.pid
    finally:
        process.communicate()


def test_where_nothing_is_left_nothing_is_found(campaign: Campaign) -> None:
    with marked_process(campaign) as pid:
        assert campaign.census.observe() == [pid]

    assert campaign.census.pids == {pid}
    assert campaign.census.leftovers() == Leftovers()
    assert not campaign.census.leftovers()


def test_a_process_that_still_runs_is_found(campaign: Campaign) -> None:
    with marked_process(campaign) as pid:
        left = campaign.census.leftovers()

    assert [one.partition(":")[0] for one in left.processes] == [str(pid)]
    assert left


def test_a_socket_that_outlives_its_process_is_found(campaign: Campaign) -> None:
    ours, theirs = socket.socketpair()
    listening = socket.create_server(("127.0.0.1", 0))
    with ours, theirs, listening:
        with marked_process(campaign, theirs.fileno(), listening.fileno()):
            campaign.census.observe()

        assert len(campaign.census.leftovers().sockets) == 2
    assert campaign.census.leftovers().sockets == []


def test_a_socket_bound_to_a_path_of_ours_is_found(campaign: Campaign) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(campaign.temporary / "s"))

        assert len(campaign.census.leftovers().sockets) == 1


def test_shared_memory_that_nobody_uses_is_found(
    campaign: Campaign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(census, "OTHERS_TAKE_S", 0.1)
    (tmp_path / "memory" / "forgotten").touch()

    assert campaign.census.leftovers().shared_memory == ["forgotten"]


def test_shared_memory_that_was_ours_is_found_even_if_somebody_uses_it(
    campaign: Campaign, tmp_path: Path
) -> None:
    with (tmp_path / "memory" / "used").open("wb") as used:
        assert campaign.census.leftovers().shared_memory == []
        with marked_process(campaign, used.fileno()):
            campaign.census.observe()

        assert campaign.census.leftovers().shared_memory == ["used"]


PLANTED: dict[str, Callable[[Campaign], object]] = {
    "a temporary file": lambda one: (one.temporary / "f").touch(),
    "a temporary folder": lambda one: (one.temporary / "f").mkdir(),
    "a file where the command was given": lambda one: (one.here / "core").touch(),
}


@pytest.mark.parametrize("what", PLANTED)
def test_a_file_outside_the_run_is_found(campaign: Campaign, what: str) -> None:
    PLANTED[what](campaign)

    assert len(campaign.census.leftovers().temporary_files) == 1


IN_RUN: dict[str, Callable[[Path], object]] = {
    "a file of nobody's": lambda run: (run / "f").touch(),
    "a file in a checkpoint": lambda run: (run / "checkpoint_000000" / "f").touch(),
    "a write that never finished": lambda run: (run / ".holdfast" / ".run.json.tmp").touch(),
    "a staged folder": lambda run: (run / ".holdfast" / "staging" / "000001-0").mkdir(parents=True),
    "a folder without a manifest": lambda run: (run / "checkpoint_000007").mkdir(),
    "a pipe": lambda run: os.mkfifo(run / "logs"),
    "damage": lambda run: (run / "checkpoint_000000" / "weights").write_bytes(b"x"),
}


@pytest.mark.parametrize("what", IN_RUN)
def test_what_does_not_belong_into_the_run_is_found(campaign: Campaign, what: str) -> None:
    IN_RUN[what](campaign.run)

    assert campaign.census.leftovers().in_run != []


def test_a_lease_that_was_not_given_back_is_found(campaign: Campaign) -> None:
    with open_run(open_store(campaign.run)):
        assert len(campaign.census.leftovers().leases) == 1

    assert campaign.census.leftovers().leases == []
