"""Paths in search spaces: values like texts, kept with the study and given back as paths."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from holdfast import tune
from holdfast.tune import ExperimentAnalysis
from holdfast.tune.schedulers import PopulationBasedTraining
from tests.integration.tune.conftest import Lab, last
from tests.integration.tune.trainables import Counter


def needs_file(config: dict[str, Any]) -> dict[str, Any]:
    """Fail until there is a file, named by a path anywhere in the config."""
    for path in (config["plain"], config["pair"][1], config["deep"]["list"][0], config["drawn"]):
        assert isinstance(path, Path)
        if not path.exists():
            raise FileNotFoundError(path)
    return {"name": config["plain"].name}


def test_a_study_with_paths_goes_on_without_its_space(lab: Lab, tmp_path: Path) -> None:
    wanted = tmp_path / "wanted"
    space = {
        "plain": wanted,
        "pair": tune.grid_search([(1, wanted)]),
        "deep": {"list": [wanted]},
        "drawn": tune.sample_from(lambda config: config["plain"]),
    }
    failed = lab.fit(needs_file, space)
    wanted.touch()
    again = lab.restore(needs_file, resume_errored=True)

    assert failed.num_errors == 1
    assert again.errors == []
    assert last(again[0])["name"] == "wanted"
    config = again[0].config
    assert config is not None
    assert config["pair"] == (1, wanted)
    assert type(config["drawn"]) is type(wanted)


def test_a_new_trial_of_a_restored_study_draws_its_paths(lab: Lab, tmp_path: Path) -> None:
    space = {"data": tune.choice([tmp_path / "a", tmp_path / "b"])}

    def train(config: dict[str, Any]) -> dict[str, Any]:
        return {"is_path": isinstance(config["data"], Path)}

    lab.fit(train, space)
    more = tune.Tuner.restore(str(lab.study), train).extend(num_samples=3).fit()

    assert [last(one)["is_path"] for one in more] == [True] * 4


def test_files_for_people_show_a_path_as_text(lab: Lab, tmp_path: Path) -> None:
    results = lab.fit(lambda config: {"loss": 1.0}, {"data": tmp_path, "pair": (tmp_path, 2)})
    folder = Path(results[0].path or "")

    params = json.loads((folder / "params.json").read_text())
    [row] = [json.loads(line) for line in (folder / "result.json").read_text().splitlines()]

    assert params == {"data": str(tmp_path), "pair": [str(tmp_path), 2]}
    assert row["config"] == params
    assert ExperimentAnalysis(lab.study).trials[0].config["data"] == tmp_path
    assert list(results.get_dataframe()["config/data"]) == [tmp_path]


def test_population_based_training_changes_paths_and_keeps_them(lab: Lab) -> None:
    options = [Path("a"), Path("b")]
    scheduler = PopulationBasedTraining(
        perturbation_interval=1, hyperparam_mutations={"data": options}
    )
    results = lab.fit(
        Counter,
        {"data": tune.grid_search(options), "add": tune.grid_search([1, 2])},
        tune={"metric": "count", "mode": "max", "scheduler": scheduler},
        stop={"training_iteration": 4},
    )

    assert results.errors == []
    assert all(one.config and one.config["data"] in options for one in results)
    stored = ExperimentAnalysis(lab.study).trials
    assert [trial.config for trial in stored] == [one.config for one in results]
