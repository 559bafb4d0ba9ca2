"""Crashes of native code, in a function and in a thread of it: the card shows the user's line."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path

import pytest

from holdfast.train import WorkerGroupError
from tests.integration.train.conftest import Lab

HERE = Path(__file__).name


def crash() -> None:
    ctypes.string_at(0)  # the line that is to be shown


def crash_in_a_thread() -> None:
    thread = threading.Thread(target=crash, name="loader")
    thread.start()
    thread.join()


@pytest.mark.parametrize("loop", [crash, crash_in_a_thread])
def test_the_card_of_a_crash_shows_the_line_that_crashed(lab: Lab, loop: object) -> None:
    line = crash.__code__.co_firstlineno + 1

    with pytest.raises(WorkerGroupError) as raised:
        lab.fit(loop)  # type: ignore[arg-type]

    card = raised.value.card or ""
    assert f"was killed by SIGSEGV at {HERE}:{line}" in card
    assert f"line {line} in crash" in card
    assert "conversation.py" not in card and "stacks.py" not in card
