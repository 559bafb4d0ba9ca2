"""The examples of the guides run with nothing but their import lines changed."""

from __future__ import annotations

import ast
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.control.record.run_view import look
from holdfast.storage.locate import open_store
from holdfast.train import Result
from holdfast.train.torch import TorchTrainer
from tests.examples.seeds.scripts import Machine, names, printed, seed, translated
from tests.patience import pause
from tests.servers.storage import ACCESS_KEY, SECRET_KEY, S3Server

pytestmark = pytest.mark.slow


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


def attempts(run: Path | str) -> int:
    """Return how often the function of a run was started; it must have come out well."""
    view = look(open_store(run))
    assert view.status == "succeeded"
    return view.history.run.attempts


def epochs(run: Path | str, metric: str = "epoch") -> list[int]:
    """Return what the metrics of a run tell, in their order."""
    return [int(one) for one in Result.from_path(run).metrics_dataframe[metric]]


def begun(run: Path) -> dict[int, list[str]]:
    """Return with what each rank of each attempt said it begins."""
    said: dict[int, list[str]] = {}
    for (attempt, _), lines in sorted(printed(run).items()):
        said.setdefault(attempt, []).extend(one for one in lines if one.startswith("begins with"))
    return said


@pytest.mark.parametrize("name", names())
def test_only_import_lines_are_changed(name: str) -> None:
    before, after = seed(name).splitlines(), translated(seed(name)).splitlines()

    changed = [line for line in before if line not in after]
    assert changed and all(line.startswith(("import ray", "from ray")) for line in changed)
    assert not [line for line in after if line.startswith(("import ray", "from ray"))]
    imports = ("import holdfast", "from holdfast")
    assert [line for line in after if not line.startswith(imports)] == [
        line for line in before if line not in changed
    ]


# ---------------------------------------------------------------------- E-1: how many failures


def assigned(name: str) -> list[Any]:
    """Return what an example assigns, in its order."""
    made = [one for one in ast.parse(translated(seed(name))).body if isinstance(one, ast.Assign)]
    return [eval(ast.unparse(one.value), {"ray": holdfast}) for one in made]


def fails(times: int, folder: Path) -> Callable[[], str]:
    """Return a function that fails so many times, each time a step further."""

    def loop() -> str:
        step = 0
        if checkpoint := holdfast.train.get_checkpoint():
            with checkpoint.as_directory() as saved:
                step = len(list(Path(saved).iterdir()))
        source = folder / f"step-{step}"
        source.mkdir()
        for number in range(step + 1):
            (source / f"{number}").touch()
        made = holdfast.train.Checkpoint.from_directory(source)
        holdfast.train.report({"step": step}, checkpoint=made)
        if step < times:
            raise RuntimeError(f"failure {step + 1}")
        return f"after {step} failures"

    return loop


@pytest.mark.req("T-008", "T-009", "T-010", "T-042", "T-050", "T-051", "T-062")
def test_two_failures_are_absorbed_and_a_third_is_not_or_any_number_is(tmp_path: Path) -> None:
    two, any_number = assigned("failure_config")

    def fit(times: int, failure_config: Any) -> Result:
        folder = tmp_path / f"{times} of {failure_config.max_failures}"
        folder.mkdir()
        return holdfast.train.DataParallelTrainer(
            fails(times, folder),
            run_config=holdfast.train.RunConfig(
                storage_path=str(folder / "storage"), name="run", failure_config=failure_config
            ),
        ).fit()

    assert fit(2, two).return_value == "after 2 failures"
    with pytest.raises(holdfast.train.TrainingFailedError, match="failure 3"):
        fit(3, two)
    assert fit(10, any_number).return_value == "after 10 failures"


# ---------------------------------------------------------------------- E-2 to E-5: restoring

EPOCH = "tempfile.mkdtemp"  # what a worker of these examples does once in each
LOCAL = 'os.path.expanduser("~/ray_results")'


