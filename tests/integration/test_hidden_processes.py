"""Where `/proc` hides the processes of others (hidepid), runs go on as elsewhere."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from tests.another_user import ALICE, needs_root, run_as

# The first attempt loses its zygote, after which the driver looks through all processes for its
# workers; the second a worker.
SCRIPT = """
import os, signal, sys
from holdfast import train
from holdfast.train import DataParallelTrainer, FailureConfig, RunConfig, ScalingConfig

assert not os.access("/proc/1/stat", os.R_OK), "nothing is hidden"

def function(config):
    attempt = train.get_context().get_world_rank() == 0 and len(os.listdir(config["log"]))
    if attempt is not False and attempt < 2:
        open(os.path.join(config["log"], str(attempt)), "w").close()
        os.kill(os.getppid() if attempt == 0 else os.getpid(), signal.SIGKILL)
        signal.pause()
    train.report({"done": 1})

log = os.path.join(sys.argv[1], "log")
os.mkdir(log)
result = DataParallelTrainer(
    function,
    train_loop_config={"log": log},
    scaling_config=ScalingConfig(num_workers=2),
    run_config=RunConfig(
        name="run", storage_path=sys.argv[1], failure_config=FailureConfig(max_failures=5)
    ),
).fit()
print("done", result.metrics["done"], len(os.listdir(log)))
"""


@pytest.fixture
def home() -> Iterator[str]:
    needs_root()
    folder = tempfile.mkdtemp(dir="/tmp")
    os.chown(folder, ALICE, ALICE)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("hidepid", [1, 2])
def test_a_run_survives_its_losses_where_processes_are_hidden(hidepid: int, home: str) -> None:
    env = {"HOME": home, "TMPDIR": home}
    ended = run_as(ALICE, "-c", SCRIPT, home, env=env, hidepid=hidepid)

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == "done 1 2", ended.stderr


LOOK = """
import os
from holdfast.engine import processes
print(processes.facts(1).is_running, 1 in processes.belong_to({1}, "X=1"))
print(processes.facts(os.getpid()).state, processes.facts(2 ** 22 + 1).state)
print(os.getpid() in processes.belong_to({os.getsid(0)}, "X=1"))
"""


@pytest.mark.parametrize("hidepid", [1, 2])
def test_a_hidden_process_runs_and_is_nobody_of_ours(hidepid: int) -> None:
    needs_root()
    looked = run_as(ALICE, "-c", LOOK, hidepid=hidepid)

    assert looked.stdout.splitlines() == ["True False", "R ", "True"], looked.stderr
