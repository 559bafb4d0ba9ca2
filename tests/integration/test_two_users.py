"""Two users of one machine share a folder for temporary files, and one of them is an enemy."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.another_user import ALICE, MALLORY, ROOT, command_as, environment, needs_root, run_as

# Alice fetches a checkpoint, and has one that waits to be uploaded; then she reads both.
ALICES = """
import json, os, sys
from pathlib import Path
from holdfast.checkpoint.fetch import fetch_once
from holdfast.storage.memory import MemoryStore
from holdfast.worker.spool import Spool

os.umask(int(sys.argv[1], 8))
def fill(folder):
    Path(folder, "weights").write_text("alice's")
copy = fetch_once("copy", fill, ())
spool = Spool(MemoryStore(), "run", 1, 0)
waiting = spool.new(1)
fill(waiting)
print(json.dumps([str(copy), waiting]), flush=True)
sys.stdin.readline()
print(json.dumps([Path(folder, "weights").read_text() for folder in (copy, waiting)]), flush=True)
"""

# Mallory looks into every folder above, puts a folder of her own in its place, and writes into it.
MALLORYS = """
import json, os, sys
shared, *paths = sys.argv[1:]
done = []
for path in paths:
    part = path
    while part != shared:
        try:
            done.append(["listed", part, os.listdir(part)])
        except OSError:
            pass
        try:
            os.rename(part, part + "-aside")
            os.makedirs(path)
            done.append(["replaced", part])
        except OSError:
            pass
        try:
            with open(os.path.join(path, "weights"), "w") as file:
                file.write("mallory's")
            done.append(["wrote", path])
        except OSError:
            pass
        part = os.path.dirname(part)
print(json.dumps(done))
"""

PLANTED = {
    "nothing": "pass",
    "a folder": "os.mkdir(usual); os.chmod(usual, 0o777)",
    "a folder with all in it": "\n".join(
        f"os.makedirs(usual + '{inner}'); os.chmod(usual + '{inner}', 0o777)"
        for inner in ("", "/checkpoints", "/spool")
    ),
    "a link to a folder of hers": "os.mkdir(usual + '-aim'); os.chmod(usual + '-aim', 0o777);"
    " os.symlink(usual + '-aim', usual)",
    "a link to a folder of alice's": "os.symlink(os.path.join(shared, 'of-alice'), usual)",
    "a file": "open(usual, 'w').close()",
}


@pytest.fixture
def shared() -> Iterator[str]:
    """A folder as /tmp is; below /tmp, because nobody else may enter pytest's own."""
    needs_root()
    folder = tempfile.mkdtemp(dir="/tmp")
    os.chmod(folder, 0o1777)
    inner = Path(folder, "of-alice")
    inner.mkdir(mode=0o700)
    os.chown(inner, ALICE, ALICE)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("planted", "umask"), [("nothing", "000"), *((planted, "022") for planted in PLANTED)]
)
def test_an_enemy_neither_sees_nor_changes_what_is_in_the_shared_folder(
    planted: str, umask: str, shared: str
) -> None:
    usual = os.path.join(shared, f"holdfast-{ALICE}")
    before = run_as(
        MALLORY, "-c", f"import os\nos.umask(0)\nusual, shared = {usual!r}, {shared!r}\n"
        + PLANTED[planted],
    )  # fmt: skip
    assert before.returncode == 0, before.stderr
    with subprocess.Popen(
        command_as(ALICE, "-c", ALICES, umask),
        env=environment({"TMPDIR": shared}),
        cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as alice:  # fmt: skip
        assert alice.stdin is not None and alice.stdout is not None
        paths = json.loads(alice.stdout.readline())
        attack = run_as(MALLORY, "-c", MALLORYS, shared, *paths)
        alice.stdin.write("\n")
        alice.stdin.flush()
        contents = json.loads(alice.stdout.readline())

    assert attack.returncode == 0, attack.stderr
    assert json.loads(attack.stdout) == []
    assert contents == ["alice's", "alice's"]


STUDY = """
import sys
from holdfast import train, tune
train.DataParallelTrainer(
    lambda config: train.report({"loss": 1}), train_loop_config={"token": "hush"},
    run_config=train.RunConfig(name="run", storage_path=sys.argv[1])).fit()
tune.Tuner(
    lambda config: tune.report({"loss": 1}), param_space={"x": 1},
    run_config=tune.RunConfig(name="study", storage_path=sys.argv[1])).fit()
"""


def test_others_look_at_a_run_and_a_study_and_not_at_what_may_hold_secrets(shared: str) -> None:
    home = os.path.join(shared, "of-alice")
    os.chmod(home, 0o755)
    env = {"TMPDIR": shared, "HOME": home}
    ran = run_as(ALICE, "-c", STUDY, home, env=env)
    assert ran.returncode == 0, ran.stderr

    for name in ("run", "study"):
        for command in ("show", "verify", "ls"):
            path = f"{home}/{name}" if command != "ls" else home
            looked = run_as(MALLORY, "-m", "holdfast.cli", command, path, env=env)
            assert looked.returncode == 0, f"{command} {name}: {looked.stdout}{looked.stderr}"
            assert "hush" not in looked.stdout
    closed = {
        os.path.relpath(path, home)
        for path in Path(home).rglob("*")
        if path.is_file() and not path.stat().st_mode & 0o044
    }
    (pickled,) = (Path(path).name for path in closed if path.endswith(".pkl"))
    assert closed == {
        "run/.holdfast/trainer.json",
        f"run/.holdfast/pickled/{pickled}",
        "study/.holdfast/study.json",
    }
