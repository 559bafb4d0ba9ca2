"""`import holdfast` is light: what it loads is checked here; how long it takes, in bench/."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import holdfast

ROOT = Path(__file__).parents[2]
HEAVY = {
    "aiohttp",
    "boto3",
    "botocore",
    "fsspec",
    "jax",
    "numpy",
    "obstore",
    "pandas",
    "pyarrow",
    "ray",
    "tensorflow",
    "torch",
}


def _loaded_by(statement: str) -> set[str]:
    """Return the modules that `statement` adds to those of a bare interpreter."""
    program = f"import sys; bare = set(sys.modules); {statement}; print(*set(sys.modules) - bare)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def _packages(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def test_importing_holdfast_loads_nothing_but_the_standard_library() -> None:
    loaded = _packages(_loaded_by("import holdfast"))

    assert loaded - sys.stdlib_module_names == {"holdfast"}


@pytest.mark.parametrize("module", ["checkpoint", "cli", "control", "errors", "journal", "storage"])
def test_no_part_of_the_core_loads_a_heavy_library(module: str) -> None:
    loaded = _packages(_loaded_by(f"import holdfast.{module}"))

    assert not loaded & HEAVY


def test_a_study_loads_nothing_that_only_other_runs_need() -> None:
    loaded = _loaded_by("from holdfast import tune; tune.Tuner")

    assert not loaded & {
        "http.client",
        "ssl",
        "holdfast.control.run.group",
        "holdfast.control.run.plan",
    }


def test_a_submodule_is_loaded_when_it_is_first_used() -> None:
    before = _loaded_by("import holdfast")
    after = _loaded_by("import holdfast; holdfast.errors.HoldfastError")

    assert "holdfast.errors" not in before
    assert "holdfast.errors" in after


def test_the_exported_names_are_what_their_modules_hold() -> None:
    from holdfast.checkpoint import Checkpoint

    assert holdfast.Checkpoint is Checkpoint
    assert set(vars(holdfast)["__all__"]) <= set(dir(holdfast))


@pytest.mark.parametrize("name", ["no_such_thing", "_private", "__wrapped__"])
def test_an_unknown_name_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'holdfast' has no attribute '{name}'"):
        getattr(holdfast, name)


def test_a_submodule_that_lacks_something_says_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needy.py").write_text("import a_library_nobody_has")
    monkeypatch.setattr(holdfast, "__path__", [str(tmp_path)])

    with pytest.raises(ModuleNotFoundError, match="a_library_nobody_has"):
        holdfast.needy  # type: ignore[attr-defined]  # noqa: B018


def test_the_version_is_written_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    assert "version" not in project["project"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/holdfast/__init__.py"