@pytest.mark.req("T-020")
def test_the_initial_run_saves_five_epochs_where_it_was_told_to(machine: Machine) -> None:
    output, errors = machine.run(machine.write("initial_run"))

    run = machine.home / "ray_results" / "dl_trainer_restore"
    assert output == f"last epoch 4 in {run}\n"
    assert [sorted(path.iterdir()) for path in sorted(run.glob("checkpoint_*"))] == [
        [run / f"checkpoint_{number:06d}" / "model.pt"] for number in range(5)
    ]
    assert epochs(run) == [0, 1, 2, 3, 4]
    assert all("epoch 4 has 5 rows" in lines for lines in printed(run).values())
    assert list(machine.temporary.iterdir()) == [], "temporary folders are gone"
    assert "is new" in errors


@pytest.mark.req("T-014", "T-018", "T-021", "T-023", "T-024", "T-032", "T-033", "T-088")
def test_a_killed_run_is_restored_from_its_path_and_its_datasets(machine: Machine) -> None:
    initial, restored = machine.write("initial_run"), machine.write("restored_run")
    run = machine.home / "ray_results" / "dl_trainer_restore"
    machine.interrupt(initial, workers=2, event=EPOCH, count=4)

    output, errors = machine.run(restored)

    assert output == f"last epoch 4 in {run}\n"
    assert begun(run) == {1: ["begins with epoch 0"] * 2, 2: ["begins with epoch 3"] * 2}
    assert epochs(run) == [0, 1, 2, 3, 4]
    assert "carries on from checkpoint_000002" in errors
    assert "TorchTrainer.restore is deprecated" in errors


@pytest.mark.req("T-091", "T-071", "T-075", "T-083")
def test_the_same_constructor_does_what_restore_did(machine: Machine) -> None:
    script = machine.write("initial_run")
    run = machine.home / "ray_results" / "dl_trainer_restore"
    machine.interrupt(script, workers=2, event=EPOCH, count=3)

    machine.run(script)

    assert begun(run) == {1: ["begins with epoch 0"] * 2, 2: ["begins with epoch 2"] * 2}
    assert epochs(run) == [0, 1, 2, 3, 4]


@pytest.mark.req("T-024")
def test_a_run_with_datasets_is_not_restored_without_them(machine: Machine) -> None:
    machine.interrupt(machine.write("initial_run"), workers=2, event=EPOCH, count=2)
    run = machine.home / "ray_results" / "dl_trainer_restore"

    with pytest.raises(ValueError, match="missing 'train'"), pytest.deprecated_call():
        TorchTrainer.restore(str(run))


def account(server: S3Server) -> dict[str, str]:
    """Return what a user of S3 has in the environment."""
    return {
        "AWS_ENDPOINT_URL": server.url,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    }


@pytest.mark.s3
@pytest.mark.req("T-017", "T-022", "T-038", "T-070", "T-072", "T-087")
def test_a_run_in_a_bucket_is_restored_on_another_machine(
    machines: Callable[..., Machine], s3_server: S3Server, new_folder: Callable[[], str]
) -> None:
    """Of the first machine nothing is left but the script."""
    s3_server.make_bucket("results-bucket")
    bucket = {LOCAL: f'"s3://results-bucket/{new_folder()}"'}
    first, second = machines(**account(s3_server)), machines(**account(s3_server))
    first.interrupt(first.write("initial_run", bucket), workers=2, event=EPOCH, count=4)

    text = "\n".join(second.run(second.write("restored_run", bucket)))

    assert "last epoch 4 in results-bucket/" in text
    assert "carries on from checkpoint_000002" in text
    assert "begins with epoch 3" in text


@pytest.mark.req("T-015", "T-027", "T-028", "T-088")
def test_one_script_begins_and_carries_on_as_the_guide_has_it(machine: Machine) -> None:
    """It calls `fit` in its branch and once more after it, which adds nothing."""
    script = machine.write("autoresume")
    run = machine.home / "ray_results" / "dl_restore_autoresume"
    machine.interrupt(script, workers=2, event=EPOCH, count=3)

    output, _ = machine.run(script)

    assert output == "restored, and came to epoch 4\nlast epoch 4\n"
    assert begun(run) == {
        1: ["begins with epoch 0"] * 2,
        2: ["begins with epoch 2"] * 2,
        3: ["begins with epoch 5"] * 2,
    }
    assert epochs(run) == [0, 1, 2, 3, 4]
    assert len(list(run.glob("checkpoint_*"))) == 5


