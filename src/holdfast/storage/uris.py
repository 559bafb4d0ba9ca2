"""Parses storage paths: schemes, buckets, query parameters. Nothing is opened here.

A path as a user wrote it may hold secrets, in its query or before an `@`. Code that shows one in an
error, a log or a `repr` calls `shown_location`; code that stores one calls `without_credentials`.
The `url` of a store holds none.

Object keys are not percent-decoded, so that a URL we show can be given back; the query is decoded,
because secrets hold every kind of character.
"""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.core.names import cut_short, shown
from holdfast.errors import ConfigError

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_ONE_SLASH = re.compile(r"(s3|gs|gcs|az|abfss?|file|memory):(?!//)", re.IGNORECASE)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}")
_LOCATION = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*(?=://)|s3|gs|gcs|az|abfss?):(?P<slashes>/*)"
    r"(?P<place>[^?]*)\??(?P<query>.*)",
    re.DOTALL | re.IGNORECASE,
)
_INSIDE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s'\"]+")
_BUCKETS = {"s3", "gs", "gcs", "az", "abfs", "abfss"}  # a bucket has no port
_PORT = re.compile(r"[^:@]*:\d*")
# The parts of a query that may be stored; anything else might be a credential.
_NO_SECRETS = {
    "account_name",
    "allow_bucket_creation",
    "anonymous",
    "endpoint",
    "endpoint_override",
    "force_virtual_addressing",
    "region",
    "scheme",
}
_AZURE_HOST = re.compile(r"([a-z0-9]{3,24})\.(dfs|blob)\.[a-z0-9.]+", re.IGNORECASE)

SCHEMES = ("s3://", "gs://", "az://", "abfs://", "file://", "memory://")


@dataclass(frozen=True, slots=True)
class Uri:
    """The parts of a URI; `options` may hold secrets and must not be shown."""

    scheme: str
    authority: str
    path: str
    options: Mapping[str, str]


def split(path: str) -> Uri | None:
    """Return the parts of a URI, or None for a plain path; raise `ConfigError` if it is neither."""
    if not path.strip():
        raise ConfigError(
            "the storage path is empty", hint="name a folder, or a URI such as s3://bucket/folder"
        )
    if "\x00" in path:
        raise ConfigError(
            f"the storage path {shown_location(path)} contains a NUL character",
            hint="check how the path was put together",
        )
    match = _URI.fullmatch(path)
    if match is None:
        if start := _ONE_SLASH.match(path):
            raise ConfigError(
                f"the storage path {shown_location(path)} begins with {start[0]} but is not a URI",
                hint=f"write {start[0]}// for a URI,"
                f" or ./{without_secrets(path)} for a folder of that name",
            )
        return None
    scheme, rest = match[1].lower(), match[2]
    if scheme in ("file", "memory"):
        authority, _, inner = rest.partition("/")
        return Uri(scheme, authority, inner, {})
    place, _, query = rest.partition("?")
    authority, _, inner = place.partition("/")
    return Uri(scheme, authority, inner.strip("/"), _query(query, scheme))


def from_home(path: str) -> str:
    """Return a plain path with `~` expanded; raise `ConfigError` if the home is unknown.

    Without this check, a folder named `~` would be created in the working directory.
    """
    expanded = os.path.expanduser(path)
    if not path.startswith("~") or os.path.isabs(expanded):
        return expanded
    name = path.partition("/")[0]
    if name == "~":
        raise ConfigError(
            f"the path {shown(path)} is in your home folder, which is unknown: HOME is not set, or"
            " not an absolute path, and this user is not in the system's user list",
            hint="set HOME, or name a folder: RunConfig(storage_path=…)",
        )
    raise ConfigError(
        f"the path {shown(path)} begins with the home folder of a user that does not exist here",
        hint=f"write ./{path} if that is the name of a folder",
    )


def is_misspelt(path: str) -> bool:
    """Whether a path is a URI with missing slashes, which `split` refuses."""
    return _ONE_SLASH.match(path) is not None


def shown_location(location: object) -> str:
    """Return a location for messages: quoted, shortened, without its secrets."""
    if isinstance(location, str):
        return shown(without_secrets(location))
    # Something else, given by mistake: a list of locations, for example.
    return cut_short(_INSIDE.sub(lambda uri: without_secrets(uri[0]), repr(location)))


