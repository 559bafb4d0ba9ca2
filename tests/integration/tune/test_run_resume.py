"""`tune.run(resume=…)` after drivers that were killed or interrupted."""

from __future__ import annotations

import itertools
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from tests.integration.tune.classes import Counter
from tests.integration.tune.old_lab import OldLab, old_lab
from tests.patience import pause

__all__ = ["old_lab"]

WAITS = {"waits_at": 5}
DONE = [[None, "TERMINATED"]]


# ---------------------------------------------------------------------- drivers that died


@pytest.mark.req("U-063", "U-064", "U-065", "U-067", "U-069", "U-073")
@pytest.mark.parametrize("resume", [True, "LOCAL", "AUTO"])
def test_a_killed_study_goes_on_from_the_last_checkpoint(old_lab: OldLab, resume: Any) -> None:
    old_lab.interrupt(old_lab.launch(WAITS, checkpoint_freq=3))
    old_lab.open_gate()

    trials, errors = old_lab.finish(WAITS, checkpoint_freq=3, resume=resume)

    assert trials == DONE
    assert old_lab.counts() == [1, 2, 3, 4, 4, 5, 6]
    assert old_lab.counts("restore") == [3]
    assert "ignored" not in errors
    [rows] = old_lab.study.glob("*/result.json")
    iterations = [json.loads(row)["training_iteration"] for row in rows.read_text().splitlines()]
    assert iterations == [1, 2, 3, 4, 5, 6]


@pytest.mark.req("U-067")
def test_a_checkpoint_that_a_trial_was_told_of_is_not_lost_if_the_record_of_it_is(
    old_lab: OldLab,
) -> None:
    old_lab.interrupt(old_lab.launch(WAITS, checkpoint_freq=3, lingers=True))
    journal = "".join(path.read_text() for path in old_lab.study.glob(".holdfast/journal/*"))
    assert "checkpoint_begun" in journal and "checkpoint_committed" not in journal
    old_lab.open_gate()

    trials, _ = old_lab.finish(WAITS, checkpoint_freq=3, resume=True)

    assert trials == DONE
    assert old_lab.counts() == [1, 2, 3, 4, 4, 5, 6]
    assert old_lab.counts("restore") == [3]


@pytest.mark.req("U-065")
def test_a_study_goes_on_after_ctrl_c(old_lab: OldLab) -> None:
    driver = old_lab.launch(WAITS, checkpoint_freq=2)
    errors = old_lab.interrupt(driver, number=signal.SIGINT)
    old_lab.open_gate()

    trials, _ = old_lab.finish(WAITS, checkpoint_freq=2, resume=True)

    assert driver.returncode == 0 and "go on with" in errors
    assert trials == DONE
    assert old_lab.counts() == [1, 2, 3, 4, 5, 6]


@pytest.mark.req("U-067", "U-074", "U-075")
def test_without_checkpoints_unfinished_trials_begin_anew_and_others_stay(old_lab: OldLab) -> None:
    stop = {"score": 4}  # of x = 2 after two steps, of x = 1 after four
    given = {"stop": stop, "max_concurrent_trials": 1}
    config = {"xs": [2, 1], "waits_at": 3}
    old_lab.interrupt(old_lab.launch(config, **given))
    old_lab.open_gate()

    trials, _ = old_lab.finish(config, resume=True, **given)

    assert trials == [[2, "TERMINATED"], [1, "TERMINATED"]]
    by_trial = [
        [one["count"] for one in steps]
        for _, steps in itertools.groupby(old_lab.noted("step"), lambda one: one["trial"])
    ]
    assert by_trial == [[1, 2], [1, 2, 1, 2, 3, 4]]
    assert [one["x"] for one in old_lab.noted("setup")] == [2, 1, 1]


@pytest.mark.req("U-076")
def test_the_whole_study_comes_back(old_lab: OldLab) -> None:
    """Of four trials with drawn values, one is done, one runs, two are yet to be made."""
    given = {"num_samples": 4, "max_concurrent_trials": 1, "stop": {"count": 3}}
    config = {"draws": True, "waits_at": 2, "waiting": "_00001"}
    old_lab.interrupt(old_lab.launch(config, checkpoint_freq=1, **given))
    before = tune.Tuner.restore(str(old_lab.study), Counter).get_results()
    begun = [(one["trial"], one["x"]) for one in old_lab.noted("setup")]
    old_lab.open_gate()

    trials, _ = old_lab.finish(config, checkpoint_freq=1, resume=True, **given)

    after = tune.ExperimentAnalysis(str(old_lab.study))
    values = {one["trial"]: one["x"] for one in old_lab.noted("setup")}
    assert list(values.items())[:2] == begun and len(set(values.values())) == 4
    assert trials == [[x, "TERMINATED"] for x in values.values()]
    assert [one["count"] for one in old_lab.noted("restore")] == [1]
    done = after.results[begun[0][0]]
    assert before[0].metrics == {name: done[name] for name in before[0].metrics or ()}
    best = before.get_best_result("score", "max")
    assert best.config is not None and best.config["x"] == begun[0][1]


