"""Storage paths as users write them, and the errors for invalid ones."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.fs
import pytest
from fsspec.implementations.arrow import ArrowFSWrapper
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

from holdfast.errors import ConfigError, StoreBusy
from holdfast.storage.base import Store
from holdfast.storage.bucket.address import Bucket, Cloud
from holdfast.storage.bucket.store import ObjectStore
from holdfast.storage.foreign.filesystems import ArrowFilesystem, FsspecFilesystem
from holdfast.storage.foreign.store import ForeignStore
from holdfast.storage.local.store import LocalStore
from holdfast.storage.locate import child, describe, open_store, reopen
from holdfast.storage.memory import MemoryStore
from holdfast.storage.prefix import PrefixStore
from holdfast.storage.retry import Retrying, RetryPolicy

SECRETS = ("AKIA123", "s3cr3t/+=", "t0ken")


def in_pyarrow(filesystem: object) -> pyarrow.fs.FileSystem:
    return pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(filesystem))


def inner(store: Store) -> Store:
    assert isinstance(store, Retrying)
    return store.store


def bucket(path: str, **options: str) -> Bucket:
    store = inner(open_store(path, options=options))
    assert isinstance(store, ObjectStore)
    return store.bucket


# ---------------------------------------------------------------------- folders


def test_a_relative_path_is_below_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert open_store("runs/today").url == str(tmp_path / "runs" / "today")
    assert open_store(Path("runs")).url == str(tmp_path / "runs")
    assert open_store(".").url == str(tmp_path)


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    assert open_store("~").url == str(tmp_path)
    assert open_store("~/runs").url == str(tmp_path / "runs")


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///data/runs", "/data/runs"),
        ("file://localhost/data/runs", "/data/runs"),
        ("FILE:///data/my%20runs", "/data/my runs"),
        ("file:///data/a?b#c", "/data/a?b#c"),
    ],
)
def test_a_file_uri_is_a_local_path(uri: str, path: str) -> None:
    assert open_store(uri).url == path


def test_a_path_may_hold_what_a_uri_may_not() -> None:
    assert open_store("/data/a?b=c#d%20e").url == "/data/a?b=c#d%20e"


def test_opening_touches_nothing(tmp_path: Path) -> None:
    open_store(tmp_path / "new")

    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------- memory


def test_memory_of_one_name_is_one_store() -> None:
    open_store("memory://shared/folder").put("a", b"1")

    assert open_store("memory://shared").get("folder/a").data == b"1"
    assert open_store("memory://other").stat("folder/a") is None
    assert open_store("memory://shared/folder").url == "memory://shared/folder"


# ---------------------------------------------------------------------- object stores


def test_an_s3_uri_takes_pyarrows_parameters() -> None:
    lab = bucket(
        "s3://lab/runs/today?endpoint_override=localhost:9000&scheme=http&region=eu-west-1"
        "&access_key=AKIA123&secret_key=s3cr3t/%2B%3D&session_token=t0ken"
        "&allow_bucket_creation=true&allow_bucket_deletion=false&force_virtual_addressing=False"
    )

    assert (lab.cloud, lab.name, lab.shown) == (Cloud.S3, "lab", "s3://lab")
    assert lab.may_create
    assert lab.options == {
        "access_key_id": "AKIA123",
        "endpoint": "http://localhost:9000",
        "region": "eu-west-1",
        "secret_access_key": "s3cr3t/+=",
        "session_token": "t0ken",
        "virtual_hosted_style_request": "false",
    }


def test_an_s3_uri_takes_keys_before_the_bucket() -> None:
    lab = bucket("s3://AKIA123:s3cr3t%2F%2B%3D@lab/runs")

    assert (lab.name, lab.shown) == ("lab", "s3://lab")
    assert lab.options == {"access_key_id": "AKIA123", "secret_access_key": "s3cr3t/+="}


@pytest.mark.parametrize(
    ("given", "endpoint"),
    [
        ("endpoint_override=minio:9000", "https://minio:9000"),
        ("endpoint_override=minio:9000&scheme=http", "http://minio:9000"),
        ("endpoint_override=http%3A%2F%2Fminio%3A9000%2F", "http://minio:9000"),
        ("endpoint=https://minio", "https://minio"),
        ("endpoint_override=[::1]:9000", "https://[::1]:9000"),
    ],
)
def test_an_endpoint_is_https_unless_it_says_otherwise(given: str, endpoint: str) -> None:
    assert bucket(f"s3://lab?{given}").options["endpoint"] == endpoint


def test_a_gcs_uri() -> None:
    lab = bucket("gs://lab/runs?endpoint_override=localhost:1&scheme=http&project_id=p")

    assert (lab.cloud, lab.name, lab.shown) == (Cloud.GCS, "lab", "gs://lab")
    assert lab.options == {"base_url": "http://localhost:1"}
    assert bucket("gcs://anonymous@lab").anonymous


@pytest.mark.parametrize("scheme", ["az", "abfs", "abfss"])
def test_an_azure_uri(scheme: str) -> None:
    lab = bucket(f"{scheme}://lab/runs?account_name=acc&account_key=a2V5&sas_token=s")

    assert (lab.cloud, lab.name) == (Cloud.AZURE, "lab")
    assert lab.options == {"account_name": "acc", "account_key": "a2V5", "sas_key": "s"}


def test_an_azure_uri_may_name_its_account() -> None:
    store = open_store("abfss://lab@acc.dfs.core.windows.net/runs")

    assert store.url == "abfss://lab@acc.dfs.core.windows.net/runs"
    assert bucket("abfss://lab@acc.dfs.core.windows.net/runs").options == {"account_name": "acc"}


def test_a_key_is_taken_as_it_is_written() -> None:
    assert open_store("s3://lab/a%20b/c=d/e#f").url == "s3://lab/a%20b/c=d/e#f"


def test_secrets_are_never_shown() -> None:
    store = open_store(
        "s3://lab/runs?access_key=AKIA123&secret_key=s3cr3t/%2B%3D&session_token=t0ken"
        "&endpoint_override=http://127.0.0.1:1",
        retry=RetryPolicy(deadline_s=0.0, tries_min=1),
    )

    with pytest.raises(StoreBusy) as caught:
        store.probe(writable=True)
    for text in (
        store.url,
        repr(inner(store)),
        repr(bucket("s3://AKIA123:t0ken@lab")),
        str(caught.value),
        str(caught.value.__cause__),
    ):
        assert not any(secret in text for secret in SECRETS)


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("path", "message", "hint"),
    [
        ("", "the storage path is empty", "name a folder"),
        ("  ", "the storage path is empty", "name a folder"),
        ("/data/a\0b", "contains a NUL character", ""),
        ("ftp://host/x", "has the unknown scheme ftp://", "s3://, gs://"),
        ("hdfs://host/x", "has the unknown scheme hdfs://", "storage_filesystem"),
        ("s3:/lab/runs", "begins with s3: but is not a URI", "s3://"),
        ("file:/data/runs", "begins with file: but is not a URI", "file://"),
        ("s3://", "names no bucket", "s3://bucket/folder"),
        ("s3:///runs", "names no bucket", "s3://bucket/folder"),
        ("s3://l a b/runs", "cannot be the name of a bucket", "s3://bucket/folder"),
        ("s3://lab?regoin=x", "unknown parameters: regoin", "region"),
        ("s3://lab?region", "cannot be read: write name=value", ""),
        ("s3://lab?endpoint_override=not a host", "must be a host", "http://127.0.0.1:9000"),
        ("s3://lab?endpoint_override=ftp://x", "must be a host", "http://127.0.0.1:9000"),
        ("s3://lab?endpoint_override=x:y", "must be a host", "http://127.0.0.1:9000"),
        ("s3://lab?scheme=gopher", "must be http or https", ""),
        ("s3://lab?anonymous=maybe", "must be true or false", ""),
        ("s3://lab?access_key=x", "go together", ""),
        ("az://lab?region=x", "unknown parameters: region", "account_name"),
        ("abfss://lab@nowhere/x", "is not the host of an Azure account", "dfs.core.windows.net"),
        ("file://host/x", "names another machine", "file:///"),
        ("~nobody-of-that-name/x", "user that does not exist here", "./~nobody"),
    ],
)
def test_a_path_that_cannot_be_one_is_refused(path: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_store(path)

    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("az://lab/runs", "Account must be specified"),
        ("az://lab/runs?account_name=acc&account_key=not base64", "Invalid Access Key"),
    ],
)
def test_what_only_the_client_can_refuse_is_refused_in_our_words(uri: str, message: str) -> None:
    store = open_store(uri)

    with pytest.raises(ConfigError, match=message):
        store.probe(writable=False)


def test_bytes_are_not_a_path() -> None:
    class Odd:
        def __fspath__(self) -> bytes:
            return b"/data"

    with pytest.raises(ConfigError, match="must be text"):
        open_store(Odd())  # type: ignore[arg-type]


def test_a_uri_and_a_filesystem_do_not_go_together() -> None:
    with pytest.raises(ConfigError, match="storage_filesystem is given too"):
        open_store("s3://lab/runs", LocalFileSystem())


def test_a_filesystem_must_be_one() -> None:
    with pytest.raises(ConfigError, match="must be a filesystem of fsspec or of pyarrow"):
        open_store("runs", object())


def test_a_missing_client_says_what_to_install(tmp_path: Path) -> None:
    """In a new process, where obstore cannot be imported."""
    program = (
        "import sys; sys.modules['obstore'] = None\n"
        "from holdfast.storage.locate import open_store\n"
        "from holdfast.errors import ConfigError\n"
        "open_store('/tmp'); open_store('memory://x')\n"
        "try: open_store('s3://lab/runs')\n"
        "except ConfigError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert "need the package obstore, which is not installed" in done.stdout
    assert "pip install 'holdfast[s3]'" in done.stdout


# ---------------------------------------------------------------------- filesystems


@pytest.mark.parametrize(
    "filesystem",
    [
        pyarrow.fs.LocalFileSystem(),
        LocalFileSystem(),
        in_pyarrow(LocalFileSystem()),
        ArrowFSWrapper(pyarrow.fs.LocalFileSystem()),
    ],
    ids=["pyarrow", "fsspec", "fsspec in pyarrow", "pyarrow in fsspec"],
)
def test_a_local_filesystem_is_the_local_disk(filesystem: object, tmp_path: Path) -> None:
    store = open_store(str(tmp_path), filesystem)

    assert isinstance(store.local, LocalStore)
    assert store.url == str(tmp_path)


def test_a_folder_of_a_local_filesystem_is_the_local_disk(tmp_path: Path) -> None:
    sub = pyarrow.fs.SubTreeFileSystem(str(tmp_path), pyarrow.fs.LocalFileSystem())
    dirs = DirFileSystem(str(tmp_path), LocalFileSystem())

    assert open_store("runs", sub).url == str(tmp_path / "runs")
    assert open_store("runs", dirs).url == str(tmp_path / "runs")


def test_a_filesystem_made_from_the_local_one_is_used_as_it_is(tmp_path: Path) -> None:
    class Special(LocalFileSystem):  # type: ignore[misc]  # fsspec is not typed
        protocol = "special"

    store = open_store(str(tmp_path), Special())

    assert store.local is None
    assert isinstance(inner(store), ForeignStore)
    assert not store.fences


def test_fsspec_inside_pyarrow_is_used_without_pyarrow() -> None:
    store = inner(open_store("/x", in_pyarrow(fsspec.filesystem("memory"))))

    assert isinstance(store, ForeignStore)
    assert isinstance(store.filesystem, FsspecFilesystem)
    assert store.url == "memory:///x"


# ---------------------------------------------------------------------- again, elsewhere


def test_plain_data_opens_the_same_store_again(tmp_path: Path) -> None:
    policy = RetryPolicy(deadline_s=7.0)
    stores = [
        open_store(tmp_path, retry=policy),
        open_store("memory://again/x", retry=policy),
        open_store("s3://lab/runs?region=r&access_key=AKIA123&secret_key=t0ken", retry=policy),
        open_store("abfss://lab@acc.dfs.core.windows.net/x?account_key=a2V5", retry=policy),
        open_store("/here", fsspec.filesystem("memory"), retry=policy),
        child(open_store("gs://lab", retry=policy), "runs/bert"),
    ]

    for store in stores:
        again = reopen(json.loads(json.dumps(describe(store))))

        assert again.url == store.url
        assert describe(again) == describe(store)
        assert isinstance(again, Retrying)
        assert again.policy == policy


def test_plain_data_hold_what_the_store_was_given() -> None:
    store = child(open_store("s3://AKIA123:t0ken@lab/runs?region=r"), "bert")

    described = describe(store)

    assert described["path"] == "s3://lab/runs/bert"
    assert described["options"] == {"access_key": "AKIA123", "secret_key": "t0ken", "region": "r"}


def test_what_has_no_plain_form_says_so() -> None:
    with pytest.raises(ConfigError, match="cannot be opened again from plain data"):
        describe(MemoryStore())


def test_a_filesystem_of_pyarrow_travels_as_itself() -> None:
    filesystem = pyarrow.fs.SubTreeFileSystem("/y", in_pyarrow(fsspec.filesystem("memory")))
    store = open_store("x", filesystem)
    store.put("key", b"1")

    described = pickle.loads(pickle.dumps(describe(child(store, "below"))))

    assert described["path"] == "x/below"
    reopen(described).put("key", b"2")
    assert store.get("below/key").data == b"2"


def test_a_filesystem_of_pyarrow_that_cannot_travel_says_so() -> None:
    class Stuck:
        type_name = "stuck"

        def __reduce_ex__(self, protocol: object) -> Any:
            raise TypeError("it holds a connection")

    store = ForeignStore(ArrowFilesystem(Stuck()), "x")

    with pytest.raises(ConfigError, match=r"cannot be opened by workers: .* it holds a connection"):
        describe(store)


def test_a_part_of_a_described_store_is_described_too() -> None:
    below = PrefixStore(MemoryStore("parts"), "some/part")
    below.put("a", b"1")

    assert reopen(describe(below)).get("a").data == b"1"


def test_a_child_of_nothing_is_the_store_itself(tmp_path: Path) -> None:
    store = open_store(tmp_path)

    assert child(store, "") is store
    assert child(child(store, "a"), "b/c").url == os.path.join(tmp_path, "a", "b", "c")
