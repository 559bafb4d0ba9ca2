"""PUT requests to an S3 server with nothing around them: the most that the server will take."""

from __future__ import annotations

import http.client
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from urllib.parse import urlsplit

import obstore
from obstore.store import S3Store

from bench.question import MIB
from tests.servers.storage import ACCESS_KEY, SECRET_KEY

PART_BYTES = 8 * MIB  # a larger file goes up as several objects, side by side
CONNECTIONS = 8
VALID_FOR = timedelta(minutes=10)

Put = tuple[str, memoryview]  # the signed path, and what is put there


def signed_puts(url: str, bucket: str, folder: str, contents: Mapping[str, bytes]) -> list[Put]:
    """Return requests that store `contents`, ready to be sent."""
    client = S3Store(
        bucket,
        endpoint=url,
        region="us-east-1",
        access_key_id=ACCESS_KEY,
        secret_access_key=SECRET_KEY,
        client_options={"allow_http": True},
    )
    parts = {
        f"{folder}/{name}.{start}": memoryview(data)[start : start + PART_BYTES]
        for name, data in contents.items()
        for start in range(0, len(data), PART_BYTES)
    }
    signed = obstore.sign(client, "PUT", list(parts), expires_in=VALID_FOR)
    paths = [link.removeprefix(url) for link in signed]
    return list(zip(paths, parts.values(), strict=True))


def put_all(url: str, requests: Sequence[Put]) -> None:
    """Send all requests over a few connections at once."""
    shares = [requests[first::CONNECTIONS] for first in range(CONNECTIONS)]
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(lambda share: _put(url, share), shares))


def _put(url: str, requests: Sequence[Put]) -> None:
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    for path, data in requests:
        connection.request("PUT", path, body=data)
        answer = connection.getresponse()
        answer.read()
        if answer.status != http.client.OK:
            raise RuntimeError(f"PUT was answered {answer.status} {answer.reason}")
    connection.close()
