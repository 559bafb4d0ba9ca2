"""The examples of the guides to Tune run with nothing but their import lines changed."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from tests.examples.seeds.scripts import Machine, seed, translated
from tests.servers.storage import ACCESS_KEY, SECRET_KEY, S3Server

pytestmark = pytest.mark.slow

EPOCH = "tempfile.mkdtemp"  # what a trial of the first guide does once in each epoch
STEP = "os.listdir"  # what a trial of the second guide does once in each step
GETS = "mmap.__new__"  # what a trial does when it gets an object that was put
RECEIVES = "code.__new__"  # what a trial does when it is told its function
GUIDE = "tune_fault_tolerance_guide"
LOCAL = 'os.path.expanduser("~/ray_results")'


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Callable[..., Machine]]:
    """Return a new machine each time."""
    made: list[Machine] = []

    def make(**variables: str) -> Machine:
        made.append(Machine(tmp_path / f"machine-{len(made)}", **variables))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def machine(machines: Callable[..., Machine]) -> Machine:
    return machines()


def rows(study: Path) -> list[list[dict[str, Any]]]:
    """Return the results of each trial of a study, in the order the trials were made."""
    return [
        [json.loads(line) for line in path.read_text().splitlines()]
        for path in sorted(study.glob("*/result.json"))
    ]


def said(study: Path) -> list[list[str]]:
    """Return what each attempt of each trial of a study printed."""
    logs = sorted(study.glob("*/logs/attempt-*.log"))
    return [[line for line in log.read_text().splitlines() if line] for log in logs]


def epochs(study: Path) -> list[int]:
    [trial] = rows(study)
    assert [row["training_iteration"] for row in trial] == [*range(1, len(trial) + 1)]
    return [row["epoch"] for row in trial]


def checkpoints(study: Path) -> list[str]:
    return sorted(path.name for path in study.glob("*/checkpoint_*"))


# ---------------------------------------------------------------------- 002: an experiment


@pytest.mark.req("U-013", "U-016", "U-017", "U-018", "U-019", "U-020")
def test_the_initial_experiment_reports_its_epochs_where_it_was_told_to(machine: Machine) -> None:
    machine.run(machine.write("tune_initial_run"))

    study = machine.home / "ray_results" / GUIDE
    assert epochs(study) == [*range(1, 10)]
    saved = [json.loads(path.read_text()) for path in sorted(study.glob("*/*/checkpoint.json"))]
    assert saved == [{"epoch": epoch} for epoch in range(1, 10)]
    assert list(machine.temporary.iterdir()) == [], "temporary folders are gone"


@pytest.mark.req("U-004", "U-006", "U-007", "U-014", "U-015", "U-021", "U-024", "U-028")
@pytest.mark.parametrize("name", ["tune_restored_run", "tune_restored_by_status"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "Ctrl+C"])
def test_an_interrupted_experiment_is_restored_at_its_last_epoch(
    machine: Machine, name: str, number: signal.Signals
) -> None:
    """In its fifth epoch, when four are saved."""
    study = machine.home / "ray_results" / GUIDE
    script = machine.write("tune_initial_run")
    machine.interrupt(script, workers=1, event=EPOCH, count=5, number=number)
    before = checkpoints(study)

    machine.run(machine.write(name))

    assert before == [f"checkpoint_{number:06d}" for number in range(4)]
    assert len(checkpoints(study)) == 9
    assert epochs(study) == [*range(1, 10)]


def account(server: S3Server) -> dict[str, str]:
    """Return what a user of S3 has in the environment."""
    return {
        "AWS_ENDPOINT_URL": server.url,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    }


@pytest.mark.s3
@pytest.mark.req("U-022")
def test_an_experiment_in_a_bucket_is_restored_on_another_machine(
    machines: Callable[..., Machine],
    s3_server: S3Server,
    new_folder: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bucket = new_folder().replace("folder", "cloud-bucket")
    s3_server.make_bucket(bucket)
    first, second = machines(**account(s3_server)), machines(**account(s3_server))
    script = first.write("tune_initial_run", {LOCAL: f'"s3://{bucket}"'})
    first.interrupt(script, workers=1, event=EPOCH, count=4)

    second.run(second.write("tune_restored_from_bucket", {"cloud-bucket": bucket}))

    for name, value in account(s3_server).items():
        monkeypatch.setenv(name, value)
    analysis = tune.ExperimentAnalysis(f"s3://{bucket}/{GUIDE}")
    [table] = analysis.trial_dataframes.values()
    assert [*table["epoch"]] == [*range(1, 10)]
    assert [*table["iterations_since_restore"]] == [1, 2, 3, 1, 2, 3, 4, 5, 6]
    assert not (second.home / "ray_results").exists()


@pytest.mark.req("U-010", "U-029", "U-030", "U-031")
def test_one_script_begins_and_carries_on_and_then_has_nothing_to_do(machine: Machine) -> None:
    script = machine.write("tune_autoresume")
    study = machine.home / "ray_results" / GUIDE
    machine.interrupt(script, workers=1, event=EPOCH, count=3)
    machine.run(script)
    done = rows(study)

    machine.run(script)

    assert epochs(study) == [*range(1, 10)]
    assert rows(study) == done
    assert len(said(study)) == 2, "the first attempt and the one that went on"


# ---------------------------------------------------------------------- 002: objects


@pytest.mark.req("U-035", "U-036")
def test_each_trial_gets_its_model_from_the_object_store(machine: Machine) -> None:
    machine.run(machine.write("tune_object_refs"))

    study = machine.home / "ray_results" / "restore_object_refs"
    assert sorted(said(study)) == [["1"], ["2"]]


@pytest.mark.req("U-032", "U-034", "U-037")
def test_models_that_are_put_again_are_those_of_the_restored_trials(machine: Machine) -> None:
    """The driver is killed while a trial gets its model; the other one may be about to.

    It may then still say that its model is gone with the driver, before it goes itself.
    """
    script = machine.write("tune_object_refs")
    machine.interrupt(script, workers=1, event=GETS, count=1)

    machine.run(machine.write("tune_object_refs_again"))

    study = machine.home / "ray_results" / "restore_object_refs"
    models = [line for lines in said(study) for line in lines if line.isdigit()]
    assert sorted(models) == ["1", "2"]
    results = tune.ExperimentAnalysis(str(study)).trials
    assert [trial.status for trial in results] == ["TERMINATED", "TERMINATED"]


@pytest.mark.req("U-033")
def test_models_that_are_not_put_again_are_missed_before_anything_starts(
    machine: Machine,
) -> None:
    machine.interrupt(machine.write("tune_object_refs"), workers=1, event=GETS, count=1)
    without = {"    param_space=param_space,\n": ""}
    process = machine.launch(machine.write("tune_object_refs_again", without))

    _, errors = process.communicate()

    assert process.returncode == 1
    assert "model_ref" in errors.splitlines()[-2]
    assert "param_space" in errors.splitlines()[-1]


RESTORED = "tuner = tune.Tuner.restore(..., param_space=param_space)"
PLACE = f'storage_path={LOCAL}, name="datasets"'
INITIAL = (
    f"tuner = tune.Tuner(train_fn, param_space=param_space, run_config=tune.RunConfig({PLACE}))"
)
PATH = 'os.path.expanduser("~/ray_results/datasets"), trainable=train_fn'


def unnamed(machine: Machine, trainable: str) -> Path:
    """Return the folder of the one study that was given no name."""
    [study] = machine.home.glob(f"{trainable}_????-??-??_??-??-??")
    return study


@pytest.mark.req("U-038")
def test_datasets_are_given_again(machine: Machine) -> None:
    initial = machine.write("tune_datasets", {RESTORED: f"{INITIAL}\ntuner.fit()"})
    machine.interrupt(initial, workers=1, event=RECEIVES, count=1)

    filled_in = RESTORED.replace("...", PATH)
    machine.run(machine.write("tune_datasets", {RESTORED: f"{filled_in}\ntuner.fit()"}))

    study = machine.home / "ray_results" / "datasets"
    assert sorted(trial[0]["total"] for trial in rows(study)) == [2 * 8128, 3 * 8128]


# ---------------------------------------------------------------------- 002: trials


@pytest.mark.req("U-001", "U-039", "U-041")
def test_a_trial_that_is_killed_goes_on_by_itself(machine: Machine) -> None:
    script = machine.write("tune_trial_failures")

    machine.run(script, fault={"event": EPOCH, "count": 5, "does": "die"})

    study = machine.home / "ray_results" / "trial_fault_tolerance"
    assert epochs(study) == [*range(1, 10)]
    assert [row["iterations_since_restore"] for row in rows(study)[0]] == [
        1,
        2,
        3,
        4,
        1,
        2,
        3,
        4,
        5,
    ]


# ---------------------------------------------------------------------- 003: `tune.run`

FAKE_TENSORFLOW = """
import glob, os, sys

