"""Every environment variable that Holdfast reads; no other module looks at the environment.

An argument wins over a variable. The client of an object store reads its vendor's variables
(`AWS_ACCESS_KEY_ID`, `GOOGLE_APPLICATION_CREDENTIALS`, `AZURE_STORAGE_ACCOUNT_KEY` …) itself; those
below are the ones it leaves out.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

from holdfast.errors import ConfigError

_CREDENTIAL_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)


def aws_credentials_are_in_environment() -> bool:
    """Return whether the environment itself says where S3 credentials come from."""
    return any(os.environ.get(name) for name in _CREDENTIAL_VARIABLES)


def aws_region_is_in_environment() -> bool:
    """Return whether the environment itself names the S3 region."""
    return bool(os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"))


def aws_profile() -> str:
    """Return the section of the files below that holds this user's credentials."""
    return os.environ.get("AWS_PROFILE") or "default"


def aws_credentials_file() -> str:
    """Return the path of the file that holds keys, a section for each profile."""
    return os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or os.path.expanduser("~/.aws/credentials")


def aws_config_file() -> str:
    """Return the path of the file that holds regions, a section for each profile."""
    return os.environ.get("AWS_CONFIG_FILE") or os.path.expanduser("~/.aws/config")


def add_to_environment(values: Mapping[str, str]) -> None:
    """Set variables for this process and those it starts."""
    os.environ.update(values)


@contextlib.contextmanager
def environment_with(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables for a while, and put back what was there."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def is_in_environment(name: str) -> bool:
    """Return whether the user, or whoever started this process, has set a variable."""
    return name in os.environ


def visible_gpus() -> str | None:
    """Return the list of GPUs this process may use, None if nobody has limited them."""
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def start_method() -> str | None:
    """Return how to make the process that workers are forked from; None to leave it to us."""
    return os.environ.get("HOLDFAST_START") or None


def log_bytes() -> str | None:
    """Return how many bytes the logs of a run may take, as it was written; None if it was not."""
    return os.environ.get("HOLDFAST_LOG_BYTES") or None


def log_folder() -> str | None:
    """Return where logs go of runs whose storage is far away; None to leave it to us."""
    return os.environ.get("HOLDFAST_LOG_DIR") or None


def cache_home() -> str | None:
    """Return where this user's programs keep what can be lost, if that is not `~/.cache`."""
    return os.environ.get("XDG_CACHE_HOME") or None


def storage_timeout_s() -> str | None:
    """Return how long storage may take to answer before a run has begun; None if nobody said."""
    return os.environ.get("HOLDFAST_STORAGE_TIMEOUT_S") or None


def longest_trial_name() -> int:
    """Return how long the name of a trial may be in the name of its folder, in characters."""
    given = os.environ.get("TUNE_MAX_LEN_IDENTIFIER") or "130"
    if not given.isdecimal():
        raise ConfigError(
            f"TUNE_MAX_LEN_IDENTIFIER={given}: it is a number of characters",
            hint="leave it out, and the names of folders are cut at 130",
        )
    return int(given)


def restore_retries() -> int:
    """Return how often a trial's class is given its checkpoint again after it failed to load it."""
    given = os.environ.get("TUNE_RESTORE_RETRY_NUM") or "0"
    if not given.isdecimal():
        raise ConfigError(
            f"TUNE_RESTORE_RETRY_NUM={given}: it is how often a load that failed is tried again",
            hint="leave it out, and a load that fails is a failure of the trial",
        )
    return int(given)


def dates_studies() -> bool:
    """Return whether the time is in the name of a study that nobody named."""
    return os.environ.get("TUNE_DISABLE_DATED_SUBDIR", "0") in ("", "0")


def writes_trial_files() -> bool:
    """Return whether results of trials are written to files if nobody says which."""
    return os.environ.get("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "0") in ("", "0")
