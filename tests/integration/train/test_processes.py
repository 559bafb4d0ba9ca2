"""Workers as processes: what they can import, what they start, and what they bring home."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import train
from holdfast.control.record.open_run import OpenRun
from tests.integration.train.conftest import Lab
from tests.integration.train.loops import die, is_running, note, read_notes, wait_for


def run_script(folder: Path, source: str, cwd: str = "/") -> str:
    """Run a script from a folder that is not where it lies, and return what it printed."""
    script = folder / "script.py"
    script.write_text(source)
    done = subprocess.run(
        [sys.executable, str(script), str(folder / "storage")],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


FIT = """
import sys
from holdfast.train import DataParallelTrainer, RunConfig, WorkerGroupError
def fit(loop):
    return DataParallelTrainer(loop, run_config=RunConfig(storage_path=sys.argv[1])).fit()
"""


def test_a_function_may_come_from_a_module_beside_the_script(tmp_path: Path) -> None:
    (tmp_path / "mymodel.py").write_text("def loop(): return 'from beside the script'")

    printed = run_script(
        tmp_path, f"{FIT}\nfrom mymodel import loop\nprint(fit(loop).return_value)"
    )

    assert printed == "from beside the script\n"


def test_a_file_where_the_command_is_given_does_not_pass_for_a_module(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "random.py").write_text("raise RuntimeError('not Python\\'s')")

    printed = run_script(tmp_path, f"{FIT}\nprint(fit(lambda: 'fine').return_value)", cwd=str(here))

    assert printed == "fine\n"


def test_objects_of_classes_in_the_script_come_home_as_themselves(tmp_path: Path) -> None:
    source = f"""{FIT}
class Score(float): pass
class Diverged(Exception): pass
def returns(): return Score(0.5)
def raises(): raise Diverged("at step 3")
print(type(fit(returns).return_value) is Score)
try:
    fit(raises)
except WorkerGroupError as error:
    print(type(error.worker_failures[0]) is Diverged, error.worker_failures[0])
"""

    assert run_script(tmp_path, source) == "True\nTrue at step 3\n"


def pause() -> None:
    signal.pause()


def test_a_function_can_end_the_processes_it_started(lab: Lab) -> None:
    def loop() -> int | None:
        child = multiprocessing.get_context("fork").Process(target=pause)
        child.start()
        child.terminate()
        child.join()
        return child.exitcode

    assert lab.fit(loop).return_value == -signal.SIGTERM


@pytest.mark.parametrize("ending", ["return", "SIGKILL"])
@pytest.mark.parametrize("is_detached", [False, True], ids=["child", "daemon"])
def test_what_a_worker_started_goes_with_it(lab: Lab, ending: str, is_detached: bool) -> None:
    """A daemon has a session of its own, so no signal to the worker's group reaches it."""
    notes = lab.notes

    def loop() -> None:
        child = subprocess.Popen(
            [sys.executable, "-c", "import signal; signal.pause()"], start_new_session=is_detached
        )
        note(notes, what="child", pid=child.pid)
        child.returncode = 0  # it is left alone on purpose
        if ending != "return":
            die(ending)

    if ending == "return":
        lab.fit(loop)
    else:
        with pytest.raises(train.WorkerGroupError):
            lab.fit(loop)

    [child] = lab.noted("child")
    assert not is_running(child["pid"])


def test_a_daemon_of_a_lost_attempt_is_gone_when_the_next_one_begins(lab: Lab) -> None:
    notes = lab.notes

    def loop() -> bool:
        if before := read_notes(notes, "daemon"):
            return is_running(before[0]["pid"])
        daemon = subprocess.Popen(
            [sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True
        )
        note(notes, what="daemon", pid=daemon.pid)
        die("SIGKILL")
        return True

    assert lab.fit(loop, max_failures=1).return_value is False


def test_nothing_runs_any_more_when_the_run_is_given_back(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever takes the run next must not meet workers of ours; here, after Ctrl+C."""
    notes = lab.notes
    driver, alive = os.getpid(), list[bool]()

    def loop() -> None:
        note(notes, what="worker", pid=os.getpid())
        os.kill(driver, signal.SIGINT)
        wait_for(notes.with_name("never"))

    close = OpenRun.close

    def watched(run: OpenRun) -> None:
        alive.append(is_running(lab.noted("worker")[0]["pid"]))
        close(run)

    monkeypatch.setattr(OpenRun, "close", watched)
    with pytest.raises(KeyboardInterrupt):
        lab.fit(loop)

    assert alive == [False]
