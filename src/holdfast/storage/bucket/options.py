"""Translates the parameters of an object store's URI into obstore's options.

The names are pyarrow's, because such URIs were written for it; obstore's own names work too. Other
names are refused, because a misspelt `region` costs an hour.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from holdfast.errors import ConfigError
from holdfast.storage import uris
from holdfast.storage.bucket.address import Bucket, Cloud
from holdfast.storage.uris import Uri

_S3 = {
    "access_key": "access_key_id",
    "access_key_id": "access_key_id",
    "endpoint": "endpoint",
    "endpoint_override": "endpoint",
    "force_virtual_addressing": "virtual_hosted_style_request",
    "region": "region",
    "secret_access_key": "secret_access_key",
    "secret_key": "secret_access_key",
    "session_token": "session_token",
}
_GCS = {
    "endpoint": "base_url",
    "endpoint_override": "base_url",
    "service_account": "service_account",
    "service_account_key": "service_account_key",
}
_AZURE = {
    "account_key": "account_key",
    "account_name": "account_name",
    "client_id": "client_id",
    "client_secret": "client_secret",
    "endpoint": "endpoint",
    "endpoint_override": "endpoint",
    "sas_token": "sas_key",
    "tenant_id": "tenant_id",
}
_EVERYWHERE = {"anonymous", "scheme"}
_S3_ONLY = {"allow_bucket_creation"}
# pyarrow's, without an effect here: no bucket is deleted, and retries follow our own policy.
_IGNORED = {
    Cloud.S3: {"allow_bucket_deletion", "allow_delayed_open"},
    Cloud.GCS: {"default_bucket_location", "project_id", "retry_limit_seconds"},
    Cloud.AZURE: set[str](),
}


def bucket_of(uri: Uri, given: Mapping[str, str]) -> Bucket:
    """Return the bucket that a URI names, with the parameters `given`."""
    cloud = Cloud({"gcs": "gs", "abfs": "az", "abfss": "az"}.get(uri.scheme, uri.scheme))
    given = dict(given)
    match cloud:
        case Cloud.S3:
            name, shown = _s3_name(uri, given)
            names, others = _S3, _EVERYWHERE | _S3_ONLY
        case Cloud.GCS:
            name, shown = _gcs_name(uri, given)
            names, others = _GCS, _EVERYWHERE
        case Cloud.AZURE:
            name, shown = _azure_name(uri, given)
            names, others = _AZURE, _EVERYWHERE
        case _:
            assert_never(cloud)
    _refuse_unknown(given, {*names, *others, *_IGNORED[cloud]}, uri.scheme)
    options = _options(given, names)
    if cloud is Cloud.S3 and ("access_key_id" in options) != ("secret_access_key" in options):
        raise ConfigError("access_key and secret_key go together; only one of them was given")
    return Bucket(
        cloud=cloud,
        name=uris.bucket_name(name, uri.scheme),
        shown=shown,
        options=options,
        given=given,
        anonymous=uris.flag("anonymous", given.get("anonymous", "")),
        may_create=uris.flag("allow_bucket_creation", given.get("allow_bucket_creation", "")),
    )


def _options(given: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    options = {names[name]: value for name, value in given.items() if name in names}
    scheme = given.get("scheme")
    if scheme not in (None, "http", "https"):
        raise ConfigError(f"scheme={scheme}: must be http or https")
    for name in ("endpoint", "base_url"):
        if name in options:
            options[name] = uris.endpoint_url(options[name], scheme)
    if "virtual_hosted_style_request" in options:
        is_virtual = uris.flag("force_virtual_addressing", options["virtual_hosted_style_request"])
        options["virtual_hosted_style_request"] = str(is_virtual).lower()
    return options


def _s3_name(uri: Uri, given: dict[str, str]) -> tuple[str, str]:
    user, password, name = uris.userinfo(uri.authority)
    if user is not None:
        given.setdefault("access_key", user)
    if password is not None:
        given.setdefault("secret_key", password)
    return name, f"s3://{name}"


def _gcs_name(uri: Uri, given: dict[str, str]) -> tuple[str, str]:
    user, _, name = uris.userinfo(uri.authority)
    if user == "anonymous":
        given["anonymous"] = "true"
    return name, f"gs://{name}"


def _azure_name(uri: Uri, given: dict[str, str]) -> tuple[str, str]:
    name, account = uris.azure_container(uri.authority)
    if account is not None:
        given.setdefault("account_name", account)
    return name, f"{uri.scheme}://{uri.authority}"


def _refuse_unknown(given: Mapping[str, str], names: set[str], scheme: str) -> None:
    unknown = sorted(set(given) - names)
    if unknown:
        raise ConfigError(
            f"the {scheme}:// storage path has unknown parameters: {', '.join(unknown)}",
            hint=f"the parameters are {', '.join(sorted(names))}",
        )