# ---------------------------------------------------------------------- E-6: workers

REPORTED = "shutil.rmtree"  # what a worker does when its report has returned
FILLED_IN = {
    "import tempfile\n": "import os\nimport tempfile\n\nimport torch\n",
    "            # model.load_state_dict(torch.load(...))\n            ...": (
        '            print("begins with", torch.load(f"{temp_checkpoint_dir}/model.pt"))'
    ),
    "        # torch.save(...)": (
        '        torch.save("a model", os.path.join(temp_checkpoint_dir, "model.pt"))'
    ),
}


@pytest.mark.req("T-001", "T-003", "T-011", "T-035", "T-043", "T-045", "T-046", "T-052", "T-053")
@pytest.mark.req("T-055", "T-056")
@pytest.mark.parametrize("filled_in", [{}, FILLED_IN], ids=["as it stands", "filled in"])
def test_all_four_workers_start_again_when_one_is_killed(
    machine: Machine, filled_in: dict[str, str]
) -> None:
    """It is killed when its report has returned and its temporary folder goes."""
    script = machine.write("worker_fault_tolerance", filled_in)

    _, errors = machine.run(script, fault={"event": REPORTED, "count": 1, "does": "die"})

    [run] = (machine.home / "ray_results").iterdir()
    assert run.name.startswith("train_run-")
    assert attempts(run) == 2
    assert sorted(printed(run)) == [(attempt, rank) for attempt in (1, 2) for rank in range(4)]
    assert "killed by SIGKILL" in errors and "2 of 3 retries left" in errors
    assert [path.name for path in sorted(run.glob("checkpoint_*"))] == [
        "checkpoint_000000",
        "checkpoint_000001",
    ]
    if filled_in:
        assert begun(run) == {1: [], 2: ["begins with a model"] * 4}


# ---------------------------------------------------------------------- E-7: drivers

NAME = "unique_run_id=da823d5"


@pytest.mark.parametrize("missing", ["--storage_path", "--run_name"])
@pytest.mark.req("T-081", "T-082")
def test_the_pair_must_be_given(machine: Machine, missing: str) -> None:
    given = {"--storage_path": str(machine.home), "--run_name": NAME}
    del given[missing]
    process = machine.launch(
        machine.write("entrypoint"), *(part for pair in given.items() for part in pair)
    )
    _, errors = process.communicate()

    assert process.returncode == 2
    assert f"required: {missing}" in errors


@pytest.mark.req("T-015", "T-016", "T-041", "T-066", "T-067", "T-068", "T-074", "T-077", "T-081")
@pytest.mark.req("T-083", "T-084", "T-087")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "Ctrl+C"])
def test_the_same_command_resumes_an_interrupted_run(
    machines: Callable[..., Machine], tmp_path: Path, number: signal.Signals
) -> None:
    """It is given again on another machine, which sees the same storage."""
    command = ("--storage_path", str(tmp_path / "storage"), "--run_name", NAME)
    first, second = machines(), machines()
    script = first.write("entrypoint", FILLED_IN)
    code = first.interrupt(script, *command, workers=4, event=REPORTED, count=1, number=number)

    _, errors = second.run(second.write("entrypoint", FILLED_IN), *command)

    run = tmp_path / "storage" / NAME
    assert code == -number
    assert "carries on from checkpoint_000000" in errors
    assert attempts(run) == 2
    assert begun(run) == {1: [], 2: ["begins with a model"] * 4}
    assert Result.from_path(run).name == NAME
    assert first.processes() == []