class Session:
    weight = 0
    def run(self):
        os.listdir(".")
        self.weight += 1
        return self.weight / 10

class Saver:
    def save(self, session, prefix):
        for part in ("index", "data-00000-of-00001"):
            with open(f"{prefix}.{part}", "w") as file:
                file.write(str(session.weight))
        return prefix

    def restore(self, session, prefix):
        assert not os.path.exists(prefix) and len(glob.glob(f"{prefix}.*")) == 2
        session.weight = int(open(f"{prefix}.index").read())
        print("restored", os.path.basename(prefix), "at", session.weight)

class train:
    Saver = Saver
"""
FILLED_IN = {
    "self.sess = ...": "self.sess = tf.Session()",
    '{"mean_accuracy: self.sess.run(...)}': '{"mean_accuracy": self.sess.run()}',
    "os.path.join(checkpoint_dir, save)": 'os.path.join(checkpoint_dir, "save")',
}


@pytest.mark.req("U-047", "U-050", "U-079")
def test_the_class_of_the_guide_survives_with_its_saver(machine: Machine) -> None:
    """With what the guide leaves out filled in, and TensorFlow left out."""
    (machine.home / "tensorflow.py").write_text(FAKE_TENSORFLOW)
    script = machine.write("tune_run_class", FILLED_IN)

    machine.run(script, fault={"event": STEP, "count": 4, "does": "die"})

    study = unnamed(machine, "ray_results/MyClass")
    [trial] = rows(study)
    assert [row["mean_accuracy"] for row in trial] == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert "restored save at 2" in said(study)[1]


@pytest.mark.req("U-054")
def test_a_trial_that_sees_a_preemption_is_saved_there(machine: Machine) -> None:
    seen = "self.steps in (2, 5)"
    asked = "detect_instance_preemption():\n            "
    filled_in = {asked: f"{seen}:\n            "}
    machine.run(machine.write("tune_run_preemption", filled_in))
    [trial] = tune.ExperimentAnalysis(str(unnamed(machine, "ray_results/my_trainable"))).trials

    assert [metrics["training_iteration"] for _, metrics in trial.checkpoints] == [2, 5]
    assert trial.last_result["mean_accuracy"] == 0.6


@pytest.mark.req("U-056", "U-057", "U-058", "U-059")
@pytest.mark.parametrize(
    ("name", "saved"),
    [("tune_run_checkpoint_freq", [10, 20]), ("tune_run_checkpoint_at_end", [10, 20, 25])],
)
def test_checkpoints_are_made_every_ten_steps_and_survive_a_crash(
    machine: Machine, name: str, saved: list[int]
) -> None:
    _, errors = machine.run(machine.write(name), fault={"event": STEP, "count": 13, "does": "die"})

    study = unnamed(machine, "ray_results/my_trainable")
    [trial] = tune.ExperimentAnalysis(str(study)).trials
    assert [metrics["training_iteration"] for _, metrics in trial.checkpoints] == saved
    assert [row["steps"] for row in rows(study)[0]] == [*range(1, 26)]
    assert "restored at 10" in said(study)[1]
    assert "deprecated arguments: checkpoint_freq" in errors


NOT_YET = {"resume=True": "resume=False"}


@pytest.mark.req("U-065", "U-069", "U-073", "U-076")
def test_a_second_run_restores_the_experiment_from_the_results_path(machine: Machine) -> None:
    """Of its name nobody has said anything."""
    script = machine.write("tune_run_resume", NOT_YET)
    machine.interrupt(script, workers=1, event=STEP, count=15)

    machine.run(machine.write("tune_run_resume"))

    study = unnamed(machine, "path/to/results/my_trainable")
    assert [row["steps"] for row in rows(study)[0]] == [*range(1, 26)]
    assert "restored at 10" in said(study)[1]


@pytest.mark.req("U-069")
def test_without_a_first_run_there_is_nothing_to_restore(machine: Machine) -> None:
    process = machine.launch(machine.write("tune_run_resume"))
    _, errors = process.communicate()

    assert process.returncode == 1
    assert "there is no study at" in errors
    assert not (machine.home / "path").exists()


@pytest.mark.parametrize("name", ["tune_run_resume", "tune_initial_run"])
def test_no_line_but_imports_is_changed(name: str) -> None:
    before, after = seed(name).splitlines(), translated(seed(name)).splitlines()

    assert [(one, other) for one, other in zip(before, after, strict=True) if one != other] == [
        ("from ray import tune", "from holdfast import tune")
    ]
