"""What a storage path says: schemes, buckets, query parameters. Nothing is opened here.

A path as a user wrote it may hold secrets, in its query or before an `@`. Whoever shows one, in an
error, a log or a `repr`, calls `shown_location`, and whoever writes one down `without_credentials`.
What a store calls its `url` holds none.

Object keys are taken as they are written, not percent-decoded, so that a URL we show is one that
can be given back; the query is decoded, because secrets hold every kind of character.
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
_BUCKETS = {"s3", "gs", "gcs", "az", "abfs", "abfss"}  # whose hosts have no port
_PORT = re.compile(r"[^:@]*:\d*")
# What may be written down of a query; anything else, known or not, might open somebody's store.
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
    """A storage path, taken apart; `options` may hold secrets and are not shown."""

    scheme: str
    authority: str
    path: str
    options: Mapping[str, str]


def split(path: str) -> Uri | None:
    """Return the parts of a URI, or None for a plain path; raise `ConfigError` for neither."""
    if not path.strip():
        raise ConfigError(
            "the storage path is empty", hint="name a folder, or a URI such as s3://bucket/folder"
        )
    if "\x00" in path:
        raise ConfigError(
            f"the storage path {shown_location(path)} holds a NUL character",
            hint="check how the path was put together",
        )
    found = _URI.fullmatch(path)
    if found is None:
        if one := _ONE_SLASH.match(path):
            raise ConfigError(
                f"the storage path {shown_location(path)} begins with {one[0]} but is not a URI",
                hint=f"write {one[0]}// for a URI,"
                f" or ./{without_secrets(path)} for a folder of that name",
            )
        return None
    scheme, rest = found[1].lower(), found[2]
    if scheme in ("file", "memory"):
        authority, _, inner = rest.partition("/")
        return Uri(scheme, authority, inner, {})
    place, _, query = rest.partition("?")
    authority, _, inner = place.partition("/")
    return Uri(scheme, authority, inner.strip("/"), _query(query, scheme))


def from_home(path: str) -> str:
    """Return a plain path with the home that `~` stands for; raise `ConfigError` if nobody knows.

    Without this check, a folder of the name `~` would be made where the process happens to be.
    """
    expanded = os.path.expanduser(path)
    if not path.startswith("~") or os.path.isabs(expanded):
        return expanded
    name = path.partition("/")[0]
    if name == "~":
        raise ConfigError(
            f"the path {shown(path)} is below your home, and nobody knows where that is: HOME is"
            " not set, or is no absolute path, and this user is not in the system's list",
            hint="set HOME, or name a folder: RunConfig(storage_path=…)",
        )
    raise ConfigError(
        f"the path {shown(path)} begins with the home of a user that is not known here",
        hint=f"write ./{path} if it is the name of a folder",
    )


def is_misspelt(path: str) -> bool:
    """Whether a path was meant as a URI and is none: `split` says what is wrong with it."""
    return _ONE_SLASH.match(path) is not None


def shown_location(location: object) -> str:
    """Return a location as messages show it: quoted, cut where it is long, without its secrets."""
    if isinstance(location, str):
        return shown(without_secrets(location))
    # Something else, given by mistake: a list of locations, say.
    return cut_short(_INSIDE.sub(lambda found: without_secrets(found[0]), repr(location)))


def without_secrets(location: str) -> str:
    """Return a location with its query, and a user with a password, as `…`; for people to read."""
    found = _LOCATION.fullmatch(location)
    if found is None or found["scheme"].lower() in ("file", "memory"):
        return location
    place = found["place"]
    first = place.partition("/")[0]
    if ":" in first and "@" in place:
        # A password that was not encoded may hold slashes: all up to the last @ may be part of it.
        place = f"…@{place.rpartition('@')[2]}"
    elif ":" in first and (found["scheme"].lower() in _BUCKETS or not _PORT.fullmatch(first)):
        place = "…"
    query = "?…" if found["query"] else ""
    return f"{found['scheme']}:{found['slashes']}{place}{query}"


def without_credentials(location: str) -> str:
    """Return a location with nothing in it but what says where it is; it may be written down."""
    uri = split(location)
    if uri is None or uri.scheme in ("file", "memory"):
        return location
    before, at, host = uri.authority.rpartition("@")
    if ":" in host:
        return without_secrets(location)  # half a password; it cannot be opened in any case
    place = f"{uri.scheme}://{uri.authority if at and ':' not in before else host}/{uri.path}"
    kept = {name: value for name, value in uri.options.items() if name in _NO_SECRETS}
    return f"{place}?{urllib.parse.urlencode(kept)}" if kept else place


def unknown_scheme(uri: Uri) -> ConfigError:
    """Return the error for a scheme that no store has."""
    hint = f"use one of {', '.join(SCHEMES)}, a plain path, or storage_filesystem"
    return ConfigError(f"the storage path has the unknown scheme {uri.scheme}://", hint=hint)


def bucket_name(name: str, scheme: str) -> str:
    """Return the name of a bucket if it can be one."""
    if not name:
        raise ConfigError(
            f"the storage path {scheme}:// names no bucket", hint=f"{scheme}://bucket/folder"
        )
    if ":" in name:
        raise ConfigError(
            f"the {scheme}:// storage path has a colon where the name of a bucket ends",
            hint="write / in a key or password as %2F, + as %2B, @ as %40",
        )
    if not _BUCKET.fullmatch(name) or ".." in name:
        raise ConfigError(
            f"{shown(name)} cannot be the name of a bucket: it has letters, digits, '-' and '.'",
            hint=f"{scheme}://bucket/folder",
        )
    return name


def endpoint_url(given: str, scheme: str | None) -> str:
    """Return an endpoint with its scheme; `scheme` is used where it has none, else https."""
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
    """Return user, password and the rest of what stands between `://` and the first slash."""
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
    found = _AZURE_HOST.fullmatch(host)
    if found is None:
        raise ConfigError(
            f"{shown(host)} is not the host of an Azure account",
            hint="abfss://container@account.dfs.core.windows.net/folder",
        )
    return container, found[1]


def flag(name: str, value: str) -> bool:
    """Return what a true-or-false parameter says."""
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
            f"the query of the {scheme}:// storage path cannot be read: name=value&name=value"
        ) from None
    return dict(pairs)
