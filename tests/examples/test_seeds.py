"""The examples of the guides run with nothing but their import lines changed."""

from __future__ import annotations

import ast
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.control.run_view import look
from holdfast.storage.locate import open_store
from holdfast.testing.servers import ACCESS_KEY, SECRET_KEY, S3Server
from holdfast.train import Result
from tests.examples.seeds.scripts import Machine, names, printed, seed, translated

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


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
    tree = ast.parse(translated(seed(name)))
    found = []
    for node in tree.body:
        if isinstance(node, ast.Assign):
            found.append(eval(ast.unparse(node.value), {"ray": holdfast}))
    return found


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

EPOCH = {"event": "tempfile.mkdtemp"}  # what a worker of these examples does once in each
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
    machine.kill_while_workers_wait(initial, workers=2, event="tempfile.mkdtemp", count=4)

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
    machine.kill_while_workers_wait(script, workers=2, event="tempfile.mkdtemp", count=3)

    machine.run(script)

    assert begun(run) == {1: ["begins with epoch 0"] * 2, 2: ["begins with epoch 2"] * 2}
    assert epochs(run) == [0, 1, 2, 3, 4]


@pytest.mark.req("T-024")
def test_a_run_with_datasets_is_not_restored_without_them(machine: Machine) -> None:
    initial = machine.write("initial_run")
    restored = machine.write("restored_run", {"\n    datasets=get_datasets(),": ""})
    machine.kill_while_workers_wait(initial, workers=2, event="tempfile.mkdtemp", count=2)

    process = machine.launch(restored)
    _, errors = process.communicate()

    assert process.returncode != 0
    assert "ValueError" in errors or "CannotRestore" in errors
    assert "'train'" in errors


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
    first.kill_while_workers_wait(
        first.write("initial_run", bucket), workers=2, event="tempfile.mkdtemp", count=4
    )

    text = "\n".join(second.run(second.write("restored_run", bucket)))

    assert "last epoch 4 in results-bucket/" in text
    assert "carries on from checkpoint_000002" in text
    assert "begins with epoch 3" in text


@pytest.mark.req("T-015", "T-027", "T-028", "T-088")
def test_one_script_begins_and_carries_on_as_the_guide_has_it(machine: Machine) -> None:
    """It calls `fit` in its branch and once more after it, which adds nothing."""
    script = machine.write("autoresume")
    run = machine.home / "ray_results" / "dl_restore_autoresume"
    machine.kill_while_workers_wait(script, workers=2, event="tempfile.mkdtemp", count=3)

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

    _, errors = machine.run(script, fault={"event": "shutil.rmtree", "count": 1, "does": "die"})

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
