"""Drivers and what they have started: nothing outlives its driver, but it may take a moment."""

from __future__ import annotations

import subprocess

import psutil

from tests.patience import PATIENCE_S


def end_family(driver: subprocess.Popen[str], number: int) -> tuple[str, str]:
    """Signal a driver; return what it has said, once all that it had started is gone as well."""
    family = psutil.Process(driver.pid).children(recursive=True)
    driver.send_signal(number)
    said = driver.communicate()
    _, alive = psutil.wait_procs(family, timeout=PATIENCE_S)
    assert not alive, f"outlives its driver: {alive}"
    return said
