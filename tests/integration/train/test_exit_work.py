"""What a function leaves to the end of its process is done, once, and in a bounded time."""

from __future__ import annotations

import atexit
import gzip
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast import train, tune
from holdfast.control.study.watchdog import TrialWatch
from holdfast.wire import Began, Leaving
from holdfast.worker import exit_work
from tests.clocks import FakeClock
from tests.integration.train.conftest import Lab
from tests.integration.train.test_processes import FIT, run_script

LEFT_OPEN: list[Any] = []


def leave(folder: Path, name: str = "it") -> None:
    """Leave whatever can be left to the end of a process."""
    atexit.register((folder / f"{name}-handler").write_text, "done")
    thread = threading.Thread(target=write_in_the_end, args=(folder / f"{name}-thread",))
    thread.start()
    LEFT_OPEN.append((folder / f"{name}-file").open("w"))
    LEFT_OPEN.append(gzip.open(folder / f"{name}-gzip", "wt"))  # noqa: SIM115
    circle: list[Any] = [(folder / f"{name}-circle").open("w")]
    circle.append(circle)
    for file in [*LEFT_OPEN[-2:], circle[0]]:
        file.write("done")


def write_in_the_end(path: Path) -> None:
    """Write once the main thread is done, which the end of a process does not wait for."""
    threading.main_thread().join()
    path.write_text("done")


def done_in(folder: Path) -> dict[str, str]:
    """Return what was done, by what it had been left to."""
    found: dict[str, str] = {}
    for path in folder.glob("it-*"):
        with gzip.open(path, "rt") if path.name == "it-gzip" else path.open() as file:
            found[path.name] = str(file.read())
    return found


ALL = dict.fromkeys(("it-handler", "it-thread", "it-file", "it-gzip", "it-circle"), "done")


def test_what_a_function_leaves_to_the_end_of_its_process_is_done(lab: Lab) -> None:
    folder = lab.folder

    lab.fit(lambda: leave(folder))

    assert done_in(folder) == ALL


def test_what_a_function_that_raised_has_left_is_done(lab: Lab) -> None:
    folder = lab.folder

    def loop() -> None:
        leave(folder)
        raise ValueError("in the end")

    with pytest.raises(train.TrainingFailedError):
        lab.fit(loop)

    assert done_in(folder) == ALL


DRIVER = f"""{FIT}
import atexit, os, tempfile
from pathlib import Path
os.environ["HOLDFAST_START"] = "fork"
sys.path.append({str(Path(__file__).parents[3])!r})
from tests.integration.train.test_exit_work import ALL, done_in, leave

folder = Path(sys.argv[1]).parent
atexit.register(lambda: print("the driver's own", os.getpid() == driver))
driver, kept = os.getpid(), tempfile.TemporaryDirectory()
fit(lambda: leave(folder))
print(done_in(folder) == ALL, os.path.isdir(kept.name))
"""


def test_what_a_driver_leaves_to_its_end_is_not_done_by_the_workers_forked_from_it(
    tmp_path: Path,
) -> None:
    assert run_script(tmp_path, DRIVER) == "True True\nthe driver's own True\n"


def test_what_takes_too_long_at_the_end_of_a_process_is_given_up_and_told(lab: Lab) -> None:
    def loop() -> str:
        exit_work.AFTER_RETURN_S = 0.1  # in this worker alone
        threading.Thread(target=time.sleep, args=(600,), name="endless").start()
        return "returned"

    assert lab.fit(loop).return_value == "returned"

    log = (lab.run / "logs" / "attempt-1" / "rank-0.log").read_text()
    assert "took longer than 0.1 s, and is given up here:" in log
    assert "in _shutdown" in log


def test_what_trials_leave_is_done_whether_they_have_a_process_of_their_own_or_not(
    lab: Lab, tmp_path: Path
) -> None:
    class Steps(tune.Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            leave(tmp_path)

        def step(self) -> dict[str, Any]:
            return {"done": True}

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            return True

        def cleanup(self) -> None:
            (tmp_path / "it-cleanup").write_text("done")

    def function(_: dict[str, Any]) -> None:
        leave(tmp_path)

    cleaned_up = {"it-cleanup": "done"}
    for reuses, trainable, more in (
        (False, function, {}),
        (False, Steps, cleaned_up),
        (True, Steps, cleaned_up),
    ):
        tune.Tuner(
            trainable,
            tune_config=tune.TuneConfig(num_samples=2, reuse_actors=reuses),
            run_config=tune.RunConfig(storage_path=str(lab.storage)),
        ).fit()
        found = done_in(tmp_path)
        for path in tmp_path.glob("it-*"):
            path.unlink()

        assert found == ALL | more, (trainable, reuses)


def test_a_trial_that_is_leaving_is_not_called_hung() -> None:
    clock = FakeClock()
    watch = TrialWatch(5.0, None, clock)  # type: ignore[arg-type]
    watch.begin(1, "trial")
    watch.heard(1, Began())
    watch.heard(1, Leaving())
    process: Any = type("Process", (), {"hung": None, "is_saving": False})

    found: list[int] = []
    for _ in range(30):
        clock.sleep(1.0)
        found += watch.look({1: process})

    assert found == []
