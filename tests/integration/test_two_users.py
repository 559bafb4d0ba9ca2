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