@pytest.mark.req("U-078")
def test_a_scheduler_judges_after_a_kill_as_it_would_have_without(old_lab: OldLab) -> None:
    given: dict[str, Any] = {
        "asha": {"max_t": 6, "grace_period": 2, "reduction_factor": 2, "metric": "score",
                 "mode": "max"},
        "max_concurrent_trials": 1,
        "checkpoint_freq": 1,
    }  # fmt: skip
    config = {"xs": [3, 1, 4, 1, 5]}

    def lengths() -> list[int]:
        found = {one["trial"]: 0 for one in old_lab.noted("setup")}
        for one in old_lab.noted("step"):
            found[one["trial"]] = max(found[one["trial"]], one["count"])
        return list(found.values())

    old_lab.finish(config, name="undisturbed", **given)
    undisturbed = lengths()
    old_lab.notes.unlink()
    old_lab.interrupt(old_lab.launch({**config, "waits_at": 5}, **given))
    old_lab.open_gate()
    old_lab.finish({**config, "waits_at": 5}, resume=True, **given)

    assert lengths() == undisturbed == [6, 2, 6, 2, 6]


# ---------------------------------------------------------------------- what `resume` may be


@pytest.mark.req("U-066")
@pytest.mark.parametrize("resume", ["local+", "NEVER", 1, "LOCAL+ALL", "", ["LOCAL"]])
def test_an_unknown_mode_is_refused_with_all_there_are(old_lab: OldLab, resume: Any) -> None:
    with pytest.raises(ValueError, match=r"LOCAL.*REMOTE.*PROMPT.*AUTO.*ERRORED_ONLY"):
        old_lab.run(resume=resume)

    assert not old_lab.storage.exists()


@pytest.mark.req("U-069", "U-072")
@pytest.mark.parametrize("resume", [True, "LOCAL", "PROMPT", "LOCAL+ERRORED", "ERRORED_ONLY"])
def test_another_name_has_nothing_to_go_on_with(old_lab: OldLab, resume: Any) -> None:
    old_lab.run()

    with pytest.raises(ValueError, match=r"there is no study at .*another to go on with"):
        old_lab.run(name="another", resume=resume)

    assert [path.name for path in old_lab.storage.iterdir()] == ["study"]


@pytest.mark.req("U-072")
def test_another_name_with_auto_is_a_new_study(old_lab: OldLab) -> None:
    old_lab.run(resume="AUTO")
    old_lab.run(resume="AUTO", name="another")

    assert len(old_lab.noted("setup")) == 2


@pytest.mark.req("U-075")
def test_a_finished_study_is_not_run_again(old_lab: OldLab) -> None:
    first = old_lab.run()
    second = old_lab.run(resume=True)

    assert len(old_lab.noted("setup")) == 1
    assert [one.last_result for one in second.trials] == [one.last_result for one in first.trials]


# ---------------------------------------------------------------------- which trials


def two_trials(old_lab: OldLab) -> dict[str, Any]:
    """Leave a study of which one trial has failed, and one has not been done."""
    given: dict[str, Any] = {"checkpoint_freq": 2, "raise_on_failed_trial": False}
    given |= {"max_concurrent_trials": 1}
    config = {"xs": [1, 2], "fails_at": 4, "waits_at": 3}
    driver = old_lab.launch(config, **given)
    while len(old_lab.noted("waits")) < 1:
        assert driver.poll() is None
        pause()
    (old_lab.folder / "gate").touch()
    driver.communicate()
    (old_lab.folder / "fixed").touch()
    old_lab.notes.unlink()
    return {"config": config, **given}


@pytest.mark.parametrize(
    ("resume", "first"),
    [
        ("LOCAL", None),
        ("LOCAL+ERRORED", 3),
        ("AUTO+ERRORED", 3),
        ("LOCAL+RESTART_ERRORED", 1),
        ("ERRORED_ONLY", 1),
        ("LOCAL+ERRORED+RESTART_ERRORED", 3),
    ],
)
def test_trials_that_failed_go_on_or_begin_anew_or_stay(
    old_lab: OldLab, resume: str, first: int | None
) -> None:
    given = two_trials(old_lab)

    trials, _ = old_lab.finish(resume=resume, **given)

    status = "ERROR" if first is None else "TERMINATED"
    assert trials == [[1, status], [2, status]]
    by_trial = itertools.groupby(old_lab.noted("step"), lambda one: one["trial"])
    begun = [next(steps)["count"] for _, steps in by_trial]
    assert begun == ([] if first is None else [first, first])


