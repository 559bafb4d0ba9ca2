"""Turns obstore's errors into store errors.

The types of obstore's errors tell only part of the server's answer, so status and code are read
from their text. Nothing else in the package depends on a vendor's errors.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from obstore.exceptions import AlreadyExistsError, BaseError, NotModifiedError, PreconditionError

from holdfast.errors import (
    Conflict,
    EndpointWrong,
    ObjectMissing,
    StoreBusy,
    StoreDenied,
    StoreError,
    StoreFull,
)
from holdfast.storage.bucket.address import Bucket, Cloud

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([\w.]+)</Code>")
_MESSAGE = re.compile(r"<Message>([^<\n]+)")
_KERNEL_MESSAGE = re.compile(r'message: "([^"]+)"')
_ASKED = re.compile(r"Error performing [A-Z]+ (https?://[^/\s]+)")
_ASKS_FOR_CREDENTIALS = re.compile(
    r"/latest/api/token|/latest/meta-data|/computeMetadata/v1|/metadata/identity/"
    r"|Error performing token request|//login\.microsoftonline\."
)
_NO_HOST = re.compile(r"Name or service not known|nodename nor servname|No address associated")
_BAD_CERTIFICATE = re.compile(r"invalid peer certificate: \(?(\w+)")
_TRANSPORT = re.compile(r"HTTP error|HttpError|error sending request|body error|IncompleteMessage")

_NO_BUCKET = {"NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted"}
_BAD_CREDENTIALS = {"ExpiredToken", "InvalidToken", "NoCredentials", "TokenRefreshRequired"}
_WRONG_REGION = {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraint"}
_FULL = {"InsufficientStorage", "QuotaExceeded", "XMinioStorageFull"}
_PASSING = {
    "ConditionalRequestConflict",
    "OperationAborted",
    "RequestTimeout",
    "ServerBusy",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "TooManyRequests",
}
_PASSING_STATUS = {408, 425, 429}

_CREDENTIALS = {
    Cloud.S3: "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or access_key and secret_key in"
    " the URI, and their permissions",
    Cloud.GCS: "check GOOGLE_APPLICATION_CREDENTIALS, and the permissions of that account",
    Cloud.AZURE: "check AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or account_name"
    " and account_key in the URI",
}


class BucketMissing(StoreError):
    """There is no such bucket."""


class BeyondEnd(StoreError):
    """A range begins beyond the end of the object."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed request: HTTP status, the store's own code, and the reason in words."""

    status: int | None
    code: str | None
    reason: str


@contextlib.contextmanager
def explained(bucket: Bucket, verb: str, url: str, key: str) -> Iterator[None]:
    """Turn whatever obstore raises into a store error that says what failed, and why.

    Args:
        bucket: Where the request went.
        verb: What was attempted: "read", "write", "list".
        url: The URL of the object, for the message.
        key: The key of the object, for the error's `key`.
    """
    try:
        yield
    except (AlreadyExistsError, PreconditionError, NotModifiedError) as error:
        failure = failure_in(str(error))
        if failure.code in _PASSING:
            raise store_error(failure, bucket, verb, url, key) from error
        raise Conflict(f"{url} is there already, or has changed", key=key) from error
    except FileNotFoundError as error:
        failure = failure_in(str(error))
        if failure.code is None:
            raise ObjectMissing(f"there is no {url}", key=key) from error
        raise store_error(failure, bucket, verb, url, key) from error
    except BaseError as error:
        raise store_error(failure_in(str(error)), bucket, verb, url, key) from error
    except (ValueError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise StoreError(
            f"cannot {verb} {url}: {reason}", key=key, hint="use plain letters in names"
        ) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise StoreError(f"cannot {verb} {url}: the client crashed: {error}", key=key) from error


def failure_in(text: str) -> Failure:
    """Return the failure that the text of an obstore error describes."""
    status, code = _STATUS.search(text), _CODE.search(text)
    request = _ASKED.search(text)
    if _ASKS_FOR_CREDENTIALS.search(text.partition(" - ")[0]):
        return Failure(None, "NoCredentials", "no credentials were found")
    if status is not None:
        message = _MESSAGE.search(text)
        details = [match[1].strip() for match in (code, message) if match is not None]
        reason = ": ".join([status[1], *details])
        return Failure(int(status[1]), code[1] if code is not None else None, reason)
    if "StartTooLarge" in text:
        return Failure(None, "InvalidRange", text.partition("\n")[0])
    if _TRANSPORT.search(text):
        where = f"{request[1]}: " if request is not None else ""
        if _NO_HOST.search(text):
            return Failure(None, "EndpointWrong", f"{where}there is no host of that name")
        if certificate := _BAD_CERTIFICATE.search(text):
            reason = f"its certificate is not valid ({certificate[1]})"
            return Failure(None, "EndpointWrong", where + reason)
        kernel = _KERNEL_MESSAGE.search(text)
        if kernel is not None:
            reason = kernel[1].lower()
        elif "dns error" in text:
            reason = "the host's name could not be looked up"
        elif "TimedOut" in text or "kind: Timeout" in text:
            reason = "no answer in time"
        else:
            reason = "the connection broke"
        return Failure(None, "Transport", where + reason)
    return Failure(None, None, text.partition("\n")[0])


def store_error(failure: Failure, bucket: Bucket, verb: str, url: str, key: str) -> StoreError:
    """Return the error for a failed request; its type says who must act."""
    message = f"cannot {verb} {url}: {failure.reason}"
    status, code = failure.status, failure.code
    if code in _NO_BUCKET:
        return BucketMissing(
            f"cannot {verb} {url}: there is no bucket {bucket.name!r}",
            key=key,
            hint="create it, or check its name and the endpoint",
        )
    if code == "InvalidRange" or status == 416:
        return BeyondEnd(message, key=key)
    if code in _FULL or status == 507:
        return StoreFull(message, key=key, hint="free some space, then give the same command again")
    if code in _PASSING or status in _PASSING_STATUS:
        return StoreBusy(message, key=key)
    if code == "EndpointWrong":
        return EndpointWrong(message, key=key, hint="check the endpoint in the URI")
    if code == "Transport":
        return StoreBusy(message, key=key, hint="check the endpoint and the network")
    if code == "RequestTimeTooSkewed":
        return StoreDenied(message, key=key, hint="set the clock of this machine")
    if code in _WRONG_REGION or status in (301, 307):
        return StoreError(message, key=key, hint="name the bucket's region: ?region=… in the URI")
    # The answer to a HEAD has no body: for S3, a 400 without a code means expired credentials.
    if code in _BAD_CREDENTIALS or status in (401, 403) or (status == 400 and code is None):
        return StoreDenied(message, key=key, hint=_CREDENTIALS[bucket.cloud])
    if status == 404:
        return ObjectMissing(f"there is no {url}", key=key)
    if status is not None and status >= 500 and status != 501:
        return StoreBusy(message, key=key)
    return StoreError(message, key=key)
