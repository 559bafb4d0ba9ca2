"""Every environment variable that Holdfast reads; no other module reads the environment.

An argument takes precedence over a variable. The object store client reads its vendor's variables
(`AWS_ACCESS_KEY_ID`, `GOOGLE_APPLICATION_CREDENTIALS`, `AZURE_STORAGE_ACCOUNT_KEY` …) itself; those
below are the ones it ignores.
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
    """Return whether the environment configures S3 credentials."""
    return any(os.environ.get(name) for name in _CREDENTIAL_VARIABLES)


def aws_region_is_in_environment() -> bool:
    """Return whether the environment names the S3 region."""
    return bool(os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"))


def aws_profile() -> str:
    """Return the name of the user's profile in the AWS files."""
    return os.environ.get("AWS_PROFILE") or "default"


def aws_credentials_file() -> str:
    """Return the path of the file with keys, one section per profile."""
    return os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or os.path.expanduser("~/.aws/credentials")


def aws_config_file() -> str:
    """Return the path of the file with regions, one section per profile."""
    return os.environ.get("AWS_CONFIG_FILE") or os.path.expanduser("~/.aws/config")


def add_to_environment(values: Mapping[str, str]) -> None:
    """Set variables for this process and the processes it starts."""
    os.environ.update(values)


@contextlib.contextmanager
def environment_with(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables within the block and restore them afterwards."""
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
    """Return whether the variable is set."""
    return name in os.environ


def visible_gpus() -> str | None:
    """Return the GPUs this process may use, None if it may use all."""
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def start_method() -> str | None:
    """Return how to start the process that workers are forked from; None for the default."""
    return os.environ.get("HOLDFAST_START") or None


def log_bytes() -> str | None:
    """Return how many bytes the logs of a run may take, as written; None if not set."""
    return os.environ.get("HOLDFAST_LOG_BYTES") or None


def log_folder() -> str | None:
    """Return the folder for logs of runs on remote storage; None for the default."""
    return os.environ.get("HOLDFAST_LOG_DIR") or None


def cache_home() -> str | None:
    """Return the user's cache folder; None for `~/.cache`."""
    return os.environ.get("XDG_CACHE_HOME") or None


def storage_timeout_s() -> str | None:
    """Return the limit for a first answer from storage, as written; None if not set."""
    return os.environ.get("HOLDFAST_STORAGE_TIMEOUT_S") or None


def longest_trial_name() -> int:
    """Return how many characters of a trial's name go into the name of its folder."""
    return _whole_number("TUNE_MAX_LEN_IDENTIFIER", 130, "the names of folders are cut at 130")


def restore_retries() -> int:
    """Return how often a class trial retries to load its checkpoint."""
    return _whole_number("TUNE_RESTORE_RETRY_NUM", 0, "a load that fails is a failure of the trial")


def _whole_number(name: str, default: int, consequence: str) -> int:
    given = os.environ.get(name) or str(default)
    if not given.isdecimal():
        raise ConfigError(
            f"{name}={given}: must be a whole number, 0 or more",
            hint=f"leave it out, and {consequence}",
        )
    return int(given)


def dates_studies() -> bool:
    """Return whether the generated name of a study contains the time."""
    return os.environ.get("TUNE_DISABLE_DATED_SUBDIR", "0") in ("", "0")


def writes_trial_files() -> bool:
    """Return whether results of trials are written to files by default."""
    return os.environ.get("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "0") in ("", "0")