@pytest.mark.parametrize(("suffix", "ends_at"), [("+ERRORED", [3, 6]), ("+ERRORED_ONLY", [3, 1])])
def test_only_those_that_failed_go_on_if_that_is_wanted(
    old_lab: OldLab, suffix: str, ends_at: list[int]
) -> None:
    """Of two trials, x = 2 fails at once, and x = 1 waits when the driver is killed."""
    given = {"checkpoint_freq": 1, "raise_on_failed_trial": False, "stop": {"score": 6}}
    config = {"xs": [2, 1], "fails_at": 2, "waits_at": 2, "failing": 2}
    given |= {"max_concurrent_trials": 1}
    old_lab.interrupt(old_lab.launch(config, **given))
    for name in ("gate", "fixed"):
        (old_lab.folder / name).touch()

    trials, _ = old_lab.finish(config, resume=f"LOCAL{suffix}", **given)

    assert trials == [[2, "TERMINATED"], [1, "TERMINATED"]]
    ends = {one["trial"]: one["count"] for one in old_lab.noted("step")}
    assert list(ends.values()) == ends_at


# ---------------------------------------------------------------------- what is changed


@pytest.mark.req("U-077")
def test_changes_are_ignored_and_each_is_told(old_lab: OldLab) -> None:
    stop = {"training_iteration": 2}
    old_lab.run(config={"x": tune.grid_search([1]), "y": 1}, stop=stop, checkpoint_freq=1)

    with pytest.warns(UserWarning, match="goes on as it was begun") as warned:
        again = old_lab.run(
            config={"x": tune.grid_search([1, 2]), "z": 3},
            stop={"training_iteration": 9},
            num_samples=5,
            checkpoint_freq=4,
            max_failures=2,
            resume=True,
        )

    assert len(again.trials) == 1
    assert again.trials[0].last_result["training_iteration"] == 2
    assert len(old_lab.noted("setup")) == 1
    [text] = [str(one.message) for one in warned]
    for change in (
        "config['x']={'grid_search': [1, 2]}",
        "config has no 'y', which it had",
        "config['z'], which it did not have",
        "stop={'training_iteration': 9}, it is {'training_iteration': 2}",
        "num_samples=5, it is 1",
        "checkpoint_frequency=4, it is 1",
        "max_failures=2, it is 0",
    ):
        assert change in text


@pytest.mark.req("U-077")
def test_what_is_not_said_again_is_no_change(old_lab: OldLab) -> None:
    """Warnings are errors here."""
    old_lab.run(num_samples=2, checkpoint_freq=2, max_failures=3)

    again = old_lab.run(resume=True, stop=None)

    assert len(again.trials) == 2


@pytest.mark.req("U-077")
def test_what_trials_begin_with_is_kept_too(old_lab: OldLab) -> None:
    """It is not given again, and then it is another."""
    [first] = old_lab.run(name="first", checkpoint_freq=3).trials
    three, six = (checkpoint.path for checkpoint, _ in first.checkpoints)
    old_lab.notes.unlink()
    later = {"stop": {"training_iteration": 12}}
    old_lab.interrupt(old_lab.launch({"waits_at": 8}, restore=six, **later))
    old_lab.interrupt(old_lab.launch({"waits_at": 8}, resume=True), waiting=2)
    old_lab.open_gate()

    _, errors = old_lab.finish({"waits_at": 8}, resume=True, restore=three, **later)

    assert old_lab.counts("restore") == [6, 6, 6]
    assert old_lab.counts() == [7, 7, *range(7, 13)]
    assert "goes on as it was begun; ignored: restore=" in errors


def test_another_trainable_is_not_what_the_study_runs(old_lab: OldLab) -> None:
    class Another(Counter):
        pass

    old_lab.run()

    with pytest.raises(ValueError, match="runs 'Counter', and the trainable given is 'Another'"):
        old_lab.run(Another, resume=True)


def test_a_damaged_record_begins_no_other_study(old_lab: OldLab) -> None:
    old_lab.run()
    record = Path(old_lab.study, ".holdfast", "study.json")
    record.write_bytes(record.read_bytes()[:-20])

    for resume in (True, "AUTO"):
        with pytest.raises(ValueError, match=r"study\.json"):
            old_lab.run(resume=resume)

    assert len(old_lab.noted("setup")) == 1
