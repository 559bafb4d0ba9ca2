"""Nodes that are lost under a study, on simulated nodes with real processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast import tune
from holdfast.engine.nodes import LocalNodes
from tests.integration.train.loops import wait_for
from tests.integration.tune.conftest import Lab, last
from tests.integration.tune.trainables import begin, save


@pytest.fixture
def nodes() -> Iterator[LocalNodes]:
    """Two nodes with room for two trials each."""
    try:
        yield holdfast.init(nodes=2, num_cpus=2)
    finally:
        holdfast.shutdown()


class Once(tune.Callback):
    """Does something when all of four trials have saved themselves."""

    def __init__(self, act: Any) -> None:
        self._act, self._saved = act, set[str]()

    def on_checkpoint(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:  # type: ignore[override]
        self._saved.add(trial.trial_id)
        if len(self._saved) == 4 and self._act is not None:
            act, self._act = self._act, None
            act()


@pytest.mark.req("U-042")
@pytest.mark.req("U-062")
@pytest.mark.req("U-085")
def test_all_trials_of_a_lost_node_go_on_elsewhere(lab: Lab, nodes: LocalNodes) -> None:
    notes = lab.notes

    def train(config: dict[str, Any]) -> None:
        for step in range(begin(notes), 4):
            if step == 2:
                wait_for(notes.with_name("lost"))
            save(step)

    def lose() -> None:
        nodes.fail("node-1")
        notes.with_name("lost").touch()

    results = lab.fit(
        train, {"x": tune.grid_search([0, 1, 2, 3])}, max_failures=1, callbacks=[Once(lose)]
    )

    assert results.num_errors == 0
    assert [last(one)["step"] for one in results] == [3] * 4
    began = Counter(fact["trial"] for fact in lab.noted("began"))
    assert sorted(began.values()) == [1, 1, 2, 2]
    again = [fact["step"] for fact in lab.noted("began")][4:]
    assert again == [1, 1]


@pytest.mark.req("U-061")
def test_trials_wait_for_room_when_there_is_none(lab: Lab, nodes: LocalNodes) -> None:
    notes = lab.notes

    def train(config: dict[str, Any]) -> None:
        for step in range(begin(notes), 3):
            save(step)

    class Loses(tune.Callback):
        def on_checkpoint(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:  # type: ignore[override]
            if notes.with_name("lost").exists():
                return
            notes.with_name("lost").touch()
            nodes.fail("node-0")
            nodes.fail("node-1")

        def on_step_end(self, iteration: int, trials: Any, **info: Any) -> None:
            is_stranded = all(one.status == "PENDING" for one in trials)
            if notes.with_name("lost").exists() and trials and is_stranded and not nodes.now():
                nodes.join()

    [result] = lab.fit(train, max_failures=1, callbacks=[Loses()])

    assert last(result)["step"] == 2
    assert len(lab.noted("began")) == 2
