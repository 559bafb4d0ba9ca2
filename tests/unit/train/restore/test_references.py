"""References to functions, also of scripts that were changed or moved, or train when loaded."""

from __future__ import annotations

import functools
import importlib
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import pytest

from holdfast.api.signature import takes_config
from holdfast.storage.memory import MemoryStore
from holdfast.train.restore.pickled import key_of, pickled, reference_to_pickle
from holdfast.train.restore.references import (
    CannotRestore,
    find_function,
    problem_with_function,
    reference_to_function,
)
from tests.unit.train.restore.plain_things import Model, train

STORE = MemoryStore()


def finds(reference: dict[str, Any]) -> Callable[..., Any]:
    assert problem_with_function(STORE, reference) is None
    return find_function(STORE, reference)


def misses(reference: dict[str, Any]) -> str:
    """Return why a function is not found; looking and finding must agree."""
    problem = problem_with_function(STORE, reference)
    assert problem is not None
    with pytest.raises(CannotRestore, match="train_loop_per_worker=") as refused:
        find_function(STORE, reference)
    assert isinstance(refused.value, ValueError)
    assert problem in str(refused.value)
    return problem


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder for modules and scripts; modules from there are unloaded afterwards."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in set(sys.modules) - before:
        module = sys.modules[name]
        if str(tmp_path) in str(getattr(module, "__file__", "")):
            del sys.modules[name]
            if name in cloudpickle.list_registry_pickle_by_value():
                cloudpickle.unregister_pickle_by_value(module)
    importlib.invalidate_caches()


def write(path: Path, source: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(source))
    return path


# ---------------------------------------------------------------------- modules


@pytest.mark.parametrize("function", [train, Model.of_class, Model.of_nothing, Model])
def test_a_function_of_a_module_is_found_by_its_name(function: Callable[..., Any]) -> None:
    reference = reference_to_function(function)

    assert reference is not None
    assert reference["kind"] == "import"
    assert finds(reference) == function


def test_what_has_no_name_of_its_own_has_no_reference() -> None:
    def closure() -> None: ...

    assert reference_to_function(lambda: None) is None
    assert reference_to_function(closure) is None
    assert reference_to_function(functools.partial(train, {})) is None
    assert reference_to_function(Model().train) is None


def test_a_module_that_only_exists_in_this_process_is_no_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = ModuleType("made_here")
    exec("def train(): ...", vars(module))
    monkeypatch.setitem(sys.modules, "made_here", module)

    assert reference_to_function(module.train) is None


def test_a_function_hidden_by_another_of_its_name_has_no_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import tests.unit.train.restore.plain_things as things

    before = things.train
    monkeypatch.setattr(things, "train", lambda config: None)

    assert reference_to_function(before) is None


def imports(folder: Path, module: str, name: str = "train") -> dict[str, Any]:
    return {"kind": "import", "module": module, "name": name, "root": str(folder)}


def test_a_module_is_found_below_the_folder_it_was_in(folder: Path) -> None:
    """The script beside it is not the one that restores, so its folder is not searched."""
    write(folder / "lab_a" / "__init__.py", "")
    write(folder / "lab_a" / "loops.py", "def train(): return 'found'")

    assert finds(imports(folder, "lab_a.loops"))() == "found"
    assert str(folder) in sys.path  # so that workers find it


def test_looking_for_a_function_does_not_run_its_module(folder: Path) -> None:
    write(folder / "lab_b" / "__init__.py", "raise RuntimeError('ran')")
    write(folder / "lab_b" / "loops.py", "raise RuntimeError('ran')\ndef train(): ...")

    assert problem_with_function(STORE, imports(folder, "lab_b.loops")) is None


def test_a_module_that_fails_to_load_says_why(folder: Path) -> None:
    write(folder / "lab_c.py", "import no_such_library\ndef train(): ...")

    with pytest.raises(CannotRestore, match="No module named 'no_such_library'"):
        find_function(STORE, imports(folder, "lab_c"))


@pytest.mark.parametrize(
    ("source", "is_there"),
    [
        ("def train(): ...", True),
        ("async def other(): ...", False),
        ("train = 3", False),
        ("train = lambda: None", True),
        ("if True:\n    def train(): ...", True),
        ("try:\n    from json import loads as train\nexcept ImportError:\n    train = None", True),
        ("class Other:\n    def train(self): ...", False),
        ("def outer():\n    def train(): ...", False),
        ("from os.path import *\nfrom json import *\ndef other(): ...", None),
        ("def train(:", False),
        ("", False),
    ],
)
def test_a_function_is_looked_for_in_the_source(
    folder: Path, source: str, is_there: bool | None
) -> None:
    """Only loading can show that it does not exist."""
    name = f"lab_d{abs(hash(source))}"
    write(folder / f"{name}.py", source)
    reference = imports(folder, name)

    if is_there:
        assert callable(finds(reference))
        return
    if is_there is False and source != "train = 3":
        misses(reference)
    with pytest.raises(CannotRestore):
        find_function(STORE, reference)


def test_a_module_that_is_gone_says_so(folder: Path) -> None:
    assert misses(imports(folder, "lab_gone")) == "there is no module lab_gone here"


