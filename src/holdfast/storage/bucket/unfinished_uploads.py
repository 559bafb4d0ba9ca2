"""Lists and aborts unfinished uploads, with requests that obstore signs and this module sends.

obstore can sign a URL for an object with whatever credentials it found (keys, an instance's role, a
token file), but not with a query of ours. So the query goes into the endpoint of a client, which
takes everything before the object's name as it is; what the client appends becomes the value of
`x-id`, a parameter that S3 promises to ignore.

Azure is left out: it drops uncommitted blocks after a week, and offers no way to do it sooner.
"""

from __future__ import annotations

import http.client
import logging
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from xml.etree import ElementTree as ET

import obstore

from holdfast.errors import ObjectMissing, StoreBusy, StoreError
from holdfast.storage.bucket.address import AT_ONCE, Client, Clients, Cloud, build
from holdfast.storage.bucket.errors import explained, failure_in, store_error

log = logging.getLogger(__name__)

VALID_FOR = timedelta(minutes=5)
TIMEOUT_S = 30.0
PAGE = 1000


@dataclass(frozen=True, slots=True)
class Upload:
    """A multipart upload that was begun and neither completed nor aborted."""

    path: str
    upload_id: str
    begun: float


def unfinished_uploads(clients: Clients, prefix: str) -> Iterator[Upload]:
    """Yield the unfinished uploads of objects whose path in the bucket begins with `prefix`."""
    if not _can_list(clients):
        return
    marker = {"key-marker": "", "upload-id-marker": ""}
    while True:
        query = {"uploads": "", "prefix": prefix, "max-uploads": str(PAGE), **marker}
        page = _parsed(ask(clients, "GET", "", query))
        for element in page.iter("Upload"):
            path = _text(element, "Key")
            if path.startswith(prefix):
                begun = datetime.fromisoformat(_text(element, "Initiated")).timestamp()
                yield Upload(path, _text(element, "UploadId"), begun)
        last = marker
        marker = {
            "key-marker": _text(page, "NextKeyMarker"),
            "upload-id-marker": _text(page, "NextUploadIdMarker"),
        }
        # A page that claims a next one without saying where would be requested for ever.
        if _text(page, "IsTruncated") != "true" or marker == last:
            return


def _can_list(clients: Clients) -> bool:
    """Whether unfinished uploads can be listed; logs a warning if signing fails."""
    bucket = clients.bucket
    if bucket.cloud is not Cloud.GCS or bucket.anonymous:
        return bucket.cloud is not Cloud.AZURE
    try:
        with explained(bucket, "sign a request for", bucket.shown, ""):
            _sign(clients.get(AT_ONCE), "GET", "")
    except StoreError as error:
        # Only an account with its own key, or one that may call signBlob, can sign.
        log.warning("unfinished uploads to %s cannot be listed: %s", bucket.shown, error.message)
        return False
    return True


def size_of(clients: Clients, upload: Upload) -> int:
    """Return the size of an unfinished upload; of a very long one, only the first page counts."""
    try:
        page = _parsed(ask(clients, "GET", upload.path, {"uploadId": upload.upload_id}))
    except ObjectMissing:
        return 0
    return sum(int(_text(part, "Size") or 0) for part in page.iter("Part"))


def abort(clients: Clients, upload: Upload) -> None:
    """Remove an unfinished upload with all its parts; a missing one is not an error."""
    try:
        ask(clients, "DELETE", upload.path, {"uploadId": upload.upload_id})
    except ObjectMissing:
        return


def create_bucket(clients: Clients) -> None:
    """Create the bucket."""
    ask(clients, "PUT", "", {})


def ask(clients: Clients, method: str, path: str, query: dict[str, str]) -> bytes:
    """Send one signed request about `path`, or the bucket if it is empty; return the body."""
    bucket = clients.bucket
    target = f"{bucket.shown}/{path}".rstrip("/")
    with explained(bucket, "sign a request for", target, path):
        url = _signed_url(clients, method, path, urllib.parse.urlencode(query))
    request = urllib.request.Request(url, method=method)  # noqa: S310  # built from an http URL
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
            body: bytes = answer.read()
            return body
    except urllib.error.HTTPError as error:
        with error:
            text = error.read().decode(errors="replace")
        failure = failure_in(f"status code: {error.code}\n{text}")
        raise store_error(failure, bucket, method.lower(), target, path) from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise StoreBusy(f"cannot reach {target}: {reason}", key=path) from error


def _signed_url(clients: Clients, method: str, path: str, query: str) -> str:
    bucket = clients.bucket
    if bucket.anonymous:
        return f"{_unsigned_url(clients, path)}?{query}"
    plain = _sign(clients.get(AT_ONCE), method, path).partition("?")[0].rstrip("/")
    endpoint = f"{plain}?{query}&x-id=" if query else f"{plain}?x-id="
    if bucket.cloud is Cloud.GCS:
        return _sign(build(bucket, AT_ONCE, base_url=endpoint), method, "")
    overrides = {"endpoint": endpoint, "virtual_hosted_style_request": "true"}
    return _sign(build(bucket, AT_ONCE, **overrides), method, "")


def _unsigned_url(clients: Clients, path: str) -> str:
    bucket = clients.bucket
    standard = {Cloud.S3: "https://s3.amazonaws.com", Cloud.GCS: "https://storage.googleapis.com"}
    given = bucket.options.get("endpoint") or bucket.options.get("base_url")
    root = f"{given or standard[bucket.cloud]}/{bucket.name}"
    return f"{root}/{urllib.parse.quote(path)}".rstrip("/")


def _sign(client: Client, method: str, path: str) -> str:
    match method:
        case "GET" | "PUT" | "POST" | "DELETE":
            return obstore.sign(client, method, path, VALID_FOR)
        case _:
            raise StoreError(f"no request of ours uses {method}")


def _parsed(body: bytes) -> ET.Element:
    try:
        root = ET.fromstring(body)  # noqa: S314  # the store is trusted
    except ET.ParseError as error:
        raise StoreError(f"the store's answer is not XML: {error}") from error
    for element in root.iter():  # drop the namespace, on which servers disagree
        element.tag = element.tag.rpartition("}")[2]
    return root


def _text(element: ET.Element, name: str) -> str:
    return element.findtext(name) or ""
