"""Every store we ship, under the suite that we ship."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import fsspec
import pyarrow.fs
import pytest
from fsspec.implementations.local import LocalFileSystem

from holdfast.storage.base import Store
from holdfast.storage.local.store import LocalStore
from holdfast.storage.locate import open_store
from holdfast.storage.memory import MemoryStore
from holdfast.storage.prefix import PrefixStore
from holdfast.testing.suites.store import StoreSuite
from tests.servers.gcs import GcsStub
from tests.servers.storage import ACCESS_KEY, SECRET_KEY, AzureServer, S3Server

NewFolder = Callable[[], str]


class Elsewhere(LocalFileSystem):  # type: ignore[misc]  # fsspec is not typed
    """A filesystem with files and moves that is not taken for the local one."""

    protocol = "elsewhere"


class TestMemory(StoreSuite):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore(uuid.uuid4().hex)


class TestPartOfMemory(StoreSuite):
    @pytest.fixture
    def store(self) -> Store:
        return PrefixStore(MemoryStore(uuid.uuid4().hex), "some/part")


class TestLocal(StoreSuite):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return LocalStore(tmp_path / "new" / "root")


class TestLocalFromPath(StoreSuite):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return open_store(f"file://{tmp_path}/with%20space")


@pytest.mark.s3
class TestS3(StoreSuite):
    folders_linger = True  # SeaweedFS has real folders, and sweeps empty ones later
    many = 1_050

    @pytest.fixture
    def store(self, s3_server: S3Server, new_folder: NewFolder) -> Store:
        return open_store(s3_server.uri("lab", f"conformance/{new_folder()}"))


@pytest.mark.s3
class TestS3OnMoto(StoreSuite):
    """moto answers 404 where SeaweedFS answers 412, and lists in S3's own order."""

    @pytest.fixture
    def store(self, moto_server: S3Server, new_folder: NewFolder) -> Store:
        return open_store(moto_server.uri("lab", f"conformance/{new_folder()}"))


class TestAzure(StoreSuite):
    @pytest.fixture
    def store(self, azure_server: AzureServer, new_folder: NewFolder) -> Store:
        return open_store(azure_server.uri("lab", f"conformance/{new_folder()}"))


class TestGcs(StoreSuite):
    many = 1_050

    @pytest.fixture
    def store(self, gcs_server: GcsStub, new_folder: NewFolder) -> Store:
        return open_store(gcs_server.uri("lab", f"conformance/{new_folder()}"))


class TestFsspecObjects(StoreSuite):
    @pytest.fixture
    def store(self) -> Store:
        return open_store(f"/{uuid.uuid4().hex}/root", fsspec.filesystem("memory"))


class TestFsspecFiles(StoreSuite):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return open_store(str(tmp_path / "root"), Elsewhere())


class TestArrowFiles(StoreSuite):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        elsewhere = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(Elsewhere()))
        return open_store("root", pyarrow.fs.SubTreeFileSystem(str(tmp_path), elsewhere))


@pytest.mark.s3
class TestArrowObjects(StoreSuite):
    @pytest.fixture
    def store(self, s3_server: S3Server, new_folder: NewFolder) -> Store:
        filesystem = pyarrow.fs.S3FileSystem(
            access_key=ACCESS_KEY,
            secret_key=SECRET_KEY,
            endpoint_override=s3_server.url,
            region="us-east-1",
        )
        return open_store(f"lab/arrow/{new_folder()}", filesystem)
