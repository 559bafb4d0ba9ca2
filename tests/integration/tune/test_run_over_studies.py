"""`tune.run` over what is there already: beginning anew, asking, carrying on from elsewhere."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
from typing import Any

import pytest

from holdfast import tune
from holdfast.errors import ConfigError, RunHeld
from tests.integration.tune.old_lab import OldLab, old_lab, saved
from tests.patience import pause

__all__ = ["old_lab"]

WAITS = {"waits_at": 5}
DONE = [[None, "TERMINATED"]]


# ---------------------------------------------------------------------- beginning anew


@pytest.mark.req("U-068")
def test_a_new_study_moves_the_old_one_aside_and_reads_nothing_of_it(
    old_lab: OldLab, capsys: pytest.CaptureFixture[str]
) -> None:
    [old] = old_lab.run(checkpoint_at_end=True).trials

    [new] = old_lab.run(checkpoint_at_end=True).trials

    said = [line for line in capsys.readouterr().err.splitlines() if "aside" in line]
    aside, study = sorted(old_lab.storage.iterdir(), key=lambda path: path != old_lab.study)[::-1]
    assert study == old_lab.study and aside.name.startswith("study-moved-aside-")
    assert len(said) == 1 and f"{study} is moved aside to {aside}" in said[0]
    assert old_lab.counts("restore") == []
    assert [path.name for path in study.glob("Counter*")] == [new.folder]
    assert [path.name for path in aside.glob("Counter*")] == [old.folder]


@pytest.mark.req("U-068")
def test_what_was_moved_aside_can_be_gone_on_with(old_lab: OldLab) -> None:
    old_lab.interrupt(old_lab.launch(WAITS, checkpoint_freq=3))
    old_lab.open_gate()
    old_lab.run(name="study")
    [aside] = old_lab.storage.glob("study-moved-aside-*")
    old_lab.notes.unlink()

    [trial] = old_lab.run(config=WAITS, name=aside.name, checkpoint_freq=3, resume=True).trials

    assert old_lab.counts() == [4, 5, 6]
    assert trial.status == "TERMINATED" and saved(trial) == [3, 6]


SLEEPY = """
import functools, runpy, sys
from holdfast.control.record.open_run import OpenStudy
OpenStudy.open = functools.partial(OpenStudy.open, time_to_live_s=1.0)
runpy.run_module("tests.integration.tune.classes", run_name="__main__")
"""


class Wakes(tune.Callback):
    """Wakes another driver in the middle of a trial, and sees it end."""

    def __init__(self, sleeper: subprocess.Popen[str]) -> None:
        self.sleeper, self.said = sleeper, ""

    def on_trial_result(
        self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any
    ) -> None:
        if result["training_iteration"] == 3:
            self.sleeper.send_signal(signal.SIGCONT)
            self.said = self.sleeper.communicate()[1]


def test_a_driver_that_wakes_when_its_study_was_moved_aside_leaves_the_new_one_alone(
    old_lab: OldLab,
) -> None:
    """Seen to write into it, and to give its lease back, so that a third driver was let in."""
    given = {"name": "study", "local_dir": str(old_lab.storage), "config": WAITS}
    sleeper = subprocess.Popen(
        [sys.executable, "-c", SLEEPY, str(old_lab.notes), json.dumps(given)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    old_lab.drivers.append(sleeper)
    while not old_lab.noted("waits"):
        assert sleeper.poll() is None, sleeper.communicate()[1]
        pause()
    sleeper.send_signal(signal.SIGSTOP)
    old_lab.open_gate()  # its trial goes on, and has something to say when it wakes
    wakes, trials = Wakes(sleeper), None
    while trials is None:
        with contextlib.suppress(RunHeld):  # until its lease has run out
            trials = old_lab.run(callbacks=[wakes], checkpoint_freq=2).trials

    assert [trial.status for trial in trials] == ["TERMINATED"]
    assert sleeper.returncode != 0 and "LeaseLost" in wakes.said
    assert [path.name for path in old_lab.study.glob("Counter*")] == [trials[0].folder]
    leases = sorted(path.name for path in (old_lab.study / ".holdfast" / "lease").iterdir())
    assert [name[:8] for name in leases] == ["00000002", "00000003", "00000003"]
    [aside] = old_lab.storage.glob("study-moved-aside-*")
    assert len(list(aside.glob("Counter*"))) == 1


def test_a_study_that_another_driver_is_at_is_not_moved(old_lab: OldLab) -> None:
    driver = old_lab.launch(WAITS)
    while not old_lab.noted("waits"):
        assert driver.poll() is None, driver.communicate()[1]

    with pytest.raises(RunHeld, match=f"pid {driver.pid}"):
        old_lab.run()

    assert [path.name for path in old_lab.storage.iterdir()] == ["study"]
    old_lab.open_gate()
    assert driver.communicate()[0] == json.dumps(DONE)


def test_files_that_are_no_study_are_moved_aside_too(old_lab: OldLab) -> None:
    old_lab.study.mkdir(parents=True)
    (old_lab.study / "thesis.tex").write_text("years of work")

    old_lab.run()

    [aside] = old_lab.storage.glob("study-moved-aside-*")
    assert (aside / "thesis.tex").read_text() == "years of work"
    assert not (old_lab.study / "thesis.tex").exists()


def test_a_training_run_is_not_moved_aside(old_lab: OldLab) -> None:
    from holdfast.train import DataParallelTrainer, RunConfig

    DataParallelTrainer(
        _do_nothing, run_config=RunConfig(name="study", storage_path=str(old_lab.storage))
    ).fit()

    with pytest.raises(ConfigError, match="there is a training run at"):
        old_lab.run()


def _do_nothing() -> None:
    pass


# ---------------------------------------------------------------------- asking


@pytest.mark.req("U-071")
@pytest.mark.parametrize(("answer", "setups"), [(True, 1), (False, 2)])
def test_the_user_is_asked_and_no_means_a_new_study(
    old_lab: OldLab, answer: bool, setups: int
) -> None:
    old_lab.run()
    asked: list[str] = []

    def ask(question: str) -> bool:
        asked.append(question)
        return answer

    old_lab.run(resume="PROMPT", _prompt=ask)

    assert asked == [f"go on with the study at {old_lab.study}?"]
    assert len(old_lab.noted("setup")) == setups
    assert len(list(old_lab.storage.iterdir())) == setups


@pytest.mark.req("U-071")
def test_where_nobody_can_answer_nobody_is_asked(old_lab: OldLab) -> None:
    """The driver's input is /dev/null."""
    old_lab.run()
    driver = old_lab.launch(resume="PROMPT")
    _, errors = driver.communicate()

    assert driver.returncode == 1
    assert (
        "ConfigError: resume='PROMPT' asks in the terminal, and stdin is not a terminal" in errors
    )
    assert len(old_lab.noted("setup")) == 1


# ---------------------------------------------------------------------- from where it is uploaded


@pytest.mark.req("U-070")
def test_a_study_goes_on_from_where_it_was_uploaded_to(old_lab: OldLab) -> None:
    upload_dir = f"file://{old_lab.folder}/uploads"
    given = {"upload_dir": upload_dir, "checkpoint_freq": 3}
    old_lab.interrupt(old_lab.launch(WAITS, **given))
    shutil.rmtree(old_lab.storage, ignore_errors=True)
    old_lab.open_gate()

    trials, _ = old_lab.finish(WAITS, resume="REMOTE", **given)

    assert trials == DONE
    assert old_lab.counts("restore") == [3]


@pytest.mark.req("U-070")
def test_without_a_place_to_upload_to_there_is_no_remote(old_lab: OldLab) -> None:
    old_lab.run()

    with pytest.raises(ValueError, match=r"REMOTE.*without upload_dir"):
        old_lab.run(resume="REMOTE")
