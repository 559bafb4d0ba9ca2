"""Hostile records of studies: reading one runs nothing, and resuming one only the user's code."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main
from holdfast.control.record.identity import STUDY_KEY
from holdfast.storage.records import seal, unseal
from holdfast.tune import ExperimentAnalysis, RunConfig, Tuner
from holdfast.tune.search.functions import config_of
from holdfast.tune.search.objects import Objects
from holdfast.tune.search.searcher_state import from_data
from holdfast.tune.search.stored_space import space_from_data
from holdfast.tune.search.variant_generator import tree_of
from holdfast.tune.study.stored_spec import CannotRestoreStudy
from tests.records import rewrite, study_at_rest

LOOKS: dict[str, Callable[[Path], object]] = {
    "ls": lambda study: main(["ls", str(study.parent)]),
    "ls --json": lambda study: main(["ls", str(study.parent), "--json"]),
    "show": lambda study: main(["show", str(study)]),
    "show --json": lambda study: main(["show", str(study), "--json"]),
    "logs": lambda study: main(["logs", str(study)]),
    "verify": lambda study: main(["verify", str(study)]),
    "gc": lambda study: main(["gc", str(study), "--dry-run"]),
    "can_restore": Tuner.can_restore,
    "analysis": lambda study: ExperimentAnalysis(study).results,
    "results": lambda study: list(ExperimentAnalysis(study).result_grid),
}


CONFIG_OF = {"stop": "run_config"}


def train(config: dict[str, Any]) -> None:
    """The trainable of the study."""


def made(path: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    return {"@made": {"class": path, "args": list(args), "kwargs": kwargs}}


def attacks(canary: Path) -> dict[str, Any]:
    """Return records that would call something that makes the file `canary`."""
    command = ["touch", str(canary)]
    code = f"open({str(canary)!r}, 'w')"
    expression = made("holdfast.tune.search.variant_generator:Expression", code)
    pbt = "holdfast.tune.schedulers.pbt:PopulationBasedTraining"
    return {
        "function": made("subprocess:check_call", command),
        "through an import of ours": made(
            "holdfast.engine.local.zygote_line:subprocess.check_call", command
        ),
        "os": made("os:system", f"touch {canary}"),
        "posix": made("posix:system", f"touch {canary}"),
        "eval": made("builtins:eval", code),
        "class": made("subprocess:Popen", command),
        "dataclass": {"@dataclass": {"class": "subprocess:Popen", "fields": {"args": command}}},
        "inner": made("holdfast.tune.schedulers:FIFOScheduler", made("subprocess:Popen", command)),
        "a module that is not loaded": made("evil_at_rest:Scheduler"),
        "a function by name": {"@import": "evil_at_rest:Scheduler"},
        "an expression": made(
            pbt, hyperparam_mutations={"x": expression}, metric="loss", mode="min",
            perturbation_interval=1,
        ),
        "a command of ours": made("holdfast.cli.__main__:main"),
        "a file to read": made(
            "holdfast.tune.schedulers.pbt_replay:PopulationBasedTrainingReplay", str(canary)
        ),
    }  # fmt: skip


@pytest.fixture(scope="module")
def plain_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain") / "study"
    study_at_rest(folder)
    return folder


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file that any code run from the record makes, such as the module `evil_at_rest`."""
    canary = tmp_path / "ran"
    home = tmp_path / "modules"
    home.mkdir()
    (home / "evil_at_rest.py").write_text(f"open({str(canary)!r}, 'w')\nclass Scheduler: ...\n")
    monkeypatch.syspath_prepend(str(home))
    return canary


@pytest.mark.parametrize("look", LOOKS)
def test_looking_at_a_study_runs_nothing_that_its_record_names(
    look: str, tmp_path: Path, plain_study: Path, canary: Path
) -> None:
    study = Path(shutil.copytree(plain_study, tmp_path / "lab" / "study"))
    for attack, bad in attacks(canary).items():
        config = {"scheduler": bad, "search_alg": bad, "metric": "loss", "mode": "min"}
        rewrite(study / STUDY_KEY, tune_config=config, run_config={"stop": bad})

        with contextlib.suppress(SystemExit):
            LOOKS[look](study)

        assert not canary.exists() and "evil_at_rest" not in sys.modules, attack


@pytest.mark.parametrize("field", ["scheduler", "search_alg", "trial_name_creator", "stop"])
def test_a_study_does_not_resume_with_code_that_only_its_record_names(
    field: str, tmp_path: Path, plain_study: Path, canary: Path
) -> None:
    study = Path(shutil.copytree(plain_study, tmp_path / "study"))
    for attack, bad in attacks(canary).items():
        rewrite(study / STUDY_KEY, **{CONFIG_OF.get(field, "tune_config"): {field: bad}})

        with pytest.raises(CannotRestoreStudy, match="give them again"):
            Tuner.restore(study, train)

        assert not canary.exists() and "evil_at_rest" not in sys.modules, attack


def test_settings_that_are_given_again_replace_those_that_cannot_be_rebuilt(
    tmp_path: Path, plain_study: Path
) -> None:
    study = Path(shutil.copytree(plain_study, tmp_path / "study"))
    rewrite(study / STUDY_KEY, run_config={"stop": {"@import": "gone_since:stop"}})

    tuner = Tuner.restore(study, train, run_config=RunConfig(stop={"loss": 1}))

    identity = {"config": {"x": 0}, "experiment_tag": "0_x=0"}
    assert [result.metrics for result in tuner.get_results()] == [
        {"training_iteration": 1, "loss": 0.5, "done": True, **identity}
    ]


@pytest.mark.parametrize(
    "form",
    [
        lambda code: {"eval": code},
        lambda code: {"$dict": [["eval", code]]},
        lambda code: {"$domain": {"kind": "eval", "expression": code}},
        lambda code: {"$grid": [1, {"eval": code}]},
    ],
    ids=["plain", "pairs", "domain", "in a grid"],
)
def test_an_expression_is_evaluated_only_if_the_script_gives_it_again(
    form: Callable[[str], Any], tmp_path: Path
) -> None:
    code = f"__import__('os').mkdir({str(tmp_path / 'ran')!r}) or 7"
    data = seal({"x": form(code)})  # as it is written

    alone = space_from_data(unseal(data), Objects())
    _, given = Objects.of({"x": {"eval": code}})
    again = space_from_data(unseal(data), given)

    assert Objects().missing(alone), "it must be given again"
    assert not (tmp_path / "ran").exists()
    assert not given.missing(again)
    assert 7 in [config_of(tree_of(again), i, Picks()).get("x") for i in range(tree_of(again).size)]


class Picks:
    """Draws nothing: the spaces here have nothing to draw."""

    def value(self, name: str, domain: Any) -> Any:
        raise AssertionError(name)

    def option(self, name: str, count: int) -> int:
        raise AssertionError(name)

    def seed(self, name: str) -> int:
        return 0


def test_the_state_of_a_searcher_makes_generators_of_random_numbers_and_nothing_else() -> None:
    with pytest.raises(ValueError, match="not a numpy random generator"):
        from_data({"$numpy_generator": {"bit_generator": "get_state"}})
