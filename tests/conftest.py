"""Servers that tests share: each is started when the first test asks, once in every worker."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from holdfast.engine.local import zygote_line
from holdfast.tune.study import launch as launching
from holdfast.tune.study.spec import StudySpec
from tests.servers.gcs import GcsStub
from tests.servers.storage import AzureServer, S3Server, azurite, moto, seaweedfs
from tools import install_servers

pytest.register_assert_rewrite("holdfast.testing.suites")

BUCKET = "lab"
MODULE_LINES_LONG = 400

# What a shell starts in the background is deaf to Ctrl+C, and so is all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is no mistake.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run what is marked `long` as well")


def pytest_report_header() -> str | None:
    """Name the modules that are long for one idea, so that somebody looks at them."""
    source = Path(__file__).parents[1] / "src" / "holdfast"
    lines = {path: path.read_bytes().count(b"\n") for path in source.rglob("*.py")}
    long = sorted(
        (path for path in lines if lines[path] > MODULE_LINES_LONG), key=lines.__getitem__
    )
    named = (f"{path.relative_to(source).as_posix()} {lines[path]}" for path in reversed(long))
    return f"modules over {MODULE_LINES_LONG} lines: {', '.join(named)}" if long else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the rest of the long campaigns, unless it is asked for or a test is named."""
    if config.getoption("long") or any("::" in argument for argument in config.args):
        return
    left_out = [item for item in items if item.get_closest_marker("long")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if not item.get_closest_marker("long")]


def pytest_collection_finish() -> None:
    """Keep what was imported out of every later collection of garbage: it is a lot, and stays."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def nobodys_account() -> Iterator[None]:
    """Keep the accounts of whoever runs the tests out of them, and the tests on this machine."""
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
                patch.delenv(name)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        patch.setenv("AWS_CONFIG_FILE", os.devnull)
        patch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")
        patch.setenv("NO_PROXY", "127.0.0.1,localhost")
        yield


@pytest.fixture(autouse=True)
def every_lease_is_let_go() -> Iterator[None]:
    """Fail a test that leaves a run open: its lease is written to while other tests look on."""
    before = set(threading.enumerate())
    yield
    left = [one for one in set(threading.enumerate()) - before if one.name == "holdfast-lease"]
    assert not left, "a run was left open; open it in a `with`, or pass beats=False"


@pytest.fixture(scope="session", autouse=True)
def only_what_is_needed() -> Iterator[None]:
    """Do not have every run load torch because some test before it has.

    Nor have every study load the module of its test, and pytest with it: most trainables are
    functions within a test, which travel without it.
    """

    def modules_of(spec: StudySpec) -> list[str]:
        return [name for name in usual(spec) if ".test_" not in name]

    usual = launching._modules_of  # noqa: SLF001  # nobody else has a use for this
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zygote_line, "SAFE_TO_PRELOAD", ())
        patch.setattr(launching, "_modules_of", modules_of)
        yield


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """SeaweedFS with the bucket `lab`."""
    server = seaweedfs()
    server.make_bucket(BUCKET)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def moto_server() -> Iterator[S3Server]:
    """moto with the bucket `lab`."""
    server = moto()
    server.make_bucket(BUCKET)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def azure_server() -> Iterator[AzureServer]:
    """Azurite with the container `lab`."""
    assert install_servers.MAIN.is_file(), "Azurite is missing: python tools/install_servers.py"
    server = azurite(str(install_servers.MAIN))
    server.make_container(BUCKET)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[GcsStub]:
    """The stand-in for Google Cloud Storage with the bucket `lab`."""
    server = GcsStub(BUCKET)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def new_folder() -> Callable[[], str]:
    """Return names of folders that no other test of this worker uses."""
    numbers = itertools.count(1)
    return lambda: f"folder-{next(numbers)}"
