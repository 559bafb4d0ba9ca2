"""Scripts as the guides of all eras show them: killed, changed, moved away, and given again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.train import DataParallelTrainer
from holdfast.train.restore.references import CannotRestore
from tests.integration.train.conftest import Lab
from tests.integration.train.test_drivers import acknowledged, end, wait_for_step

ROOT = Path(__file__).parents[3]

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*restore is deprecated:DeprecationWarning"),
]

LOOP = """
import itertools
import sys
from pathlib import Path

from holdfast import train
from holdfast.train import DataParallelTrainer, RunConfig
from tests.integration.train.loops import begin, note, save

WORD = "the first"


def train_fn(config):
    notes = Path(config["notes"])
    for step in itertools.count(begin(notes)):
        save(step)
        note(notes, what="acknowledged", rank=0, step=step)
        if notes.with_name("stop").exists():
            return f"{WORD} version"
"""

PLAIN = (
    LOOP
    + """
if __name__ == "__main__":
    storage_path, name, notes = sys.argv[1:]
    result = DataParallelTrainer(
        train_fn,
        train_loop_config={"notes": notes},
        run_config=RunConfig(name, storage_path),
    ).fit()
    print(result.return_value)
"""
)

# As the guide of Train V1 has it, `fit` inside and after the branch included, and no guard.
AUTO_RESUME = (
    LOOP
    + """
storage_path, name, notes = sys.argv[1:]
path = f"{storage_path}/{name}"
if DataParallelTrainer.can_restore(path):
    trainer = DataParallelTrainer.restore(path)
    result = trainer.fit()
    print("restored")
else:
    trainer = DataParallelTrainer(
        train_fn,
        train_loop_config={"notes": notes},
        run_config=RunConfig(name, storage_path),
    )
result = trainer.fit()
print(result.return_value)
"""
)

# As the guide of Train V2 has it: who submits the job says what it is called.
ENTRYPOINT = (
    LOOP
    + """
import argparse

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--storage_path", type=str, required=True)
    parser.add_argument("--run_name", type=str, required=True)
    args = parser.parse_args()
    trainer = DataParallelTrainer(
        train_fn,
        train_loop_config={"notes": str(Path(args.storage_path).with_name("notes"))},
        run_config=RunConfig(storage_path=args.storage_path, name=args.run_name),
    )
    print(trainer.fit().return_value)
    print(train.Result.from_path(f"{args.storage_path}/{args.run_name}").path)
