"""Four workers of one machine load one checkpoint from an S3 server."""

from __future__ import annotations

import base64
import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import train
from holdfast.checkpoint import Checkpoint
from holdfast.checkpoint.fetch import sweep_unused
from tests.integration.train.loops import folder_with, note, read_notes
from tests.runs import commit, save_files
from tests.servers.storage import S3Server

WORKER = """
import base64, json, os, pickle, sys
from pathlib import Path
import holdfast.checkpoint.checkpoint as module
from holdfast.checkpoint.fetch import keep_idle_copies
keep_idle_copies()
download = module.download_tree
def counted(*arguments, **named):
    with open(sys.argv[2], "a") as log:
        log.write("download\\n")
    return download(*arguments, **named)
module.download_tree = counted
checkpoint = pickle.loads(base64.b64decode(sys.argv[1]))
with checkpoint.as_directory() as folder:
    found = {p.name: p.read_text() for p in Path(folder).rglob("*.txt")}
print(json.dumps([folder, found]), flush=True)
sys.stdin.read()
"""


@pytest.mark.s3
@pytest.mark.req("T-055", "T-056", "T-057", "T-058", "T-059")
def test_every_worker_gets_the_newest_checkpoint_from_one_download(
    s3_server: S3Server, new_folder: Callable[[], str], tmp_path: Path
) -> None:
    location = s3_server.uri("lab", f"runs/{new_folder()}")
    manifests = []
    for epoch in ("first", "second"):
        files = {f"shard-{rank}.txt": f"{epoch} {rank}".encode() for rank in range(3)}
        manifests.append(commit(location, save_files(tmp_path / epoch, files)))
    base, _, query = location.partition("?")
    checkpoint = Checkpoint(f"{base}/{manifests[-1].directory}?{query}")
    sent = base64.b64encode(pickle.dumps(checkpoint)).decode()
    environment = {**os.environ, "TMPDIR": str(tmp_path)}

    workers: list[subprocess.Popen[str]] = []
    results = []
    for batch in (2, 2):  # two at once, then two more when the first are done
        started = [
            subprocess.Popen(
                [sys.executable, "-c", WORKER, sent, str(tmp_path / "log")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
            for _ in range(batch)
        ]
        workers += started
        for worker in started:
            assert worker.stdout is not None
            results.append(json.loads(worker.stdout.readline()))
    for worker in workers:
        worker.communicate()

    assert {folder for folder, _ in results} == {results[0][0]}
    expected = {f"shard-{rank}.txt": f"second {rank}" for rank in range(3)}
    assert all(found == expected for _, found in results)
    assert (tmp_path / "log").read_text() == "download\n"
    assert not Path(results[0][0]).exists(), "the last worker to end removes the copy"


@pytest.mark.s3
def test_workers_that_start_again_find_the_copy_of_those_that_died(
    s3_server: S3Server, new_folder: Callable[[], str], tmp_path: Path
) -> None:
    notes = tmp_path / "notes"

    def loop() -> None:
        before = train.get_checkpoint()
        sweep_unused()  # as other processes do that fetch something at that moment
        if before is None:
            with folder_with({"state": "1"}) as folder:
                train.report({}, Checkpoint.from_directory(folder))
        else:
            with before.as_directory() as folder:
                Path(folder, f"mark-{train.get_context().get_attempt()}").touch()
                note(notes, what="copy", folder=folder, marks=sorted(os.listdir(folder)))
        if train.get_context().get_attempt() < 4:
            os.kill(os.getpid(), signal.SIGKILL)

    train.DataParallelTrainer(
        loop,
        run_config=train.RunConfig(
            name="run",
            storage_path=s3_server.uri("lab", f"runs/{new_folder()}"),
            failure_config=train.FailureConfig(max_failures=3, backoff_max_s=0.0),
        ),
    ).fit()

    copies = read_notes(notes, "copy")
    assert [fact["marks"] for fact in copies] == [
        ["mark-2", "state"],
        ["mark-2", "mark-3", "state"],
        ["mark-2", "mark-3", "mark-4", "state"],
    ]
    assert not Path(copies[0]["folder"]).exists(), "the run is over"
