"""Machines that are taken away under a study: trials are told, save themselves, and go on."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import train, tune
from holdfast.control.host.preemption import AwsNotices, Notice
from holdfast.engine.nodes import LocalNodes
from holdfast.errors import ConfigError
from holdfast.tune import RunConfig, Tuner
from tests.integration.train.loops import is_first, note, wait_for
from tests.integration.tune import trainables
from tests.integration.tune.conftest import Lab, last
from tests.integration.tune.trainables import begin, save
from tests.patience import pause
from tests.servers.metadata import MetadataServer


class Announced:
    """Says that machines go, as soon as a file is there."""

    def __init__(self, file: Path, notice: Notice) -> None:
        self._file, self._notice = file, notice

    def poll(self) -> Notice | None:
        wait_for(self._file)
        return self._notice


class Silent:
    """Knows of no machine that goes."""

    def poll(self) -> Notice | None:
        return None


QUIET = RunConfig(preemption_notices=Silent())  # objects are given again


@pytest.fixture
def nodes() -> Iterator[LocalNodes]:
    """Two nodes with room for two trials each."""
    try:
        yield holdfast.init(nodes=2, num_cpus=2)
    finally:
        holdfast.shutdown()


def test_the_notice_of_a_cloud_has_every_trial_saved_before_the_study_leaves(lab: Lab) -> None:
    notes, told = lab.notes, time.time() + 600

    def saves_when_told(config: dict[str, Any]) -> None:
        step = begin(notes)
        while not train.should_checkpoint() and not notes.with_name("again").exists():
            tune.report({"step": step})
            step += 1
        info = train.get_preemption_info()
        note(notes, what="info", deadline_ms=None if info is None else info.deadline_ms)
        save(step)

    server = MetadataServer()

    def announce_once_they_run() -> None:
        while len(lab.noted("began")) < 2:
            pause()
        server.reclaim_on_aws(told)

    threading.Thread(target=announce_once_they_run, daemon=True).start()
    source = AwsNotices(server.url)
    try:
        with pytest.raises(SystemExit) as left:
            lab.fit(
                tune.with_resources(saves_when_told, {"cpu": 0.5}),
                {"x": tune.grid_search([0, 1])},
                preemption_notices=source,
            )
    finally:
        server.stop()

    assert left.value.code == 75
    facts = lab.noted("info")
    assert len(facts) == 2
    assert all(abs(fact["deadline_ms"] / 1000 - told) < 2 for fact in facts)
    restored = Tuner.restore(str(lab.study), saves_when_told, run_config=QUIET)
    saved = [one.checkpoint for one in restored.get_results()]
    assert None not in saved
    notes.with_name("again").touch()
    results = restored.fit()
    assert results.num_terminated == 2 and results.num_errors == 0
    began = [fact["step"] for fact in lab.noted("began")][2:]
    assert None not in began, "they went on from what they had saved"


def test_a_trial_that_returns_because_it_was_told_is_not_taken_for_done(lab: Lab) -> None:
    notes = lab.notes

    def goes(config: dict[str, Any]) -> None:
        for step in range(begin(notes), 4):
            if step == 2 and is_first(notes.with_name("told")):
                while train.get_preemption_info() is None:
                    tune.report({"step": 1})
                return
            save(step)

    source = Announced(notes.with_name("told"), Notice(time.time() + 600, None, "a test"))
    with pytest.raises(SystemExit):
        lab.fit(goes, preemption_notices=source)
    [result] = Tuner.restore(str(lab.study), goes, run_config=QUIET).fit()

    assert last(result)["step"] == 3
    assert [fact["step"] for fact in lab.noted("began")] == [None, 1]


def test_a_deadline_that_is_known_counts_and_not_the_usual_one(lab: Lab) -> None:
    notes = lab.notes

    def never_saves(config: dict[str, Any]) -> None:
        begin(notes)
        notes.with_name("told").touch()
        wait_for(notes.with_name("never"))

    source = Announced(notes.with_name("told"), Notice(time.time() + 2, None, "a test"))
    usual = tune.FailureConfig(preemption_notice_s=86_400.0)
    with pytest.raises(SystemExit) as left:
        lab.fit(never_saves, preemption_notices=source, failure_config=usual)

    assert left.value.code == 75


@pytest.mark.parametrize("how", ["drained", "named by a notice"])
def test_trials_on_a_node_that_goes_move_after_they_have_saved_and_nothing_is_charged(
    lab: Lab, nodes: LocalNodes, how: str
) -> None:
    notes = lab.notes
    going = notes.with_name("going")

    class Counts(trainables.Counter):
        def setup(self, config: dict[str, Any]) -> None:
            super().setup(config)
            note(notes, what="began", trial=self.trial_id)

        def step(self) -> dict[str, Any]:
            if self.iteration == 5:
                wait_for(going)
            return super().step()

        def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            super().load_checkpoint(checkpoint)
            note(notes, what="loaded", trial=self.trial_id, count=self.count)

    class AllAtFive(tune.Callback):
        def __init__(self) -> None:
            self._there = set[str]()

        def on_trial_result(
            self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any
        ) -> None:
            if result["count"] == 5:
                self._there.add(trial.trial_id)
            if len(self._there) == 4 and is_first(going) and how == "drained":
                nodes.drain("node-1", time.time() + 600)
                nodes.join()

    source = Announced(going, Notice(time.time() + 600, ("node-1",), "a test"))
    results = lab.fit(
        Counts,
        {"x": tune.grid_search([0, 1, 2, 3])},
        stop={"count": 500},
        callbacks=[AllAtFive()],
        preemption_notices=source if how != "drained" else None,
    )

    assert results.num_errors == 0, "max_failures is 0: nothing was charged"
    assert [last(one)["count"] for one in results] == [500] * 4
    began = Counter(fact["trial"] for fact in lab.noted("began"))
    assert sorted(began.values()) == [1, 1, 2, 2]
    assert len(lab.noted("loaded")) == 2
    for trial in began:
        assert [row["count"] for row in lab.rows(trial)] == list(range(1, 501))


def test_a_source_of_notices_that_is_none_is_refused_before_anything_starts(lab: Lab) -> None:
    notes = lab.notes

    def train(config: dict[str, Any]) -> None:
        begin(notes)

    with pytest.raises(ConfigError, match="preemption_notices"):
        lab.fit(train, preemption_notices="ovh")
    with pytest.raises(ConfigError, match="no source of preemption notices"):
        lab.fit(train, preemption_notices=object())

    assert lab.noted("began") == []
    assert not lab.study.exists(), "no study was begun"


def test_who_is_asked_for_notices_is_kept_by_name_and_can_be_said_anew(lab: Lab) -> None:
    def train(config: dict[str, Any]) -> None:
        tune.report({"x": 1})

    lab.fit(train, preemption_notices="aws")
    again = Tuner.restore(str(lab.study), train)
    other = Tuner.restore(str(lab.study), train, run_config=RunConfig(preemption_notices="gcp"))

    assert again._spec.run_config.preemption_notices == "aws"  # noqa: SLF001
    assert other._spec.run_config.preemption_notices == "gcp"  # noqa: SLF001
