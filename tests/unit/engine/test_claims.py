"""Claims: no two processes hold the same resources, and a dead process holds none."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

import pytest

from holdfast.core.study.offers import Claim
from holdfast.engine.claims import ClaimsFolder, claim

ONE = [Claim("n", {"GPU": 1.0}, ("0",))]


def take_if_free(others: list[Claim]) -> Sequence[Claim] | None:
    return None if others else ONE


@pytest.fixture
def folder(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> ClaimsFolder:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return ClaimsFolder()


def test_what_is_claimed_is_free_again_when_it_is_released(folder: ClaimsFolder) -> None:
    first = claim(folder.path, take_if_free)
    assert first is not None and claim(folder.path, take_if_free) is None
    first[1].release()
    first[1].release()

    assert claim(folder.path, take_if_free) is not None


def test_what_a_killed_process_had_claimed_is_free_again(folder: ClaimsFolder) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        held = claim(folder.path, take_if_free)
        os.write(writing, b"y" if held else b"n")
        signal.pause()
        os._exit(1)
    assert os.read(reading, 1) == b"y"
    assert claim(folder.path, take_if_free) is None
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)

    assert claim(folder.path, take_if_free) is not None


def test_folders_of_drivers_that_are_gone_are_removed(folder: ClaimsFolder) -> None:
    child = os.fork()
    if child == 0:
        ClaimsFolder()
        os._exit(0)
    os.waitpid(child, 0)
    root = os.path.dirname(folder.path)
    assert len(_folders(root)) == 2

    third = ClaimsFolder()

    assert _folders(root) == {os.path.basename(folder.path), os.path.basename(third.path)}
    third.close()
    assert _folders(root) == {os.path.basename(folder.path)}


def _folders(root: str) -> set[str]:
    return {name for name in os.listdir(root) if os.path.isdir(os.path.join(root, name))}
