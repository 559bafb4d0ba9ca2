"""Metric rows of drivers that are killed, or just end; and on a real object store."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.control.metrics import writer as metric_rows
from holdfast.control.metrics.reader import read_metric_rows
from holdfast.control.metrics.writer import MetricRows
from holdfast.control.record.open_run import open_run
from holdfast.storage.locate import open_store
from holdfast.train import Result
from tests.metric_rows import segments
from tests.patience import PATIENCE_S
from tests.runs import commit_to, save_files
from tests.servers.storage import S3Server

_DRIVER = """
import sys
from holdfast.control.metrics.writer import MetricRows
from holdfast.storage.locate import open_store

rows = MetricRows(open_store(sys.argv[1]), 1)
for step in range(1, 1001):
    rows.append(step, 1, {"step": step}, 0.0)
assert rows.flush(10)
print("written", flush=True)
step = 1000
while True:
    step += 1
    rows.append(step, 1, {"step": step}, 0.0)
    if step % 1000 == 0:
        rows.flush(10)
        print("more", flush=True)
"""


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", _DRIVER, str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def test_what_was_written_survives_a_kill_of_the_driver(
    driver: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert driver.stdout is not None
    lines = [driver.stdout.readline() for _ in range(4)]
    driver.send_signal(signal.SIGKILL)
    driver.wait()

    history = read_metric_rows(open_store(tmp_path / "run"))
    assert lines == ["written\n", "more\n", "more\n", "more\n"]
    assert len(history.rows) >= 4000
    assert [row.step for row in history.rows] == list(range(1, len(history.rows) + 1))
    assert history.damages == []


def test_rows_that_wait_do_not_hold_the_interpreter_at_its_end(tmp_path: Path) -> None:
    code = (
        "import sys, threading\n"
        "from holdfast.control.metrics.writer import MetricRows\n"
        "from holdfast.storage.memory import MemoryStore\n"
        "class Stuck(MemoryStore):\n"
        "    def put(self, *_):\n"
        "        print('stuck', flush=True)\n"
        "        threading.Event().wait()\n"
        "rows = MetricRows(Stuck(), 1)\n"
        "rows.append(1, 1, {}, 0.0)\n"
        "rows.flush(1)\n"
    )
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "stuck\n", "")


@pytest.mark.s3
def test_a_run_on_s3_keeps_its_history_and_can_be_opened_from_its_uri(
    s3_server: S3Server,
    new_folder: Callable[[], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metric_rows, "OBJECT_BYTES", 1000)
    uri = s3_server.uri("lab", f"runs/{new_folder()}")
    files = save_files(tmp_path / "files", {"model.pt": b"weights"})
    for attempt, after in ((1, 0), (2, 10)):
        with open_run(open_store(uri), name="far") as run:
            rows = MetricRows(run.store, run.lease.epoch)
            rows.begin(attempt, after)
            for step in range(after + 1, after + 21):
                rows.append(step, attempt, {"step": step, "attempt": attempt}, 0.0)
                assert rows.flush(PATIENCE_S)
            commit_to(run, files, step=after + 10, metrics={})
            rows.close()

    found = Result.from_path(uri)

    table = found.metrics_dataframe
    assert len(segments(open_store(uri))) > 4
    assert found.name == "far"
    assert found.metrics == {"step": 30, "attempt": 2}
    assert list(table["step"]) == list(range(1, 31))
    assert list(table["attempt"]) == [1] * 10 + [2] * 20
