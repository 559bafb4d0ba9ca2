"""How answers of object stores become store errors."""

from __future__ import annotations

import pytest
from obstore.exceptions import AlreadyExistsError, GenericError, PreconditionError

from holdfast.errors import (
    Conflict,
    ObjectMissing,
    StoreBusy,
    StoreDenied,
    StoreError,
    StoreFull,
)
from holdfast.storage.bucket.address import Bucket, Cloud
from holdfast.storage.bucket.errors import BeyondEnd, BucketMissing, explained

LAB = Bucket(cloud=Cloud.S3, name="lab", shown="s3://lab")


def answered(status: str, code: str | None = None) -> str:
    """Return obstore's text for an answer with this status, and this code in its body."""
    body = f"<Error><Code>{code}</Code><Message>as it says</Message></Error>" if code else ""
    return (
        "Generic S3 error: Error performing GET http://127.0.0.1:9000/lab/a in 1.2ms"
        f" - Server returned non-2xx status code: {status}: {body}\n\nDebug source:\nGeneric {{ }}"
    )


def broken(url: str, inside: str) -> str:
    """Return obstore's text for a request that got no answer."""
    return (
        f"Generic S3 error: Error performing GET {url} in 561.409µs - HTTP error: error sending"
        f" request\n\nDebug source:\nGeneric {{ source: HttpError {{ {inside} }} }}"
    )


@pytest.mark.parametrize(
    ("text", "kind", "message", "hint"),
    [
        (answered("404 Not Found", "NoSuchKey"), ObjectMissing, "there is no s3://lab/a", ""),
        (answered("404 Not Found", "NoSuchBucket"), BucketMissing, "no bucket 'lab'", "create it"),
        (answered("403 Forbidden", "AccessDenied"), StoreDenied, "403: AccessDenied", "access_key"),
        (answered("401 Unauthorized"), StoreDenied, "401", "access_key"),
        (answered("400 Bad Request", "ExpiredToken"), StoreDenied, "ExpiredToken", "access_key"),
        (answered("400 Bad Request"), StoreDenied, "400", "access_key"),
        (answered("403 Forbidden", "RequestTimeTooSkewed"), StoreDenied, "Skewed", "the clock"),
        (answered("400 Bad", "KMS.DisabledException"), StoreError, "KMS.DisabledException", ""),
        (answered("400 Bad Request", "BadDigest"), StoreError, "BadDigest: as it says", ""),
        (answered("301 Moved", "PermanentRedirect"), StoreError, "301", "region"),
        (answered("400 Bad", "AuthorizationHeaderMalformed"), StoreError, "400", "region"),
        (answered("416 Range", "InvalidRange"), BeyondEnd, "416", ""),
        (answered("503 Slow", "SlowDown"), StoreBusy, "503: SlowDown", ""),
        (answered("500 Internal"), StoreBusy, "500", ""),
        (answered("429 Too Many"), StoreBusy, "429", ""),
        (answered("400 Bad Request", "RequestTimeout"), StoreBusy, "RequestTimeout", ""),
        (answered("501 Not Implemented", "NotImplemented"), StoreError, "501", ""),
        (answered("507 Insufficient Storage"), StoreFull, "507", "free some space"),
        (answered("403 Forbidden", "QuotaExceeded"), StoreFull, "Quota", "free some space"),
        (
            broken("http://127.0.0.1:1/lab/a", 'kind: Connect, message: "Connection refused"'),
            StoreBusy,
            "cannot read s3://lab/a: http://127.0.0.1:1: connection refused",
            "endpoint",
        ),
        (
            broken("http://127.0.0.1:1/lab/a", "kind: Timeout, source: TimedOut"),
            StoreBusy,
            "http://127.0.0.1:1: no answer in time",
            "endpoint",
        ),
        (
            broken("http://127.0.0.1:1/lab/a", "IncompleteMessage"),
            StoreBusy,
            "http://127.0.0.1:1: the connection broke",
            "endpoint",
        ),
        (
            broken("http://169.254.169.254/latest/api/token", "kind: Connect"),
            StoreDenied,
            "no credentials were found",
            "AWS_ACCESS_KEY_ID",
        ),
        ("Configuration key: 'x' is not valid\nmore", StoreError, "'x' is not valid", ""),
    ],
)
def test_an_answer_becomes_the_error_of_whoever_must_act(
    text: str, kind: type[StoreError], message: str, hint: str
) -> None:
    with pytest.raises(StoreError) as caught, explained(LAB, "read", "s3://lab/a", "a"):
        raise GenericError(text)

    assert type(caught.value) is kind
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")
    assert "\n" not in caught.value.message
    assert caught.value.key == "a"


@pytest.mark.parametrize("error", [AlreadyExistsError, PreconditionError])
def test_a_condition_that_does_not_hold_is_a_conflict(error: type[Exception]) -> None:
    with pytest.raises(Conflict), explained(LAB, "write", "s3://lab/a", "a"):
        raise error(answered("412 Precondition Failed", "PreconditionFailed"))


def test_two_writers_at_the_same_moment_may_both_try_again() -> None:
    """S3 answers so while another conditional write is under way; neither has won yet."""
    with pytest.raises(StoreBusy), explained(LAB, "write", "s3://lab/a", "a"):
        raise AlreadyExistsError(answered("409 Conflict", "ConditionalRequestConflict"))


def test_a_client_that_crashes_is_an_error_like_others() -> None:
    panic = type("PanicException", (BaseException,), {})

    with pytest.raises(StoreError, match="the client crashed: oh"):  # noqa: SIM117
        with explained(LAB, "read", "s3://lab/a", "a"):
            raise panic("oh")


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_what_is_not_a_stores_error_passes(error: type[BaseException]) -> None:
    with pytest.raises(error), explained(LAB, "read", "s3://lab/a", "a"):
        raise error