"""
)


class Script:
    """A script in a file of its own, with what it is launched with."""

    def __init__(self, lab: Lab, source: str) -> None:
        self.lab = lab
        self.path = lab.folder / "scripts" / "train_script.py"
        self.path.parent.mkdir()
        self.path.write_text(source)
        self.arguments = [str(lab.storage), "run", str(lab.notes)]
        self.launched: list[subprocess.Popen[str]] = []

    def launch(self) -> subprocess.Popen[str]:
        ours = ("RAY_", "HOLDFAST_")
        plain = {name: one for name, one in os.environ.items() if not name.startswith(ours)}
        process = subprocess.Popen(
            [sys.executable, str(self.path), *self.arguments],
            env={**plain, "PYTHONPATH": os.pathsep.join(["src", str(ROOT)])},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.launched.append(process)
        return process

    def kill_after(self, step: int) -> int:
        """Launch it, kill it soon after a step, and return the newest step acknowledged by then."""
        driver = self.launch()
        wait_for_step(self.lab, step, driver)
        end(driver, signal.SIGKILL)
        return acknowledged(self.lab)

    def finish(self) -> str:
        """Launch it, let it end after its next step, and return what it printed."""
        self.lab.notes.with_name("stop").touch()
        driver = self.launch()
        output, errors = driver.communicate()
        assert driver.returncode == 0, errors
        return output

    def change(self, old: str, new: str) -> None:
        source = self.path.read_text()
        assert old in source
        self.path.write_text(source.replace(old, new))


@pytest.fixture
def script(lab: Lab) -> Iterator[Callable[[str], Script]]:
    made: list[Script] = []

    def make(source: str) -> Script:
        made.append(Script(lab, source))
        return made[-1]

    yield make
    for one in made:
        for process in one.launched:
            process.kill()
            process.communicate()
    for name in [name for name in sys.modules if name.startswith("holdfast_script_")]:
        del sys.modules[name]


def keys_of(config: dict[str, str]) -> list[str]:
    return list(config)


def steps_begun_with(lab: Lab) -> list[int | None]:
    return [fact["step"] for fact in lab.begun()]


@pytest.mark.req("T-027")
def test_the_same_script_restores_what_its_first_launch_began(
    lab: Lab, script: Callable[[str], Script]
) -> None:
    """E-5. The restored run is run twice, because the script says so."""
    auto_resume = script(AUTO_RESUME)

    reached = auto_resume.kill_after(2)
    printed = auto_resume.finish()

    first, second, third = steps_begun_with(lab)
    assert printed == "restored\nthe first version\n"
    assert first is None
    assert second is not None and third is not None
    assert second >= reached
    assert third == second + 1


@pytest.mark.req("T-021")
def test_a_run_of_a_script_is_restored_by_somebody_else_from_its_path(
    lab: Lab, script: Callable[[str], Script]
) -> None:
    """E-3. The script is loaded for its function, and what it does when it is run is left out."""
    plain = script(PLAIN)
    reached = plain.kill_after(2)
    lab.notes.with_name("stop").touch()

    assert DataParallelTrainer.can_restore(lab.run)
    result = DataParallelTrainer.restore(lab.run).fit()

    first, second = steps_begun_with(lab)
    assert result.return_value == "the first version"
    assert first is None
    assert second is not None and second >= reached


def test_a_script_that_trains_when_loaded_is_restored_without_training_twice(
    lab: Lab, script: Callable[[str], Script], monkeypatch: pytest.MonkeyPatch
) -> None:
    auto_resume = script(AUTO_RESUME)
    auto_resume.kill_after(0)
    lab.notes.with_name("stop").touch()
    monkeypatch.setattr(sys, "argv", [str(auto_resume.path), *auto_resume.arguments])

    result = DataParallelTrainer.restore(lab.run).fit()

    assert result.return_value == "the first version"
    assert len(steps_begun_with(lab)) == 2


@pytest.mark.req("T-089")
@pytest.mark.parametrize("source", ["plain", "auto_resume"])
def test_a_script_that_was_changed_meanwhile_runs_as_it_is_now(
    lab: Lab, script: Callable[[str], Script], source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = script({"plain": PLAIN, "auto_resume": AUTO_RESUME}[source])
    reached = changed.kill_after(1)
    changed.change('WORD = "the first"', 'WORD = "the second"')

    assert changed.finish().endswith("the second version\n")
    assert (steps_begun_with(lab)[1] or 0) >= reached
    monkeypatch.setattr(sys, "argv", [str(changed.path), *changed.arguments])
    result = DataParallelTrainer.restore(lab.run).fit()
    assert result.return_value == "the second version"
    assert not (lab.run / ".holdfast" / "pickled").exists()


def test_a_script_that_is_gone_is_missed_and_its_function_can_be_passed(
    lab: Lab, script: Callable[[str], Script]
) -> None:
    plain = script(PLAIN)
    plain.kill_after(0)
    plain.path.unlink()

    assert not DataParallelTrainer.can_restore(lab.run)
    with pytest.raises(CannotRestore, match="train_loop_per_worker="):
        DataParallelTrainer.restore(lab.run)
    result = DataParallelTrainer.restore(lab.run, keys_of).fit()
    assert result.return_value == ["notes"]
    assert DataParallelTrainer.can_restore(lab.run), "from now on there is a function again"


def test_what_was_typed_in_is_restored_from_its_pickle(lab: Lab) -> None:
    """As in a notebook: there is no file to find the function in again."""
    lab.notes.with_name("stop").touch()
    place = [str(lab.storage), "run", str(lab.notes)]
    subprocess.run([sys.executable, "-c", PLAIN, *place], check=True, capture_output=True, cwd=ROOT)

    result = DataParallelTrainer.restore(lab.run).fit()

    assert result.return_value == "the first version"
    assert steps_begun_with(lab) == [None, 0]
    assert len(list((lab.run / ".holdfast" / "pickled").iterdir())) == 1


def test_a_module_that_is_run_by_name_is_restored_by_name(lab: Lab) -> None:
    """`python -m package.script`: its functions belong to `__main__` there, and here to it."""
    place = [str(lab.storage), "run", "3", str(lab.notes)]
    subprocess.run(
        [sys.executable, "-m", "tests.integration.train.script", *place],
        check=True,
        capture_output=True,
        cwd=ROOT,
    )

    trainer = DataParallelTrainer.restore(lab.run)

    assert trainer.train_loop_per_worker.__module__ == "tests.integration.train.script"
    assert trainer.scaling_config.num_workers == 2


# ---------------------------------------------------------------------- the pair on a command line


@pytest.mark.req("T-081", "T-083", "T-084", "T-086")
def test_the_same_command_resumes_the_run_that_it_names(
    lab: Lab, script: Callable[[str], Script]
) -> None:
    """E-7. The killed driver takes all its workers along."""
    entrypoint = script(ENTRYPOINT)
    name = "unique_run_id=da823d5"
    entrypoint.arguments = [f"--storage_path={lab.storage}", f"--run_name={name}"]

    reached = entrypoint.kill_after(2)
    printed = entrypoint.finish()

    first, second = steps_begun_with(lab)
    assert printed == f"the first version\n{lab.storage / name}\n"
    assert first is None
    assert second is not None and second >= reached
    entrypoint.arguments[1] = "--run_name=another"
    entrypoint.finish()
    assert steps_begun_with(lab)[2] is None


@pytest.mark.req("T-082")
@pytest.mark.parametrize("left_out", ["--storage_path", "--run_name"])
def test_a_command_without_half_of_the_pair_is_no_launch(
    lab: Lab, script: Callable[[str], Script], left_out: str
) -> None:
    entrypoint = script(ENTRYPOINT)
    given = [f"--storage_path={lab.storage}", "--run_name=run"]
    entrypoint.arguments = [one for one in given if not one.startswith(left_out)]

    driver = entrypoint.launch()
    _, errors = driver.communicate()

    assert driver.returncode == 2
    assert left_out in errors
    assert not lab.storage.exists()


@pytest.mark.req("T-034")
def test_no_environment_variable_is_needed(lab: Lab, script: Callable[[str], Script]) -> None:
    lab.notes.with_name("stop").touch()

    assert script(PLAIN).finish() == "the first version\n"