def without_secrets(location: str) -> str:
    """Return a location for people to read, with `…` for its query, user and password."""
    parts = _LOCATION.fullmatch(location)
    if parts is None or parts["scheme"].lower() in ("file", "memory"):
        return location
    place = parts["place"]
    first = place.partition("/")[0]
    if ":" in first and "@" in place:
        # An unencoded password may contain slashes: everything up to the last @ may be part of it.
        place = f"…@{place.rpartition('@')[2]}"
    elif ":" in first and (parts["scheme"].lower() in _BUCKETS or not _PORT.fullmatch(first)):
        place = "…"
    query = "?…" if parts["query"] else ""
    return f"{parts['scheme']}:{parts['slashes']}{place}{query}"


def without_credentials(location: str) -> str:
    """Return a location without any credentials, so that it may be stored."""
    uri = split(location)
    if uri is None or uri.scheme in ("file", "memory"):
        return location
    before, at, host = uri.authority.rpartition("@")
    if ":" in host:
        return without_secrets(location)  # part of a password; it cannot be opened anyway
    place = f"{uri.scheme}://{uri.authority if at and ':' not in before else host}/{uri.path}"
    options = {name: value for name, value in uri.options.items() if name in _NO_SECRETS}
    return f"{place}?{urllib.parse.urlencode(options)}" if options else place


def unknown_scheme(uri: Uri) -> ConfigError:
    """Return the error for an unsupported scheme."""
    hint = f"use one of {', '.join(SCHEMES)}, a plain path, or storage_filesystem"
    return ConfigError(f"the storage path has the unknown scheme {uri.scheme}://", hint=hint)


def bucket_name(name: str, scheme: str) -> str:
    """Return `name` if a bucket can have it; raise `ConfigError` otherwise."""
    if not name:
        raise ConfigError(
            f"the storage path {scheme}:// names no bucket", hint=f"{scheme}://bucket/folder"
        )
    if ":" in name:
        raise ConfigError(
            f"the {scheme}:// storage path has a colon in the name of its bucket",
            hint="write / in a key or password as %2F, + as %2B, @ as %40",
        )
    if not _BUCKET.fullmatch(name) or ".." in name:
        raise ConfigError(
            f"{shown(name)} cannot be the name of a bucket: use letters, digits, '-' and '.'",
            hint=f"{scheme}://bucket/folder",
        )
    return name


def endpoint_url(given: str, scheme: str | None) -> str:
    """Return an endpoint with its scheme: its own, else `scheme`, else https."""
    url = given if "://" in given else f"{scheme or 'https'}://{given}"
    try:
        parts = urllib.parse.urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good or re.search(r"[\s?#@]", url):
        raise ConfigError(
            f"endpoint_override={shown_location(url)}: must be a host, a host:port, or an http(s)"
            " URL",
            hint="endpoint_override=http://127.0.0.1:9000",
        )
    return url.rstrip("/")


def userinfo(authority: str) -> tuple[str | None, str | None, str]:
    """Return user, password and host of the part between `://` and the first slash."""
    before, at, host = authority.rpartition("@")
    if not at:
        return None, None, host
    user, _, password = before.partition(":")
    decode = urllib.parse.unquote
    return decode(user) or None, decode(password) or None, host


def azure_container(authority: str) -> tuple[str, str | None]:
    """Return container and account of `container` or `container@account.dfs.core.windows.net`."""
    container, at, host = authority.partition("@")
    if not at:
        return container, None
    match = _AZURE_HOST.fullmatch(host)
    if match is None:
        raise ConfigError(
            f"{shown(host)} is not the host of an Azure account",
            hint="abfss://container@account.dfs.core.windows.net/folder",
        )
    return container, match[1]


def flag(name: str, value: str) -> bool:
    """Return the value of a true-or-false parameter."""
    match value.lower():
        case "true" | "1" | "yes":
            return True
        case "false" | "0" | "no" | "":
            return False
        case _:
            raise ConfigError(f"{name}={shown(value)}: must be true or false")


def _query(query: str, scheme: str) -> dict[str, str]:
    try:
        pairs = urllib.parse.parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise ConfigError(
            f"the query of the {scheme}:// storage path cannot be read: write name=value&name=value"
        ) from None
    return dict(pairs)
