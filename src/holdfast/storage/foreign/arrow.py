"""Translates locations to pyarrow's filesystems and paths, for users who open files themselves."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from holdfast.errors import ConfigError
from holdfast.storage import uris
from holdfast.storage.base import Store

if TYPE_CHECKING:
    from holdfast.storage.bucket.address import Bucket

_BUCKETS = ("s3", "gs", "gcs", "az", "abfs", "abfss")


def has_scheme(location: str) -> bool:
    """Whether a location is a URI and not a plain path."""
    return "://" in location


def absolute(location: str | os.PathLike[str]) -> str:
    """Return a location that means the same from any working directory."""
    text = os.fspath(location)
    if has_scheme(text) or uris.is_misspelt(text):
        return text  # opening it reports what is wrong
    return os.path.abspath(uris.from_home(text))


def filesystem_path(location: str) -> str:
    """Return a location without its scheme and query, as filesystems expect it."""
    if not has_scheme(location):
        return location
    parts = urlsplit(location)
    if parts.scheme == "file":
        return unquote(parts.path)
    return f"{parts.netloc.rpartition('@')[2]}{unquote(parts.path)}".rstrip("/")


def path_of(store: Store) -> str:
    """Return the path of a store on its filesystem."""
    view = None if store.local is None else store.local.view
    return filesystem_path(store.url) if view is None else view.path_of(store.url)


def filesystem_of(described: Mapping[str, Any]) -> Any:
    """Return the pyarrow or fsspec filesystem of a store that `describe` described."""
    if "filesystem" in described:
        return described["filesystem"]
    if "fsspec" in described:
        from fsspec import AbstractFileSystem

        return AbstractFileSystem.from_dict(dict(described["fsspec"]))
    return arrow_filesystem(described["path"], described.get("options"))


def arrow_filesystem(location: str, options: Mapping[str, str] | None = None) -> Any:
    """Return the pyarrow filesystem that a location is on; see `open_location`."""
    return open_location(location, options)[0]


def open_location(location: str, options: Mapping[str, str] | None = None) -> tuple[Any, str]:
    """Return the pyarrow filesystem that a location is on, and the path it has there.

    Args:
        location: A path or a URI.
        options: Further parameters of the query: endpoint, region, credentials.
    """
    try:
        from pyarrow import fs
    except ImportError:
        raise ConfigError(
            "opening files here needs pyarrow, which is not installed",
            hint="pip install 'holdfast[arrow]', or use Checkpoint.as_directory() and plain files",
        ) from None
    uri = uris.split(location) if has_scheme(location) else None
    if uri is None:
        return fs.LocalFileSystem(), location
    given = {**uri.options, **(options or {})}
    place = uris.shown_location(location)
    try:
        if uri.scheme in _BUCKETS and (given or ":" in uri.authority):
            from holdfast.storage.bucket.options import bucket_of

            return _bucket_filesystem(fs, bucket_of(uri, given)), filesystem_path(location)
        opened: tuple[Any, str] = fs.FileSystem.from_uri(location)
        return opened
    except (ValueError, TypeError, OSError, NotImplementedError) as error:
        if isinstance(error, ConfigError):
            raise
        # pyarrow's message may quote the location, with its secrets.
        reason = "" if given or ":" in uri.authority else f": {error}"
        raise ConfigError(f"pyarrow has no filesystem for {place}{reason}") from None


def _bucket_filesystem(fs: Any, bucket: Bucket) -> Any:
    """Return a bucket's filesystem, with our options translated to pyarrow's.

    What pyarrow has no option for comes from the environment.
    """
    options, given = bucket.options, bucket.given
    endpoint = urlsplit(options.get("endpoint") or options.get("base_url") or "")
    server = {"endpoint_override": endpoint.netloc, "scheme": endpoint.scheme}
    if not endpoint.netloc:
        server = {"scheme": given["scheme"]} if "scheme" in given else {}
    match bucket.cloud.value:
        case "s3":
            keys = {
                "access_key": options.get("access_key_id"),
                "secret_key": options.get("secret_access_key"),
                "session_token": options.get("session_token"),
                "region": options.get("region"),
            }
            return fs.S3FileSystem(
                **{name: value for name, value in keys.items() if value is not None},
                **server,
                anonymous=bucket.anonymous,
                force_virtual_addressing=options.get("virtual_hosted_style_request") == "true",
                allow_bucket_creation=bucket.may_create,
            )
        case "gs":
            return fs.GcsFileSystem(**server, anonymous=bucket.anonymous)
        case _:
            return _azure_filesystem(fs, options, endpoint.netloc, endpoint.scheme)


def _azure_filesystem(fs: Any, options: Mapping[str, str], authority: str, scheme: str) -> Any:
    names = {
        "account_name": "account_name",
        "account_key": "account_key",
        "sas_token": "sas_key",
        "client_id": "client_id",
        "client_secret": "client_secret",
        "tenant_id": "tenant_id",
    }
    keys = {theirs: options[ours] for theirs, ours in names.items() if ours in options}
    if authority:
        keys |= {f"{kind}_storage_authority": authority for kind in ("blob", "dfs")}
        keys |= {f"{kind}_storage_scheme": scheme for kind in ("blob", "dfs")}
    return fs.AzureFileSystem(**keys)
