"""The commands print names, metrics and errors of untrusted records safely."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main
from holdfast.control.record.identity import RUN_KEY
from holdfast.control.record.open_run import open_run
from holdfast.storage.locate import open_store
from tests.records import OPENED, added, result, rewrite, started, study_at_rest
from tests.runs import commit_to, save_files

BAD = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x9b1mx\rover\nforged\u202e\x00"
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def texts(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return out + err


def is_clean(text: str) -> bool:
    return all(char.isprintable() or char == "\n" for char in text)


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """Return a folder with a run and a study in which everything has a bad name."""
    lab = tmp_path / "lab"
    files = save_files(tmp_path / "files", {"model": b"w"})
    with open_run(open_store(lab / "run"), name="run") as run:
        commit_to(run, files, step=1, metrics={f"loss{BAD}": BAD, "x": 0.5})
        run.append("checkpoint_quarantined", {"number": 0, "problems": [BAD]}).wait()
    rewrite(lab / "run" / RUN_KEY, name=BAD)
    logs = lab / "run" / "logs" / "attempt-1"
    logs.mkdir(parents=True)
    (logs / "rank-0.log").write_text(f"said {BAD}\n\x1b[32mgreen\x1b[0m\n")
    kind, trial = added("a1", config={f"lr{BAD}": BAD})
    trial |= {"name": BAD, "tag": BAD, "params": {f"lr{BAD}": BAD}, "trainable": BAD}
    bad = result("a1", 1, 1, **{f"loss{BAD}": 0.5, "text": BAD, "node_ip": BAD, "pid": BAD})
    study_at_rest(
        lab / "study",
        [
            OPENED,
            (kind, trial),
            started("a1"),
            bad,
            ("odd", {}),
            ("study_stopped", {"reason": BAD}),
        ],
        trainable=BAD,
        tune_config={"metric": f"loss{BAD}", "mode": "min", "scheduler": BAD, "search_alg": BAD},
        not_kept=[f"TuneConfig.{BAD}"],
    )
    rewrite(lab / "study" / RUN_KEY, name=BAD)
    (lab / "\x1b[2Jdamaged" / ".holdfast").mkdir(parents=True)
    (lab / "\x1b[2Jdamaged" / RUN_KEY).write_text("{}")
    return lab


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_no_text_of_a_record_reaches_the_terminal_as_a_command(
    form: list[str], lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = [texts(capsys, "ls", lab, *form)]
    folders = (lab / "run", lab / "study", lab / "study" / "train_a1", lab / "\x1b[2Jx")
    for command in (["show"], ["logs"], ["verify"], ["gc", "--dry-run"]):
        outputs += [texts(capsys, *command, folder, *form) for folder in folders]

    assert [text for text in outputs if not is_clean(text)] == []
    assert any("loss" in text for text in outputs), "they did say something"


def test_colours_of_a_log_are_left_on_a_terminal_and_nothing_else(
    lab: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal:
        encoding = "utf-8"
        isatty = staticmethod(lambda: True)

    written: list[str] = []
    monkeypatch.setattr("click.echo", lambda text, **_: written.append(text))
    monkeypatch.setattr(sys, "stdout", Terminal())

    with pytest.raises(SystemExit):
        main(["logs", str(lab / "run")])

    assert "\x1b[32mgreen\x1b[0m" in written[-1]
    assert not any("\x1b]0" in line or "\x1b[2J" in line or "\x07" in line for line in written)


def in_ascii(*arguments: str) -> Any:
    environment = {**os.environ, **ASCII}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, check=False
    )


def test_names_that_the_locale_cannot_encode_are_listed_and_shown(tmp_path: Path) -> None:
    with open_run(open_store(tmp_path / "läb-日本"), name="läb-日本"):
        pass
    (tmp_path / os.fsdecode(b"b\xffd") / ".holdfast").mkdir(parents=True)
    (tmp_path / os.fsdecode(b"b\xffd") / RUN_KEY).write_text("{}")

    listed = in_ascii("-m", "holdfast.cli", "ls", str(tmp_path))
    shown = in_ascii("-m", "holdfast.cli", "show", str(tmp_path / "läb-日本"))

    assert (listed.returncode, shown.returncode) == (0, 0), listed.stderr + shown.stderr
    assert listed.stdout.count(b"\n") == 4, "a header, two runs, and what is wrong with one"
    assert b"l\\xe4b-\\u65e5\\u672c" in shown.stdout


def test_a_name_that_no_file_can_have_in_this_locale_is_refused_in_words(tmp_path: Path) -> None:
    script = (
        "from holdfast.control.record.open_run import open_run\n"
        "from holdfast.control.record.identity import run_store\n"
        "from holdfast.errors import HoldfastError\n"
        "import sys\n"
        "try:\n"
        "    open_run(run_store(sys.argv[1], 'l\\xe4b'), name='l\\xe4b')\n"
        "except HoldfastError as error:\n"
        "    print(ascii(str(error)))\n"
    )

    ran = in_ascii("-c", script, str(tmp_path))

    assert b"l\\\\xe4b' cannot be the name of a file here" in ran.stdout, ran.stderr
    assert b"LC_ALL=C.UTF-8" in ran.stdout


@pytest.mark.parametrize("key", [".holdfast/run.json", ".holdfast/lease/00000001.json"])
def test_a_pipe_or_a_device_in_place_of_a_record_holds_nobody_up(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("good", "pipe", "device"):
        with open_run(open_store(tmp_path / name), name=name):
            pass
    (tmp_path / "pipe" / key).unlink()
    os.mkfifo(tmp_path / "pipe" / key)
    (tmp_path / "device" / key).unlink()
    (tmp_path / "device" / key).symlink_to("/dev/zero")
    logs = tmp_path / "good" / "logs" / "attempt-1"
    logs.mkdir(parents=True)
    os.mkfifo(logs / "rank-0.log")

    output = texts(capsys, "ls", tmp_path)

    assert all(name in output for name in ("good", "pipe", "device"))
    assert "cannot read" in texts(capsys, "logs", tmp_path / "good")
