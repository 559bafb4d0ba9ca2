"""A location is shown without its secrets, and stored without any credentials."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.checkpoint import Checkpoint
from holdfast.errors import ConfigError
from holdfast.storage.foreign.arrow import arrow_filesystem
from holdfast.storage.locate import closed_to_others, open_store
from holdfast.storage.memory import MemoryStore
from holdfast.storage.uris import shown_location, without_credentials, without_secrets

AZURE = "abfss://data@lab.dfs.core.windows.net"


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("s3://lab/runs", "s3://lab/runs"),
        ("s3://lab/runs?secret_key=hush", "s3://lab/runs?…"),
        ("s3://AKIA:hush@lab/runs", "s3://…@lab/runs"),
        ("s3://AKIA:hu/s@h@lab/runs?region=x", "s3://…@lab/runs?…"),
        ("s3://AKIA:hush", "s3://…"),
        ("s3://AKIA:hu?sh@lab/runs", "s3://…?…"),
        ("s3://AKIA:12?sh@lab/runs", "s3://…?…"),
        ("s3:/lab?secret_key=hush", "s3:/lab?…"),
        ("s3:AKIA:hush@lab", "s3:…@lab"),
        ("S3://lab?secret_key=hush", "S3://lab?…"),
        ("hdfs://user:hush@host:8020/x", "hdfs://…@host:8020/x"),
        ("hdfs://host:8020/x", "hdfs://host:8020/x"),
        ("gs://anonymous@lab/x", "gs://anonymous@lab/x"),
        (f"{AZURE}/x?sas_token=hush", f"{AZURE}/x?…"),
        ("s3://lab/run@2:x", "s3://lab/run@2:x"),
        ("/runs/a?b@c:d", "/runs/a?b@c:d"),
        ("file:///runs/a?b", "file:///runs/a?b"),
        ("memory://lab/a?b", "memory://lab/a?b"),
        ("~/runs", "~/runs"),
        ("", ""),
    ],
)
def test_what_people_are_shown_holds_no_secret(location: str, shown: str) -> None:
    assert without_secrets(location) == shown
    assert shown_location(location) == repr(shown)
    assert repr(Checkpoint(location, object())) == f"Checkpoint({shown!r})"


def test_what_is_no_text_is_shown_without_the_secrets_in_it() -> None:
    given = ["s3://lab/x?secret_key=hush", {"a": "s3://AKIA:hush@lab"}]

    assert shown_location(given) == "['s3://lab/x?…', {'a': 's3://…@lab'}]"
    assert shown_location(None) == "None"
    assert len(shown_location(["s3://lab/x?secret_key=hush"] * 100)) < 100


@pytest.mark.parametrize(
    ("location", "written"),
    [
        ("s3://lab/runs", "s3://lab/runs"),
        ("s3://AKIA:hush@lab/run@2:x?region=here", "s3://lab/run@2:x?region=here"),
        (
            "s3://lab/x?access_key=AKIA&secret_key=hush&endpoint_override=host%3A9000&scheme=http",
            "s3://lab/x?endpoint_override=host%3A9000&scheme=http",
        ),
        ("s3://lab/x?unheard_of=hush", "s3://lab/x"),
        ("s3://AKIA:hu/sh@lab/x", "s3://…@lab/x"),
        ("gs://anonymous@lab/x?service_account_key=hush", "gs://anonymous@lab/x"),
        (f"{AZURE}/x?account_key=hush&account_name=lab", f"{AZURE}/x?account_name=lab"),
        ("/runs/a?b", "/runs/a?b"),
        ("file:///a?secret_key=a name", "file:///a?secret_key=a name"),
    ],
)
def test_what_is_written_down_says_where_and_not_how_to_get_in(location: str, written: str) -> None:
    assert without_credentials(location) == written


# ---------------------------------------------------------------------- filesystems

ENDPOINT = "endpoint_override=http://127.0.0.1:9&access_key=AKIA&secret_key=hush&region=here"


@pytest.mark.parametrize("location", [f"s3://lab/runs?{ENDPOINT}", "s3://lab/runs"])
def test_the_filesystem_of_a_checkpoint_is_where_its_run_is(location: str) -> None:
    """Without the endpoint, pyarrow asks Amazon where the bucket is."""
    query = location.partition("?")[2]
    options = {} if query else dict(pair.split("=", 1) for pair in ENDPOINT.split("&"))
    store = open_store(location, options=options)

    for checkpoint in (
        Checkpoint.in_run(store, "checkpoint_000000"),
        Checkpoint(f"s3://lab/runs/checkpoint_000000?{ENDPOINT}"),
    ):
        filesystem = checkpoint.filesystem
        assert filesystem.region == "here"
        with pytest.raises(OSError, match=r"(?i)connect|curlCode"):
            filesystem.get_file_info(f"{checkpoint.path}/x")


def test_each_cloud_has_a_filesystem_with_the_options_of_its_uri() -> None:
    gcs = arrow_filesystem("gs://lab/x?endpoint_override=http://127.0.0.1:9&anonymous=true")
    azure = arrow_filesystem("az://lab/x?account_name=acme&account_key=aHVzaA==")

    assert gcs.type_name == "gcs"
    assert azure.type_name == "abfs"


def test_a_filesystem_that_cannot_be_is_refused_without_a_secret() -> None:
    for location in (
        "s3://lab/x?secret_key=hush",
        "hdfs://user:hush@nowhere:1/x?y=hush",
        "az://lab/x?account_key=hush",
        "ftp://user:hush@host/x",
    ):
        with pytest.raises(ConfigError) as refused:
            arrow_filesystem(location)
        assert "hush" not in str(refused.value)
        assert refused.value.__cause__ is None


# ---------------------------------------------------------------------- files of one user


@pytest.fixture(params=[0o000, 0o022], ids=["open umask", "usual umask"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_what_is_closed_to_others_only_its_user_can_read(tmp_path: Path, umask: int) -> None:
    store = open_store(tmp_path)
    closed = closed_to_others(store)
    store.put("open", b"1")
    closed.put("closed", b"2")
    store.put("was open", b"3")
    closed.put("was open", b"4")

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"open": 0o666 & ~umask, "closed": 0o600, "was open": 0o600}
    assert store.get("closed").data == b"2"


def test_in_a_bucket_its_owner_says_who_may_read() -> None:
    store = MemoryStore()

    assert closed_to_others(store) is store
