"""Bad input is refused at once, with an error that says what is wrong and what to try."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.checkpoint.commit import deliver
from holdfast.checkpoint.manifests import get_manifest, manifest_key
from holdfast.control.record.identity import RUN_KEY, run_store
from holdfast.control.record.open_run import OpenRun, OpenStudy, OpenTrainingRun, open_run
from holdfast.control.record.run_view import look
from holdfast.errors import (
    CannotResume,
    ConfigError,
    Damaged,
    FormatTooNew,
    HoldfastError,
    StoreDenied,
    StoreError,
)
from holdfast.storage.local.store import LocalStore
from holdfast.storage.locate import open_store
from holdfast.storage.records import seal, unseal
from tests.runs import commit, save_files
from tests.servers.storage import S3Server


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return save_files(tmp_path / "files", {"model.pt": b"weights"})


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("a/b", "no slash"),
        ("..", "'.' or '..'"),
        ("a\x00b", "NUL"),
        ("x" * 300, "300 bytes, at most 200"),
        ("", "not empty"),
        (" padded ", "space at either end"),
        (7, "a name is a string"),
    ],
)
def test_a_name_that_no_folder_can_have_is_refused(name: object, rule: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rule) as refused:
        run_store(tmp_path, name)  # type: ignore[arg-type]

    assert refused.value.hint
    assert len(str(refused.value)) < 300, "a long name is not repeated in full"


def test_a_name_like_those_of_trackers_is_fine(tmp_path: Path, files: Path) -> None:
    store = run_store(tmp_path, "unique_run_id=da823d5")
    with open_run(store) as run:
        assert run.identity.name == "unique_run_id=da823d5"


@pytest.mark.parametrize("path", ["ftp://host/x", "s4://bucket/x", "", "a\x00b"])
def test_a_path_that_means_nothing_is_refused(path: str) -> None:
    with pytest.raises(ConfigError) as refused:
        open_store(path)

    assert refused.value.hint


def test_a_file_is_no_storage(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")

    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StoreError, match="file") as refused:
            open_run(open_store(path))
        assert refused.value.hint


def test_storage_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    """In a process of a user who is not root, whom permissions do not bind."""
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o555)
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.getuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    script = f"""
import os
from holdfast.control.record.open_run import OpenRun, OpenStudy, OpenTrainingRun, open_run
from holdfast.errors import StoreDenied
from holdfast.storage.locate import open_store
from holdfast.control.record import litter
if os.getuid() == 0:
    os.setuid(65534)
try:
    open_run(open_store({str(folder / "run")!r}))
except StoreDenied as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert str(folder) in ran.stdout
    assert "Try: " in ran.stdout


@pytest.mark.s3
def test_a_bucket_that_does_not_exist_is_named(s3_server: S3Server) -> None:
    with pytest.raises(StoreError, match="no-such-bucket") as refused:
        open_run(open_store(s3_server.uri("no-such-bucket", "runs/x")))

    assert refused.value.hint


@pytest.mark.s3
def test_wrong_credentials_are_refused(s3_server: S3Server) -> None:
    uri = s3_server.uri("lab", "runs/x").replace("secret_key=", "secret_key=not-")

    with pytest.raises(StoreDenied) as refused:
        open_run(open_store(uri))

    assert "not-" not in str(refused.value), "the secret is not shown"
    assert refused.value.hint


def rewrite(path: Path, change: Callable[[dict], None]) -> None:
    """Change a sealed record and seal it again, as a newer version or a joker would."""
    lines = path.read_bytes().splitlines()
    record = unseal(lines[0])
    change(record)
    path.write_bytes(b"\n".join([seal(record), *lines[1:]]) + b"\n")


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "a//b", "a/../b", "x\x00y", ""]
)
def test_a_manifest_that_names_a_path_outside_its_folder_is_refused(
    name: str, tmp_path: Path, files: Path
) -> None:
    run = tmp_path / "run"
    commit(run, files)
    path = run / manifest_key("checkpoint_000000")
    rewrite(path, lambda record: record["files"][0].__setitem__(0, name))

    with pytest.raises(Damaged, match="names the path"):
        get_manifest(LocalStore(run), "checkpoint_000000")
    with open_run(LocalStore(run)) as held:
        assert held.newest_good() is None


@pytest.mark.parametrize(
    "key", [RUN_KEY, ".holdfast/journal/000001-000000.jsonl", ".holdfast/lease/00000001.json"]
)
def test_a_record_of_a_newer_version_is_refused_and_left_alone(
    key: str, tmp_path: Path, files: Path
) -> None:
    run = tmp_path / "run"
    commit(run, files)
    rewrite(run / key, lambda record: record.update(format=7))
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}

    for use in (look, open_run):
        with pytest.raises(FormatTooNew, match=r"format 7, this version reads up to 1") as refused:
            use(LocalStore(run))
        assert refused.value.hint
    assert {p: p.read_bytes() for p in run.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("name", [".holdfast", ".holdfast/x", "checkpoint_000003", "../x", "a//b"])
def test_a_checkpoint_cannot_take_a_name_that_is_ours(
    name: str, tmp_path: Path, files: Path
) -> None:
    with open_run(LocalStore(tmp_path / "run")) as run:
        with pytest.raises(ConfigError, match="cannot be named"):
            run.begin_checkpoint(attempt=1, directory=name)
        assert run.record.next_number == 0


def test_a_name_that_is_used_again_gets_a_number_and_costs_nothing(
    tmp_path: Path, files: Path
) -> None:
    with open_run(LocalStore(tmp_path / "run")) as run:
        for _ in range(2):
            slot = run.begin_checkpoint(attempt=1, directory="best")
            run.commit_checkpoint(slot, [deliver(run.store, slot, 0, files)])

        kept = [one.directory for one in run.record.usable()]
        assert kept == ["best-000001", "best"]


@pytest.mark.parametrize("what", ["missing", "a file", "a socket in it", "a broken link in it"])
def test_a_folder_that_cannot_be_saved_is_refused_and_the_run_goes_on(
    what: str, tmp_path: Path, files: Path
) -> None:
    source = tmp_path / "source"
    if what == "a file":
        source.write_text("x")
    elif what == "a socket in it":
        source.mkdir()
        os.mkfifo(source / "pipe")
    elif what == "a broken link in it":
        source.mkdir()
        (source / "link").symlink_to("nowhere")

    with open_run(LocalStore(tmp_path / "run")) as run:
        slot = run.begin_checkpoint(attempt=1)
        with pytest.raises(ConfigError, match="source"):
            deliver(run.store, slot, 0, source)
        again = run.begin_checkpoint(attempt=1)
        run.commit_checkpoint(again, [deliver(run.store, again, 0, files)])
        assert again.number == 1, "the number of the failed one is burnt"
        assert run.newest_good() is not None


@pytest.mark.parametrize(
    ("kind", "other"), [(OpenTrainingRun, OpenStudy), (OpenStudy, OpenTrainingRun)]
)
def test_neither_a_run_nor_a_study_takes_the_place_of_the_other(
    kind: type[OpenRun], other: type[OpenRun], tmp_path: Path
) -> None:
    store = LocalStore(tmp_path / "run")
    kind.open(store, beats=False).close()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    with pytest.raises(CannotResume, match=r"there is a .* at .*run, and it is not a") as refused:
        other.open(store, beats=False)

    assert refused.value.hint
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    open_run(store, beats=False).close()  # for those who take either


def test_every_refusal_is_an_error_of_ours() -> None:
    with pytest.raises(HoldfastError):
        open_store("nonsense://x")
