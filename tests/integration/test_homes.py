"""Users whose home is missing, read-only or `/`, as in containers: runs go on, or say why not."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.another_user import ALICE, needs_root, run_as
from tests.servers.storage import S3Server

SCRIPT = """
import os, sys
from holdfast import train
os.chdir(sys.argv[1])
config = {"storage_path": sys.argv[2]} if len(sys.argv) > 2 else {}
result = train.DataParallelTrainer(
    lambda: [print("hello from a worker"), train.report({"done": 1})],
    run_config=train.RunConfig(name="run", **config)).fit()
print("done", result.metrics["done"])
"""


@pytest.fixture
def folder() -> Iterator[str]:
    """A folder of Alice's, with one for temporary files in it."""
    needs_root()
    path = tempfile.mkdtemp(dir="/tmp")
    for inner in ("tmp", "home", "cwd"):
        os.mkdir(f"{path}/{inner}")
        os.chown(f"{path}/{inner}", ALICE, ALICE)
    os.chmod(path, 0o755)
    yield path
    shutil.rmtree(path)


HOMES: dict[str, Callable[[str], str | None]] = {
    "unset": lambda folder: None,
    "root": lambda folder: "/",
    "read-only": lambda folder: f"{folder}/home",
}


@pytest.mark.s3
@pytest.mark.parametrize("home", HOMES)
def test_a_run_on_an_object_store_needs_no_home(
    home: str, folder: str, s3_server: S3Server, new_folder: Callable[[], str]
) -> None:
    where = s3_server.uri("lab", f"homes/{new_folder()}")
    env = {"HOME": HOMES[home](folder), "TMPDIR": f"{folder}/tmp", "XDG_CACHE_HOME": None}
    view = {"read_only": f"{folder}/home"} if home == "read-only" else {}

    ran = run_as(ALICE, "-c", SCRIPT, f"{folder}/cwd", where, env=env, **view)

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "done 1"
    assert "hello from a worker" in ran.stderr
    (log,) = Path(folder, "tmp", f"holdfast-{ALICE}", "logs").rglob("rank-0.log")
    assert "hello from a worker" in log.read_text()
    assert os.listdir(f"{folder}/cwd") == []


@pytest.mark.parametrize(
    ("home", "message", "hint"),
    [
        ("unset", "which is unknown: HOME is not set", "set HOME, or name a folder"),
        ("root", "cannot reach /ray_results/run: Permission denied", "check who owns the folder"),
        (
            "read-only",
            "cannot reach .*/ray_results/run: Read-only file system",
            "check who owns",
        ),
    ],
)
def test_without_a_home_the_usual_storage_path_is_refused(
    home: str, message: str, hint: str, folder: str
) -> None:
    env = {"HOME": HOMES[home](folder), "TMPDIR": f"{folder}/tmp"}
    view = {"read_only": f"{folder}/home"} if home == "read-only" else {}

    ran = run_as(ALICE, "-c", SCRIPT, f"{folder}/cwd", env=env, **view)

    assert ran.returncode != 0
    *_, last, tried = ran.stderr.splitlines()
    assert re.search(message, last), ran.stderr
    assert f"Try: {hint}" in tried
    assert os.listdir(f"{folder}/cwd") == []


# The folder for logs is closed after it was found fit, as a quota or an administrator may do.
CANNOT_START = """
import os, sys
from holdfast import train
from holdfast.control.host import log_folders

made = log_folders._make_configured
def made_and_closed(said, run_id):
    path = made(said, run_id)
    os.chmod(path, 0o500)
    return path

log_folders._make_configured = made_and_closed
train.DataParallelTrainer(
    lambda: None, run_config=train.RunConfig(name="run", storage_path=sys.argv[1])).fit()
"""


@pytest.mark.s3
def test_a_run_whose_workers_can_never_start_ends_with_the_reason(
    folder: str, s3_server: S3Server, new_folder: Callable[[], str]
) -> None:
    where = s3_server.uri("lab", f"homes/{new_folder()}")
    env = {"TMPDIR": f"{folder}/tmp", "HOLDFAST_LOG_DIR": f"{folder}/home"}

    ran = run_as(ALICE, "-c", CANNOT_START, where, env=env)

    assert ran.returncode == 1, ran.stderr
    assert "the workers could not be started in 6 attempts" in ran.stderr, ran.stderr
    assert "nothing of it has ever run" in ran.stderr
    assert "the log of rank 0 cannot be written to" in ran.stderr
    assert "Permission denied" in ran.stderr
