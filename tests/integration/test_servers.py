"""The servers that tests use: they must not outlive whoever started them."""

from __future__ import annotations

import socket
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

from holdfast.errors import StoreError
from tests.patience import PATIENCE_S, wait_until
from tests.servers import storage

STARTER = """
from tests.servers.storage import moto
server = moto()
print(server.url, flush=True)
input()
"""


def listens(url: str) -> bool:
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname, parts.port or 0), timeout=PATIENCE_S).close()
    except ConnectionError:  # refused, or reset by one that is just going
        return False
    return True


def test_a_server_dies_with_a_starter_that_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdout is not None
        url = starter.stdout.readline().strip()
        assert listens(url)

        starter.kill()

    wait_until(lambda: not listens(url), f"{url} still listens")


def test_a_server_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_program", lambda name: "/bin/false")

    with pytest.raises(StoreError, match="S3Server did not start"):
        storage.moto()
