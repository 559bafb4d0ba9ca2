"""`RunConfig(resume=…)`, and the one line that says what a launch does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import CannotResume, RunMissing
from holdfast.train import LoggingConfig, TrainingFailedError, resume_policy
from tests.integration.train.conftest import Lab
from tests.integration.train.loops import begin, die, is_first, save


def two_steps(config: dict[str, Any]) -> int:
    notes = Path(config["notes"])
    first = begin(notes)
    for step in range(first, first + 2):
        save(step)
        if config.get("fails") and is_first(notes.with_name("failed")):
            die("ValueError")
    return first


def fit(lab: Lab, resume: str = "auto", *, fails: bool = False, **run: Any) -> Any:
    config = {"notes": str(lab.notes), "fails": fails}
    return lab.fit(two_steps, config=config, resume=resume, **run).return_value


def everything(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_run_that_must_be_there_is_carried_on_with(lab: Lab) -> None:
    assert [fit(lab), fit(lab, "must")] == [0, 2]


def test_a_run_that_must_be_there_and_is_not_is_not_begun(lab: Lab) -> None:
    with pytest.raises(RunMissing, match="starts none") as refused:
        fit(lab, "must")

    assert str(lab.run) in str(refused.value)
    assert not lab.storage.exists()
    assert lab.begun() == []


def test_a_run_that_must_be_new_is_begun_once(lab: Lab) -> None:
    assert fit(lab, "never") == 0
    before = everything(lab.run)

    with pytest.raises(CannotResume, match="resumes none") as refused:
        fit(lab, "never")

    assert str(lab.run) in str(refused.value)
    assert everything(lab.run) == before
    assert len(lab.begun()) == 1


def test_of_two_launches_that_must_be_new_only_one_trains(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other has looked before the first began, and is a moment late."""
    fit(lab, "never")
    monkeypatch.setattr(resume_policy, "check_resume_policy", lambda config, store: None)

    with pytest.raises(CannotResume, match="resumes none"):
        fit(lab, "never")

    assert len(lab.begun()) == 1


@pytest.mark.req("T-077")
def test_every_launch_says_in_one_line_what_it_does(
    lab: Lab, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(TrainingFailedError):
        fit(lab, fails=True)
    new = capfd.readouterr().err
    fit(lab)
    failed = capfd.readouterr().err
    fit(lab, "must")
    finished = capfd.readouterr().err

    assert f"holdfast: run 'run' is new; it is kept at {lab.run}\n" in new
    assert re.search(
        r"^holdfast: run 'run', which had failed, carries on from checkpoint_000000 \(step 1,"
        r" saved \d+ s ago\); started once before \[RunConfig\(resume='auto'\)\]$",
        failed,
        re.MULTILINE,
    )
    assert "which had finished, carries on from checkpoint_000002 (step 3, saved" in finished
    assert "started 2 times before [RunConfig(resume='must')]" in finished
    for said in (new, failed, finished):
        assert said.count("holdfast: ") == 1


def test_who_wants_only_warnings_is_not_told(lab: Lab, capfd: pytest.CaptureFixture[str]) -> None:
    fit(lab, logging_config=LoggingConfig("WARNING"))

    assert "holdfast: " not in capfd.readouterr().err