def test_a_function_that_is_gone_from_a_loaded_module_says_so() -> None:
    reference = {
        **imports(Path("x"), "tests.unit.train.restore.plain_things"),
        "name": "Model.nothing",
    }

    assert "no longer has Model.nothing" in misses(reference)


# ---------------------------------------------------------------------- scripts


def main_of(script: Path, name: str = "train") -> dict[str, Any]:
    return {"kind": "main", "name": name, "script": str(script), "module": None}


def test_a_function_of_the_script_that_runs_wins_over_the_one_in_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = write(folder / "run_a.py", "def train(): return 'old'")
    main = ModuleType("__main__")
    exec("def train(): return 'new'", vars(main))
    monkeypatch.setitem(sys.modules, "__main__", main)

    assert finds(main_of(script))() == "new"


def test_something_else_of_that_name_in_the_script_that_runs_does_not_count(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = write(folder / "run_b.py", "def train(): return 'of the file'")
    main = ModuleType("__main__")
    exec("from json import loads as train", vars(main))
    monkeypatch.setitem(sys.modules, "__main__", main)

    assert finds(main_of(script))() == "of the file"


def test_a_script_is_loaded_without_what_it_does_when_it_is_run(folder: Path) -> None:
    write(folder / "beside_c.py", "WORD = 'beside'")
    script = write(
        folder / "run_c.py",
        """
        from beside_c import WORD
        def train():
            return WORD + HELPER
        HELPER = '!'
        if __name__ == "__main__":
            raise SystemExit("this is only for the one who runs it")
        """,
    )

    function = finds(main_of(script))

    assert function() == "beside!"
    assert find_function(STORE, main_of(script)) is function
    assert reference_to_function(function) == main_of(script)
    again = cloudpickle.loads(cloudpickle.dumps(function))  # by value: no worker has the module
    assert again is not function
    assert again() == "beside!"


def test_a_script_that_trains_as_soon_as_it_is_loaded_is_stopped_there(folder: Path) -> None:
    marker = folder / "trained"
    script = write(
        folder / "run_d.py",
        f"""
        from pathlib import Path
        from holdfast.train import DataParallelTrainer, RunConfig
        def train():
            Path({str(marker)!r}).touch()
        trainer = DataParallelTrainer(train, run_config=RunConfig(storage_path={str(folder)!r}))
        trainer.fit()
        raise RuntimeError("training is over")
        """,
    )

    function = finds(main_of(script))

    assert not takes_config(function)
    assert not marker.exists()
    assert {path.name for path in folder.iterdir() if path.is_dir()} <= {"__pycache__"}


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import argparse\nraise SystemExit(2)\ndef train(): ...", "SystemExit: 2"),
        ("1 / 0\ndef train(): ...", "ZeroDivisionError"),
        (
            "from holdfast.train import DataParallelTrainer as T\nT(print).fit()\ndef train(): ...",
            "trains before it defines the function",
        ),
    ],
)
def test_a_script_that_cannot_be_loaded_says_why_and_what_to_pass(
    folder: Path, source: str, reason: str
) -> None:
    script = write(folder / f"run_e{abs(hash(source))}.py", source)

    for _ in range(2):  # what is half loaded must not be taken for whole the next time
        with pytest.raises(CannotRestore, match=reason) as refused:
            find_function(STORE, main_of(script))

        assert "train_loop_per_worker=" in str(refused.value.hint)


def test_a_script_that_fails_after_its_function_is_used_as_far_as_it_goes(folder: Path) -> None:
    """It reads a command line that is not its own, as scripts without a guard do."""
    script = write(
        folder / "run_f.py",
        """
        import sys
        def train(): return 'found'
        sys.exit('two arguments are needed')
        """,
    )

    with pytest.warns(UserWarning, match="run_f.py was loaded .* only up to an error"):
        function = find_function(STORE, main_of(script))

    assert function() == "found"


def test_a_script_that_is_gone_says_so(folder: Path) -> None:
    assert "cannot be read" in misses(main_of(folder / "gone.py"))


# ---------------------------------------------------------------------- pickles


def keep(function: Callable[..., Any]) -> dict[str, Any]:
    data = pickled(function)
    reference = reference_to_pickle(data)
    STORE.put(key_of(reference), data)
    return reference


def test_a_closure_comes_back_from_its_pickle() -> None:
    word = "captured"

    assert finds(keep(lambda: word))() == "captured"


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_a_damaged_pickle_is_not_unpickled(damage: str) -> None:
    reference = keep(lambda: damage)
    data = STORE.get(key_of(reference)).data
    if damage == "gone":
        STORE.delete(key_of(reference))
    else:
        flipped = bytes([data[0], data[1] ^ 1]) + data[2:]
        STORE.put(key_of(reference), flipped if damage == "flipped" else data[:-1])

    misses(reference)


def test_a_pickle_of_another_python_is_not_unpickled() -> None:
    reference = {**keep(lambda: None), "python": "3.4"}

    assert "pickled by Python 3.4" in misses(reference)


def test_what_was_too_large_to_keep_says_so() -> None:
    reason = "with 300 MB it was too large to keep"

    assert misses({"kind": "lost", "why": reason}) == reason
