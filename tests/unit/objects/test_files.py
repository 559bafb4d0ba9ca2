"""Objects in temporary files, on systems without anonymous ones."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import holdfast
from holdfast.objects import ObjectLost


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"holdfast-{os.getuid()}" / "objects"


def test_an_object_lies_in_a_file_that_goes_with_the_last_reference(folder: Path) -> None:
    ref = holdfast.put({"x": np.arange(1000)})
    sent = pickle.dumps(ref)
    files = list(folder.iterdir())
    array = holdfast.get(ref)["x"]

    del ref

    assert len(files) == 1
    assert list(folder.iterdir()) == []
    assert array.sum() == 499_500
    with pytest.raises(ObjectLost, match="was freed"):
        holdfast.get(pickle.loads(sent))


def test_only_this_user_can_read_the_file(folder: Path) -> None:
    ref = holdfast.put("secret")

    assert folder.stat().st_mode & 0o077 == 0
    assert [path.stat().st_mode & 0o777 for path in folder.iterdir()] == [0o400]
    assert holdfast.get(ref) == "secret"


def test_what_an_owner_that_is_gone_has_left_is_removed_by_the_next(folder: Path) -> None:
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    folder.mkdir(mode=0o700, parents=True)
    (folder / f"{int(gone.stdout)}-abc").write_bytes(b"left")
    (folder / f"{os.getpid()}-def").write_bytes(b"in use")
    (folder / "something else").write_bytes(b"")

    ref = holdfast.put(1)

    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [f"{os.getpid()}-{ref.id}", f"{os.getpid()}-def", "something else"]
    )
