"""A zygote that is a new interpreter: what it is told to begin with, and how its death is told."""

from __future__ import annotations

import re
import sys
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.engine.base import EngineError
from holdfast.engine.local.engine import LocalEngine
from holdfast.testing.suites.engine import ENTRY, ends, reports, start


def spawned(modules: tuple[str, ...] = (), of_user: tuple[str, ...] = ()) -> closing[LocalEngine]:
    return closing(LocalEngine(ENTRY, modules, start="spawn", of_user=of_user))


def write_module(folder: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a module that is to be imported; each has a name of its own."""
    name = f"module_{abs(hash(source))}"
    (folder / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(str(folder))
    return name


def test_a_path_that_is_no_text_is_no_hindrance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = [tmp_path / "a folder", b"bytes", None, 7]
    monkeypatch.setattr(sys, "path", [*sys.path, *odd])

    with spawned() as engine:
        start(engine, tmp_path, "arguments")
        [told] = reports(engine, 1)

    assert str(tmp_path / "a folder") in told["path"]
    assert not {"None", "7"} & {*told["path"]}


@pytest.mark.parametrize("count", [2_000, 60_000])
def test_a_script_may_have_more_arguments_than_one_command_line_takes_in_one_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    files = [f"{'x' * 70}-{number:09}" for number in range(count)]
    monkeypatch.setattr(sys, "argv", ["script.py", *files, "the \udcff last"])

    with spawned() as engine:
        start(engine, tmp_path, "arguments")
        [told] = reports(engine, 1)

    assert told["arguments"] == count + 2
    assert told["last"] == r"'the \udcff last'"


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("import os; os.write(2, b'no licence'); os._exit(3)", "exit code 3, and .*\\nno licence"),
        ("import os; print('farewell'); os.kill(os.getpid(), 9)", "signal 9, and .*\\nfarewell"),
        ("import os; os._exit(4)", "it ended with exit code 4$"),
    ],
)
def test_a_zygote_that_dies_tells_how_and_what_it_printed_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, told: str
) -> None:
    module = write_module(tmp_path, source, monkeypatch)

    with spawned((module,)) as engine, pytest.raises(EngineError) as raised:
        start(engine, tmp_path, "")

    assert raised.match("1 of 1 workers could not be started: the zygote, .* has died")
    assert re.search(told, raised.value.message)
    assert (raised.value.hint is None) == ("and" in told)


def test_what_a_zygote_prints_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    module = write_module(tmp_path, "print('imported')", monkeypatch)

    with spawned((module,)) as engine:
        start(engine, tmp_path, "")
        ends(engine, 1)

    assert capfd.readouterr().err == "imported\n"


FIT = "import json"
UNFIT = {
    "a thread": "import threading, time; threading.Thread(target=time.sleep, args=(600,)).start()",
    "a native thread": "import faulthandler; faulthandler.dump_traceback_later(600)",
    "a GPU": "import sys, types; sys.modules['torch.cuda'] = types.SimpleNamespace("
    "is_initialized=lambda: True)",
    "an exit": "raise SystemExit(0)",
    "an error": "import module_that_is_not_there",
    "a runtime": "import sys, types; sys.modules['grpc'] = types.ModuleType('grpc')",
}


def test_a_module_of_the_users_is_imported_once_for_all_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = write_module(tmp_path, FIT, monkeypatch)

    with spawned(of_user=(module,)) as engine:
        start(engine, tmp_path, f"module={module}")
        [told] = reports(engine, 1)

    assert told["loaded"]


@pytest.mark.parametrize("source", UNFIT.values(), ids=UNFIT)
def test_a_module_after_which_forks_break_is_left_to_each_worker(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    source: str,
) -> None:
    module = write_module(tmp_path, source, monkeypatch)

    with spawned(of_user=(module,)) as engine:
        start(engine, tmp_path, f"module={module}")
        [told] = reports(engine, 1)

    assert not told["loaded"]
    assert f"every worker imports {module} itself: " in caplog.text