@pytest.mark.req("T-076")
def test_another_name_or_another_path_begins_a_new_run(machine: Machine) -> None:
    script = machine.write("entrypoint")
    path = machine.home / "storage"
    for storage, name in ((path, NAME), (path, "another"), (machine.home / "elsewhere", NAME)):
        _, errors = machine.run(script, "--storage_path", str(storage), "--run_name", name)

        assert f"run {name!r} is new" in errors
        assert len(list((storage / name).glob("checkpoint_*"))) == 1


@pytest.mark.s3
@pytest.mark.req("T-017", "T-057", "T-073", "T-083", "T-084", "T-085")
def test_the_command_of_the_guide_resumes_from_a_bucket(
    machines: Callable[..., Machine], s3_server: S3Server, new_folder: Callable[[], str]
) -> None:
    bucket = new_folder().replace("folder", "my-bucket")
    s3_server.make_bucket(bucket)
    command = ("--storage_path", f"s3://{bucket}/", "--run_name", NAME)
    first, second = machines(**account(s3_server)), machines(**account(s3_server))
    first.interrupt(
        first.write("entrypoint", FILLED_IN), *command, workers=4, event=REPORTED, count=1
    )

    _, errors = second.run(second.write("entrypoint", FILLED_IN), *command)

    assert f"run {NAME!r}, which was interrupted, carries on from checkpoint_000000" in errors
    assert errors.count("begins with a model") >= 1
    view = look(open_store(s3_server.uri(bucket, NAME)))
    assert view.status == "succeeded" and view.identity.name == NAME
    assert len(view.record.kept) == 2


# ---------------------------------------------------------------------- E-8: preemption

RESUMABLE = 75


@pytest.mark.req("T-015")
def test_a_preempted_run_saves_in_time_and_resumes_at_that_step(machine: Machine) -> None:
    """Not one failure is allowed."""
    script, storage = machine.write("preemption"), str(machine.home / "storage")
    run = machine.home / "storage" / "preempted"
    process = machine.launch(script, "--storage_path", storage, "--num_steps", "10000000")
    while [*begun(run).values()] != [["begins with step 0"] * 2]:
        assert process.poll() is None, process.communicate()[1]
        pause()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate()

    assert process.returncode == RESUMABLE, errors
    assert "the same command carries on from checkpoint_000000" in errors
    [checkpoint] = run.glob("checkpoint_*")
    saved = int((checkpoint / "step").read_text())
    in_time = f"saves in time, in step {saved} for ranks [0, 1]"
    assert all(in_time in lines for lines in printed(run).values())
    output, _ = machine.run(script, "--storage_path", storage, "--num_steps", str(saved + 4))
    assert output == f"last step {saved + 3}\n"
    assert begun(run)[2] == [f"begins with step {saved + 1}"] * 2
    assert epochs(run, "step") == [*range(saved + 4)]


# ---------------------------------------------------------------------- E-9: checkpoints


@pytest.mark.req("T-004", "T-005", "T-011", "T-046", "T-055", "T-062")
def test_what_rank_0_saved_is_restored_on_all_ranks_after_the_intentional_error(
    machine: Machine,
) -> None:
    output, errors = machine.run(machine.write("checkpoint_from_single_worker"))

    run = machine.home / "ray_results" / "single_worker"
    assert output == "last epoch 4\n"
    assert begun(run) == {
        1: ["begins with epoch 0 and optimizer steps []"] * 2,
        2: ["begins with epoch 2 and optimizer steps [2, 2]"] * 2,
    }
    assert "RuntimeError: Intentional error to showcase restoration!" in errors
    assert epochs(run) == [0, 1, 2, 3, 4]
    assert all(
        sorted(path.name for path in checkpoint.iterdir())
        == ["extra_state.pt", "model.pt", "optimizer.pt"]
        for checkpoint in run.glob("checkpoint_*")
    )


def test_the_shards_of_all_ranks_become_one_checkpoint(machine: Machine) -> None:
    output, _ = machine.run(machine.write("distributed_checkpointing"))

    assert output == "['model-rank=0.pt', 'model-rank=1.pt']\n"
