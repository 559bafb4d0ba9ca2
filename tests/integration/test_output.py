"""A driver that shows its workers' output, and ends while nobody reads it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE_S

_DRIVER = """
import sys, threading
from holdfast.control.host.worker_output import Echo
from holdfast.engine.log_files import LogFile

with open(sys.argv[1], "w") as log:
    log.writelines(f"line {number} of many\\n" for number in range(5_000))
echo = Echo(sys.stdout, lines_max=10**6)
echo.watch(1, {0: LogFile(sys.argv[1])})
echo.stop(timeout_s=2)
assert any(one.name == "holdfast-output-1" for one in threading.enumerate()), "it did not block"
"""


def test_output_that_nobody_reads_does_not_hold_the_interpreter_at_its_end(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _DRIVER, str(tmp_path / "rank-0.log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as driver:
        code = driver.wait(PATIENCE_S)
        assert driver.stderr is not None
        said = driver.stderr.read().decode()

    assert (code, said) == (0, "")
