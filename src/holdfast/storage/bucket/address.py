"""Buckets of S3, Google Cloud Storage and Azure: their description, and their obstore clients.

A `Bucket` is plain data that travels between processes; `Clients` are live, shared by all stores of
a bucket in one process, and rebuilt after a refusal, so that rotated credentials are picked up.

obstore's runtime does not survive a fork: a forked child that uses it hangs for ever. So the
process that started it is remembered, and every use in another one raises `StoreForked`.
"""

from __future__ import annotations

import configparser
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Any, TypeAlias

from holdfast import settings
from holdfast.errors import ConfigError, StoreForked

try:
    import obstore.store as vendor
    from obstore.exceptions import BaseError
except ImportError as error:
    raise ConfigError(
        "object stores need the package obstore, which is not installed",
        hint="pip install 'holdfast[s3]'",
    ) from error

Client: TypeAlias = vendor.S3Store | vendor.GCSStore | vendor.AzureStore

LARGE_UPLOADS_AT_ONCE = 4  # each sends several parts at once; more would only cost memory


class Cloud(Enum):
    """The kinds of object store; the value is the scheme of their URLs."""

    S3 = "s3"
    GCS = "gs"
    AZURE = "az"


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    """A bucket (Azure: a container) and how to reach it, in plain data.

    Attributes:
        shown: The URL of its root as the user wrote it, without secrets.
        options: obstore's configuration; the rest comes from the environment.
        anonymous: Requests are not signed, because the bucket is public.
        may_create: A probe for writing creates a missing bucket.
        given: The options by the names that users write, to open the bucket again.
    """

    cloud: Cloud
    name: str
    shown: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    given: Mapping[str, str] = field(default_factory=dict, repr=False)
    anonymous: bool = False
    may_create: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """How long one request may take, and how often obstore itself repeats it.

    `Retrying` repeats requests, because it knows conditions and deadlines. Only parts of a large
    upload are repeated below it, so that not everything is sent again.
    """

    connect_s: float = 5.0
    request_s: float
    read_s: float | None = None  # None: no limit between two reads
    repeats: int = 0


AT_ONCE = Patience(connect_s=3.0, request_s=8.0)
QUICK = Patience(request_s=30.0)
DOWNLOAD = Patience(request_s=3600.0, read_s=30.0)
UPLOAD = Patience(request_s=300.0, repeats=4)

_MAKERS: Mapping[Cloud, Callable[..., Client]] = {
    Cloud.S3: vendor.S3Store,
    Cloud.GCS: vendor.GCSStore,
    Cloud.AZURE: vendor.AzureStore,
}

_runtime_pid: int | None = None


def enter_runtime(shown: str) -> None:
    """Raise `StoreForked` in a child forked after obstore was used; else mark it as used here."""
    global _runtime_pid  # noqa: PLW0603  # there is one runtime in a process
    pid = os.getpid()
    if _runtime_pid is None:
        _runtime_pid = pid
    elif _runtime_pid != pid:
        raise StoreForked(
            f"{shown} was used in process {_runtime_pid}, and this process ({pid}) is a fork of it:"
            " the client of object stores does not survive a fork",
            hint="start workers with the spawn or forkserver method, or fork before the first use",
        )


class Clients:
    """The live clients of one bucket, one per `Patience`; `clients_of` makes them."""

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.large_uploads = threading.BoundedSemaphore(LARGE_UPLOADS_AT_ONCE)
        self._lock = threading.Lock()
        self._built: dict[Patience, Client] = {}

    def get(self, patience: Patience) -> Client:
        enter_runtime(self.bucket.shown)
        with self._lock:
            if patience not in self._built:
                self._built[patience] = build(self.bucket, patience)
            return self._built[patience]

    def renewed(self, refused: Client, patience: Patience) -> Client:
        """Return a client that read its credentials after `refused` did."""
        with self._lock:
            if self._built.get(patience) is refused:
                self._built.clear()
        return self.get(patience)


_Identity: TypeAlias = tuple[Cloud, str, bool, frozenset[tuple[str, str]]]
_live: weakref.WeakValueDictionary[_Identity, Clients] = weakref.WeakValueDictionary()
_live_lock = threading.Lock()


def clients_of(bucket: Bucket) -> Clients:
    """Return the clients that all stores of this bucket in this process share."""
    enter_runtime(bucket.shown)  # before the lock: a fork may have copied it locked
    identity = (bucket.cloud, bucket.name, bucket.anonymous, frozenset(bucket.options.items()))
    with _live_lock:
        return _live.setdefault(identity, Clients(bucket))


def build(bucket: Bucket, patience: Patience, **overrides: str) -> Client:
    """Return a new client; credentials missing in the options are read from the environment now."""
    make = _MAKERS[bucket.cloud]
    options = {**_profile(bucket), **bucket.options}
    if bucket.anonymous:
        options["skip_signature"] = "true"
    limits: dict[str, Any] = {
        "allow_http": True,  # used only if an endpoint begins with http://
        "connect_timeout": timedelta(seconds=patience.connect_s),
        "timeout": timedelta(seconds=patience.request_s),
    }
    if patience.read_s is not None:
        limits["read_timeout"] = timedelta(seconds=patience.read_s)
    repeats = {
        "max_retries": patience.repeats,
        "retry_timeout": timedelta(seconds=patience.request_s),
        "backoff": {
            "init_backoff": timedelta(milliseconds=200),
            "max_backoff": timedelta(seconds=5),
            "base": 2,
        },
    }
    try:
        return make(
            bucket.name,
            config={**options, **overrides},
            client_options=limits,
            retry_config=repeats,
        )
    except (BaseError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(
            f"{bucket.shown} cannot be opened: {reason}",
            hint="check the parameters in the URI, and the environment variables of that cloud",
        ) from error


def _profile(bucket: Bucket) -> dict[str, str]:
    """Return keys and region from the user's AWS files, which obstore does not read."""
    options: dict[str, str] = {}
    if bucket.cloud is not Cloud.S3:
        return options
    name = settings.aws_profile()
    if not (
        bucket.anonymous
        or "access_key_id" in bucket.options
        or settings.aws_credentials_are_in_environment()
    ):
        keys = _section(settings.aws_credentials_file(), name)
        for theirs, ours in (
            ("aws_access_key_id", "access_key_id"),
            ("aws_secret_access_key", "secret_access_key"),
            ("aws_session_token", "session_token"),
        ):
            if theirs in keys:
                options[ours] = keys[theirs]
    if not settings.aws_region_is_in_environment():
        section = name if name == "default" else f"profile {name}"
        region = _section(settings.aws_config_file(), section).get("region")
        if region is not None:
            options["region"] = region
    return options


def _section(path: str, name: str) -> Mapping[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} is not an INI file: {str(error).splitlines()[0]}",
            hint="mend it, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        ) from error
    return parser[name] if parser.has_section(name) else {}
