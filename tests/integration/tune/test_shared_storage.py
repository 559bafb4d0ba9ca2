"""Studies whose trials are on several nodes, with storage that all of them share."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import tune
from holdfast.engine.nodes import LocalNodes
from holdfast.storage.base import Store
from holdfast.storage.locate import open_store
from holdfast.tune import Tuner
from tests.integration.train.loops import is_first, note, wait_for
from tests.integration.tune import trainables
from tests.integration.tune.conftest import Lab, last
from tests.integration.tune.old_lab import OldLab, old_lab
from tests.integration.tune.test_run_over_studies import DONE, WAITS
from tests.integration.tune.trainables import begin, save
from tests.servers.storage import S3Server

__all__ = ["old_lab"]


@pytest.fixture
def nodes() -> Iterator[LocalNodes]:
    """Two nodes with room for one trial each."""
    try:
        yield holdfast.init(nodes=2, num_cpus=1)
    finally:
        holdfast.shutdown()


@pytest.fixture(params=["disk", "s3"])
def shared(
    request: pytest.FixtureRequest, tmp_path: Path, new_folder: Callable[[], str]
) -> tuple[str, str]:
    """A storage path that every node sees, and the path of the study `study` in it."""
    if request.param == "disk":
        return str(tmp_path / "storage"), str(tmp_path / "storage" / "study")
    server: S3Server = request.getfixturevalue("s3_server")
    where = server.uri("lab", f"shared/{new_folder()}")
    place, _, query = where.partition("?")
    return where, f"{place}/study?{query}"


def keys_below(store: Store) -> set[str]:
    return {found.key for found in store.entries()}


class Loses(tune.Callback):
    """Loses the node of a trial when that trial has saved itself for the first time."""

    def __init__(self, nodes: LocalNodes, number: int, *, rejoins: bool) -> None:
        self._nodes, self._number, self._rejoins = nodes, number, rejoins
        self.lost: list[str] = []
        self.waited = False

    def on_checkpoint(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:  # type: ignore[override]
        if trial.number == self._number and not self.lost:
            self.lost = list(trial.places)
            for name in self.lost if not self._rejoins else [one.name for one in self._nodes.now()]:
                self._nodes.fail(name)

    def on_step_end(self, iteration: int, trials: Any, **info: Any) -> None:
        if self._rejoins and self.lost and not self._nodes.now():
            self.waited |= all(one.status == "PENDING" for one in trials)
            if self.waited:
                self._nodes.join()


@pytest.mark.req("U-003")
@pytest.mark.req("U-052")
@pytest.mark.req("U-053")
def test_all_results_and_checkpoints_of_all_nodes_are_below_one_root(
    lab: Lab, nodes: LocalNodes, shared: tuple[str, str]
) -> None:
    storage, path = shared
    notes = lab.notes

    class Saves(trainables.Counter):
        def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
            note(notes, what="saves", folder=checkpoint_dir, is_here=os.path.isdir(checkpoint_dir))
            return super().save_checkpoint(checkpoint_dir)

    places: dict[str, str] = {}

    class Where(tune.Callback):
        def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            [places[trial.trial_id]] = trial.places

    results = lab.fit(
        Saves,
        {"add": tune.grid_search([1, 2, 3, 4])},
        stop={"training_iteration": 4},
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=2),
        callbacks=[Where()],
        storage_path=storage,
    )

    assert set(places.values()) == {"node-0", "node-1"}, "both nodes were used"
    assert results.num_errors == 0
    assert all(one["is_here"] for one in lab.noted("saves")), "`_save` writes to a local folder"
    keys = keys_below(open_store(path))
    for trial in results.trials:
        assert f"{trial.folder}/result.json" in keys
        for number in range(2):
            assert f"{trial.folder}/.holdfast/manifests/checkpoint_{number:06d}.json" in keys
            assert any(key.startswith(f"{trial.folder}/checkpoint_{number:06d}/") for key in keys)
    for one, add in zip(results, (1, 2, 3, 4), strict=True):
        assert one.checkpoint is not None
        with one.checkpoint.as_directory() as folder:
            assert os.listdir(folder), add


@pytest.mark.req("U-042")
@pytest.mark.req("U-062")
@pytest.mark.req("U-085")
def test_a_trial_of_a_lost_node_goes_on_from_the_checkpoint_on_another(
    lab: Lab, nodes: LocalNodes, shared: tuple[str, str]
) -> None:
    notes = lab.notes
    loses = Loses(nodes, 0, rejoins=False)

    def train(config: dict[str, Any]) -> None:
        first = begin(notes)
        for step in range(first, 4):
            if config["x"] == 0 and step == 2 and first == 1:
                wait_for(notes.with_name("never"))  # until its node is lost
            save(step)

    results = lab.fit(
        train,
        {"x": tune.grid_search([0, 1])},
        max_failures=1,
        callbacks=[loses],
        storage_path=shared[0],
    )

    assert results.num_errors == 0
    assert [last(one)["step"] for one in results] == [3, 3]
    first = results.trials[0].trial_id
    began = [fact["step"] for fact in lab.noted("began") if fact["trial"] == first]
    assert began == [None, 1]
    assert [one.name for one in nodes.now()] != loses.lost


@pytest.mark.req("U-061")
def test_a_trial_waits_while_there_is_no_node_and_goes_on_when_one_joins(
    lab: Lab, nodes: LocalNodes, shared: tuple[str, str]
) -> None:
    notes = lab.notes
    loses = Loses(nodes, 0, rejoins=True)

    def train(config: dict[str, Any]) -> None:
        first = begin(notes)
        for step in range(first, 4):
            if step == 2 and first == 1:
                wait_for(notes.with_name("never"))  # until its node is lost
            save(step)

    [result] = lab.fit(train, max_failures=1, callbacks=[loses], storage_path=shared[0])

    assert loses.waited
    assert last(result)["step"] == 3
    assert [fact["step"] for fact in lab.noted("began")] == [None, 1]


@pytest.mark.req("U-085")
def test_a_study_is_restored_on_nodes_that_were_not_there_before(
    lab: Lab, nodes: LocalNodes, shared: tuple[str, str]
) -> None:
    storage, path = shared
    notes, driver = lab.notes, os.getpid()

    def train(config: dict[str, Any]) -> None:
        for step in range(begin(notes), 4):
            if step == 3 and is_first(notes.with_name("stop")):
                os.kill(driver, signal.SIGINT)
                wait_for(notes.with_name("never"))
            save(step)

    lab.fit(train, storage_path=storage)
    for node in nodes.now():
        nodes.fail(node.name)
    new = nodes.join().name
    placed: list[str] = []

    class Where(tune.Callback):
        def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            placed.extend(trial.places)

    config = tune.RunConfig(callbacks=[Where()])
    [result] = Tuner.restore(path, train, run_config=config).fit()

    assert placed == [new]
    assert last(result)["step"] == 3
    assert [fact["step"] for fact in lab.noted("began")] == [None, 2]


@pytest.mark.req("U-085")
@pytest.mark.req("U-083")
def test_a_paused_trial_has_no_process_and_goes_on_on_another_node(
    lab: Lab, nodes: LocalNodes, shared: tuple[str, str]
) -> None:
    """The first trial is paused after two steps; its node is lost; then it goes on."""
    notes = lab.notes

    class Counts(trainables.Counter):
        def setup(self, config: dict[str, Any]) -> None:
            super().setup(config)
            note(notes, what="process", x=config["x"], pid=os.getpid())

        def step(self) -> dict[str, Any]:
            note(notes, what="step", x=self.config["x"], iteration=self.iteration)
            return super().step()

    class PausesFirst(tune.schedulers.FIFOScheduler):
        """Pauses the first trial once, and has it go on when the other has ended."""

        def on_trial_result(self, view: Any, trial: Any, result: Any) -> str:
            is_it = trial.config["x"] == 0 and result["training_iteration"] == 2
            return self.PAUSE if is_it else self.CONTINUE

        def choose_trial_to_run(self, view: Any) -> Any:
            others = [one for one in view.get_trials() if one.config["x"] == 1]
            for trial in view.get_trials():
                waits = trial.status == "PAUSED" and others
                if trial.status in ("PENDING", "PAUSED") and not waits:
                    return trial
            return None

        def get_state(self) -> dict[str, Any]:
            return {}

        def set_state(self, state: Mapping[str, Any]) -> None:
            pass

    lost: list[str] = []

    class LosesItsNode(tune.Callback):
        def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            if trial.config["x"] == 0:
                lost.extend(trial.places)

        def on_step_end(self, iteration: int, trials: Any, **info: Any) -> None:
            is_paused = any(one.status == "PAUSED" for one in trials)
            if is_paused and is_first(notes.with_name("lost")):
                [fact] = [one for one in lab.noted("process") if one["x"] == 0]
                note(notes, what="alive", alive=_is_alive(fact["pid"]))
                nodes.fail(lost[0])

    results = lab.fit(
        Counts,
        {"x": tune.grid_search([0, 1])},
        stop={"training_iteration": 5},
        tune={"scheduler": PausesFirst()},
        callbacks=[LosesItsNode()],
        storage_path=shared[0],
    )

    assert results.num_errors == 0
    assert [last(one)["count"] for one in results] == [5, 5]
    assert [one["alive"] for one in lab.noted("alive")] == [False]
    assert len(lost) == 2 and lost[0] != lost[1]
    steps = [one["iteration"] for one in lab.noted("step") if one["x"] == 0]
    assert steps == [0, 1, 2, 3, 4], "no step was done twice"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state != "Z"


@pytest.mark.req("U-070")
def test_a_study_goes_on_from_the_bucket_it_was_uploaded_to(
    old_lab: OldLab,
    s3_server: S3Server,
    new_folder: Callable[[], str],
) -> None:
    given = {"upload_dir": s3_server.uri("lab", f"uploads/{new_folder()}"), "checkpoint_freq": 3}
    old_lab.interrupt(old_lab.launch(WAITS, **given))
    shutil.rmtree(old_lab.storage, ignore_errors=True)
    old_lab.open_gate()

    trials, _ = old_lab.finish(WAITS, resume="REMOTE", **given)

    assert trials == DONE
    assert old_lab.counts("restore") == [3]


@pytest.mark.req("U-003")
def test_storage_that_a_node_does_not_see_is_told_before_any_of_the_users_code_runs(
    lab: Lab, nodes: LocalNodes
) -> None:
    """What is in the memory of the driver is what no other process sees."""
    notes = lab.notes

    def begins(config: dict[str, Any]) -> None:
        begin(notes)

    results = lab.fit(begins, {"x": tune.grid_search([1, 2])}, storage_path="memory://unseen")

    assert lab.noted("began") == []
    assert results.num_errors == 2
    for error in results.errors:
        assert "does not see the run at memory://unseen/study" in str(error)
        assert "use a storage path that all machines share" in str(error)


@pytest.mark.req("U-114")
def test_the_older_names_of_a_checkpoint_config_work_and_say_what_to_write() -> None:
    with pytest.deprecated_call() as told:
        config = tune.CheckpointConfig(checkpoint_score_attr="max-auc", keep_checkpoints_num=5)

    assert (config.num_to_keep, config.checkpoint_score_attribute) == (5, "max-auc")
    said = " ".join(str(one.message) for one in told)
    assert "num_to_keep" in said and "checkpoint_score_attribute" in said
