"""Trials of `tune.run` that die or fail, and nodes that go away under them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast import tune
from holdfast.engine.nodes import LocalNodes
from tests.integration.train.loops import die, note
from tests.integration.tune.classes import Counter
from tests.integration.tune.old_lab import OldLab, old_lab

__all__ = ["old_lab"]


@pytest.mark.req("U-057", "U-060", "U-063", "U-073")
def test_a_killed_trial_goes_on_from_its_latest_checkpoint(old_lab: OldLab) -> None:
    config = {"dies_at": 6, "deaths": 2}
    [trial] = old_lab.run(config=config, checkpoint_freq=2, max_failures=2).trials

    assert old_lab.counts() == [1, 2, 3, 4, 5, 5, 5, 6]
    assert old_lab.counts("restore") == [4, 4]
    assert trial.status == "TERMINATED"
    assert trial.last_result["training_iteration"] == 6


@pytest.mark.req("U-057", "U-060")
@pytest.mark.parametrize("max_failures", [0, 1])
def test_one_death_more_than_allowed_is_final(old_lab: OldLab, max_failures: int) -> None:
    config = {"dies_at": 3, "deaths": 9}

    with pytest.raises(tune.TuneError, match=r"1 of 1 trials did not complete: .*SIGKILL"):
        old_lab.run(config=config, checkpoint_freq=1, max_failures=max_failures)

    assert len(old_lab.noted("setup")) == max_failures + 1


@pytest.mark.req("U-060")
def test_without_a_budget_the_first_failure_is_final_and_other_trials_go_on(
    old_lab: OldLab,
) -> None:
    config = {"x": tune.grid_search([1, 2]), "fails_at": 2, "failing": 1}
    analysis = old_lab.run(config=config, raise_on_failed_trial=False)

    assert [trial.status for trial in analysis.trials] == ["ERROR", "TERMINATED"]
    assert analysis.trials[1].last_result["count"] == 6
    assert sorted(one["x"] for one in old_lab.noted("setup")) == [1, 2]


@pytest.mark.req("U-046")
def test_a_trial_without_a_checkpoint_is_retried_from_scratch(old_lab: OldLab) -> None:
    [trial] = old_lab.run(config={"dies_at": 3}, max_failures=1).trials

    assert old_lab.counts() == [1, 2, 1, 2, 3, 4, 5, 6]
    assert trial.last_result["training_iteration"] == 6


@pytest.mark.req("U-046")
def test_a_function_that_reports_no_checkpoint_is_retried_from_scratch(old_lab: OldLab) -> None:
    def train(config: dict[str, Any], reporter: Any) -> None:
        notes = old_lab.notes
        note(notes, what="began")
        for step in (1, 2):
            reporter(step=step)
            if len(old_lab.noted("began")) == 1:
                raise OSError("the network is away")

    [trial] = old_lab.run(train, max_failures=1).trials

    assert len(old_lab.noted("began")) == 2
    assert trial.last_result["step"] == 2 and trial.last_result["training_iteration"] == 2


class ExportsOnceKilled(Counter):
    def _export_model(self, formats: Any, directory: str) -> dict[str, str]:
        self._note("export")
        if len(self._exports()) == 1:
            die("SIGKILL")
        with open(f"{directory}/model", "w") as file:
            file.write(str(self.count))
        return {formats[0]: file.name}

    def _exports(self) -> list[str]:
        return [line for line in self.notes.read_text().splitlines() if '"export"' in line]


@pytest.mark.parametrize(("frequency", "counts"), [(2, [1, 2, 3, 3]), (3, [1, 2, 3])])
def test_a_trial_that_dies_before_its_model_is_exported_exports_it_again(
    old_lab: OldLab, frequency: int, counts: list[int]
) -> None:
    given: dict[str, Any] = {"stop": {"training_iteration": 3}, "checkpoint_freq": frequency}
    [trial] = old_lab.run(
        ExportsOnceKilled, export_formats=["model"], max_failures=1, **given
    ).trials

    assert trial.status == "TERMINATED"
    assert old_lab.counts() == counts
    assert (old_lab.study / trial.folder / "export" / "model").read_text() == "3"


# ---------------------------------------------------------------------- nodes


@pytest.fixture
def nodes() -> Iterator[LocalNodes]:
    """One node with room for one trial."""
    try:
        yield holdfast.init(nodes=1, num_cpus=1)
    finally:
        holdfast.shutdown()


class LosesNode(tune.Callback):
    """Fails the only node at the first checkpoint; another joins when the trial has waited."""

    def __init__(self, nodes: LocalNodes, lab: OldLab) -> None:
        self.nodes, self.lab = nodes, lab
        self.waited: list[str] = []

    def on_checkpoint(
        self, iteration: int, trials: Any, trial: Any, checkpoint: Any, **info: Any
    ) -> None:
        if [node.name for node in self.nodes.now()] == ["node-0"]:
            self.nodes.fail("node-0")

    def on_step_begin(self, iteration: int, trials: Any, **info: Any) -> None:
        if not self.nodes.now() and trials[0].status == "PENDING":
            self.waited.append(trials[0].status)
            if len(self.waited) == 2:
                self.lab.open_gate()
                self.nodes.join("node-1")


@pytest.mark.req("U-061", "U-062", "U-063")
def test_a_trial_waits_for_another_node_and_goes_on_there(
    old_lab: OldLab, nodes: LocalNodes
) -> None:
    watcher = LosesNode(nodes, old_lab)
    config = {"waits_at": 5}  # so that it is still there when its node is lost

    [trial] = old_lab.run(
        config=config, checkpoint_freq=3, max_failures=1, callbacks=[watcher]
    ).trials

    assert watcher.waited == ["PENDING", "PENDING"]
    assert trial.status == "TERMINATED"
    assert old_lab.counts("restore") == [3]
    assert old_lab.counts()[-3:] == [4, 5, 6]
    assert len({one["pid"] for one in old_lab.noted("step")}) == 2
