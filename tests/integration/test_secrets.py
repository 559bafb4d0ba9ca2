"""A secret in a storage path reaches no record, no log, no message and no `repr`.

Every way to begin a run or a study, as a user's script would: a trial or worker fails, an error is
printed, everything is shown. Then all that is left behind, on storage and on the machine, and all
that was printed is searched.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli import cli
from holdfast.storage.locate import open_store
from tests.servers.storage import SECRET_KEY, S3Server

pytestmark = pytest.mark.s3

BEGIN = """
import os, sys, tempfile, traceback, warnings
import holdfast
from holdfast import Checkpoint, air, train, tune

where = sys.argv[1]
place, _, query = where.partition("?")
warnings.simplefilter("default")

def below(name):
    return f"{place}/{name}?{query}"

from holdfast.train import DataParallelTrainer

def save(step):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "step"), "w") as file:
            file.write(str(step))
        train.report({"step": step}, checkpoint=Checkpoint.from_directory(folder))

def function(config):
    checkpoint = train.get_checkpoint()
    print("has", checkpoint, train.get_context().get_trial_dir() if "x" in config else "")
    save(1)
    if checkpoint is None:
        raise ValueError("once")
    save(2)

def show(*values):
    for value in values:
        print(repr(value), str(value))

def attempt(call):
    try:
        show(call())
    except Exception:
        traceback.print_exc()
"""

WAYS = {
    "train": """
config = train.RunConfig(
    name="run", storage_path=where, failure_config=train.FailureConfig(max_failures=2))
result = DataParallelTrainer(function, train_loop_config={}, run_config=config).fit()
held = {"start": result.checkpoint, "set": {1, 2}, "other": Checkpoint(below("other"))}
def holds(config):  # a closure, and a config, that have no other form than a pickle
    with (config or held)["start"].as_directory() as folder:
        print("holds", os.listdir(folder), held["other"], train.get_checkpoint())
for name, given in (("pickled", held), ("closure", None)):
    again = train.RunConfig(name=name, storage_path=where)
    DataParallelTrainer(holds, train_loop_config=given, run_config=again,
                        resume_from_checkpoint=result.checkpoint).fit()
    DataParallelTrainer.restore(below(name)).fit()
show(config, result, result.checkpoint, result.filesystem, result.best_checkpoints)
attempt(lambda: DataParallelTrainer.restore(below("run")).fit())
attempt(lambda: DataParallelTrainer.restore(below("nothing")))
attempt(lambda: DataParallelTrainer.can_restore(below("nothing")))
attempt(lambda: train.Result.from_path(below("nothing")))
attempt(lambda: train.Result.from_path(below("run")))
""",
    "tune": """
config = tune.RunConfig(
    name="study", storage_path=where, failure_config=tune.FailureConfig(max_failures=2))
space = {"x": tune.grid_search([1, 2]), "start": Checkpoint(below("other"))}
tuner = tune.Tuner(function, param_space=space, run_config=config)
results = tuner.fit()
show(config, tuner, results, results.get_dataframe(), results[0].checkpoint, results.filesystem)
attempt(lambda: tune.Tuner.restore(below("study"), function).fit())
attempt(lambda: tune.Tuner.restore(below("nothing"), function).fit())
attempt(lambda: tune.Tuner.can_restore(below("nothing")))
attempt(lambda: tune.ExperimentAnalysis(below("nothing")))
attempt(lambda: tune.ExperimentAnalysis(below("study")).trials)
attempt(lambda: tune.Result.from_path(below("study")))
attempt(lambda: tune.Tuner(
    function, param_space={"x": 1}, run_config=tune.RunConfig(name="study", storage_path=where)
).fit())
""",
    "air": """
config = air.RunConfig(
    name="study", sync_config=tune.SyncConfig(upload_dir=where),
    failure_config=air.FailureConfig(max_failures=2))
tuner = tune.Tuner(function, param_space={"x": 1}, run_config=config)
show(config, tuner, tuner.fit())
attempt(lambda: tune.Tuner.restore(below("study"), function).fit())
""",
    "tune.run": """
