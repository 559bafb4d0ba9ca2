"""What `resume=` means, before there is anything to resume."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.control.study.plan import Resumption
from holdfast.errors import ConfigError
from holdfast.tune.study.resume_modes import Mode, mode_of
from holdfast.tune.tune_config import ResumeConfig

BY_DEFAULT = Resumption(unfinished=True, errored=False, errored_from_scratch=False)
RESUME, RESTART, SKIP = ResumeConfig.ResumeType


@pytest.mark.req("U-066")
@pytest.mark.parametrize(
    ("resume", "base"),
    [
        (None, "NEW"),
        (False, "NEW"),
        (True, "LOCAL"),
        ("LOCAL", "LOCAL"),
        ("local", "LOCAL"),
        ("REMOTE", "REMOTE"),
        ("PROMPT", "PROMPT"),
        ("AUTO", "AUTO"),
    ],
)
def test_a_mode_alone_goes_on_with_what_is_unfinished(resume: Any, base: str) -> None:
    assert mode_of(resume) == Mode(base, BY_DEFAULT)


@pytest.mark.parametrize(
    ("suffixes", "unfinished", "errored", "from_scratch"),
    [
        ("+ERRORED", True, True, False),
        ("+RESTART_ERRORED", True, False, True),
        ("+ERRORED_ONLY", False, True, False),
        ("+RESTART_ERRORED_ONLY", False, False, True),
        ("+ERRORED+RESTART_ERRORED", True, True, True),
        ("+ERRORED_ONLY+RESTART_ERRORED", False, True, True),
    ],
)
@pytest.mark.parametrize("base", ["LOCAL", "REMOTE", "PROMPT", "AUTO"])
def test_suffixes_add_up(
    base: str, suffixes: str, unfinished: bool, errored: bool, from_scratch: bool
) -> None:
    how = Resumption(unfinished=unfinished, errored=errored, errored_from_scratch=from_scratch)

    assert mode_of(f"{base}{suffixes}") == Mode(base, how)


def test_the_older_word_restarts_what_failed_and_nothing_else() -> None:
    assert mode_of("ERRORED_ONLY") == mode_of("LOCAL+RESTART_ERRORED_ONLY")


def test_a_resume_config_says_which_trials_if_there_is_one() -> None:
    how = ResumeConfig(unfinished=SKIP, errored=RESTART)

    assert mode_of("AUTO+ERRORED", how) == Mode(
        "AUTO", Resumption(unfinished=False, errored=False, errored_from_scratch=True)
    )
    assert mode_of(None, how) == Mode("NEW")


@pytest.mark.req("U-066")
@pytest.mark.parametrize("resume", [0, 1, "YES", "LOCAL+", "+ERRORED", "LOCAL+ERRORED_", b"LOCAL"])
def test_anything_else_is_refused_with_all_that_there_are(resume: Any) -> None:
    with pytest.raises(ConfigError, match="True, False, 'LOCAL', 'REMOTE', 'PROMPT', 'AUTO'"):
        mode_of(resume)
