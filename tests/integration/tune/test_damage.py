"""A study whose journal is damaged: what is lost is told, and nothing begins anew in its place."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import tune
from holdfast.tune.stored_study import CannotRestoreStudy
from tests.integration.tune.conftest import Lab, last


def train(config: dict[str, Any]) -> None:
    tune.report({"loss": config["x"]})


def damage(lab: Lab, *signs: str) -> None:
    """Spoil the records of the journal that have one of these in them."""
    [file] = (lab.study / ".holdfast" / "journal").glob("*.jsonl")
    lines = file.read_text().splitlines()
    is_hit = [any(sign in line for sign in signs) for line in lines]
    spoilt = [
        line.replace(":", ";") if hit else line for line, hit in zip(lines, is_hit, strict=True)
    ]
    file.write_text("".join(f"{line}\n" for line in spoilt))


def test_a_study_of_which_no_trial_is_known_any_more_is_refused(lab: Lab) -> None:
    lab.fit(train, {"x": tune.grid_search([0, 1])})
    before = sorted(path.name for path in lab.study.iterdir())
    damage(lab, '"trial_', '"study_state"')

    for _ in range(2):  # that it was seen once does not make it better
        with pytest.raises(CannotRestoreStudy, match=r"no trial is known any more.*\n.*copy"):
            lab.restore(train)
    assert sorted(path.name for path in lab.study.iterdir()) == before


def test_a_trial_whose_record_is_lost_is_named_and_no_other_is_made_twice(lab: Lab) -> None:
    trials = lab.fit(train, {"x": tune.grid_search([0, 1, 2, 3])})._trials  # noqa: SLF001
    lost = trials[1].trial_id
    damage(lab, f'"trial_added","data":{{"trial_id":"{lost}"', '"made":4')

    with pytest.warns(UserWarning, match=rf"trials are lost: {lost}\. .*num_samples=1"):
        results = lab.restore(train)
    assert [last(one)["loss"] for one in results] == [0, 2, 3]
    assert len(lab.rows(lost)) == 1


def test_a_search_goes_on_after_a_lost_record_with_what_was_not_tried(lab: Lab) -> None:
    space = {"x": tune.grid_search([0, 1])}
    trials = lab.fit(train, space)._trials  # noqa: SLF001
    damage(lab, f'"trial_added","data":{{"trial_id":"{trials[0].trial_id}"', '"made":2')

    with pytest.warns(UserWarning, match="trials are lost"):
        results = tune.Tuner.restore(str(lab.study), train).extend(num_samples=1).fit()
    assert [last(one)["loss"] for one in results] == [1, 0, 1]