analysis = tune.run(function, config={"x": 1}, name="study", upload_dir=where, max_failures=2)
show(analysis, analysis.trials, analysis.best_config if analysis.default_metric else None)
start = analysis.trials[0].checkpoint
folder = f"study/{analysis.trials[0].folder}/{start.path.rpartition('/')[2]}"
for given in (below(folder), start):
    name = f"from-{type(given).__name__}"
    analysis = tune.run(function, config={"x": 1}, name=name, storage_path=where, restore=given)
    assert analysis.trials[0].last_result["step"] == 2, "it has begun with the checkpoint"
    show(analysis, analysis.trials)
    again = tune.run(function, config={"x": 1}, name=name, storage_path=where, restore=given,
                     resume=True)
    show(again)
    again = tune.run(function, config={"x": 1}, name=name, storage_path=where, resume=True,
                     restore=below("other"))
    attempt(lambda: tune.Tuner.restore(below(name), function).fit())
attempt(lambda: tune.run(function, config={"x": 1}, name="other", storage_path=where,
                         restore=below("nothing"), max_failures=0))
""",
    "bad input": """
show(Checkpoint(below("x")))
attempt(lambda: Checkpoint(below("x")).to_directory())
attempt(lambda: Checkpoint(below("x")).filesystem)
secret = query.partition("secret_key=")[2].partition("&")[0]
broken = [
    where.replace("s3://", "s3:/"), where.replace("s3://", "s3:"), where + "&regoin=here",
    where + "&anonymous=perhaps", where.replace("s3://", "ftp://"), where + chr(0),
    f"s3://holdfast:{secret}/more@lab/x", f"s3://holdfast:{secret}", f"s3:holdfast:{secret}@lab/x",
    f"s3://lab/x?secret_key={secret}", f"s3://holdfast:{secret}?more@lab/x",
    f"s3://lab/x?endpoint_override=http://user:{secret}@127.0.0.1:1",
    f"abfs://user:{secret}@lab/x", f"hdfs://user:{secret}@host/x", f"s3://?secret_key={secret}",
]
for path in broken:
    show(Checkpoint(path))
    attempt(lambda: train.RunConfig(name="run", storage_path=path))
    attempt(lambda: Checkpoint(path).filesystem)
    attempt(lambda: Checkpoint(path).to_directory())
    attempt(lambda: DataParallelTrainer.can_restore(path))
    attempt(lambda: DataParallelTrainer.restore(path))
    attempt(lambda: tune.Tuner.can_restore(path))
    attempt(lambda: tune.Tuner.restore(path, function))
    attempt(lambda: train.Result.from_path(path))
    attempt(lambda: tune.Result.from_path(path))
    attempt(lambda: air.RunConfig(sync_config=tune.SyncConfig(upload_dir=path)))
    attempt(lambda: tune.SyncConfig(upload_dir=[path], sync_period="x"))
    attempt(lambda: holdfast.data.read_parquet(path))
""",
}


def left_on_this_machine(folder: Path) -> list[str]:
    return [
        str(path)
        for path in folder.rglob("*")
        if path.is_file() and SECRET_KEY.encode() in path.read_bytes()
    ]


def left_on_storage(where: str) -> list[str]:
    store = open_store(where)
    keys = [entry.key for entry in store.entries()]
    return [key for key in keys if SECRET_KEY.encode() in store.get(key).data]


@pytest.mark.parametrize("way", WAYS)
def test_a_secret_in_a_storage_path_stays_there(
    way: str, s3_server: S3Server, new_folder: Callable[[], str], tmp_path: Path
) -> None:
    where = s3_server.uri("lab", f"secrets/{new_folder()}")
    assert SECRET_KEY in where
    script = tmp_path / "elsewhere" / "script.py"
    script.parent.mkdir()
    script.write_text(BEGIN + WAYS[way])
    machine = tmp_path / "machine"
    (machine / "tmp").mkdir(parents=True)
    env = {**os.environ, "HOME": str(machine), "TMPDIR": str(machine / "tmp")}

    ran = subprocess.run(
        [sys.executable, str(script), where],
        env=env, cwd=machine, capture_output=True, text=True, check=False,
    )  # fmt: skip
    printed = ran.stdout + ran.stderr
    place, _, query = where.partition("?")
    for command in ("ls", "show", "logs", "verify"):
        for name in ("run", "study", "nothing"):
            said = CliRunner(env=env).invoke(cli, [command, f"{place}/{name}?{query}"])
            printed += f"{said.output} {said.exception}"

    assert ran.returncode == 0, printed
    assert "Traceback" in printed, "nothing has failed, which is half of what is looked at"
    assert [line for line in printed.splitlines() if SECRET_KEY in line] == []
    assert left_on_storage(where) == []
    assert left_on_this_machine(machine) == []
