"""Tracebacks made short: what says most stays."""

from __future__ import annotations

import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from holdfast.core.failure.traces import fold, innermost_frames, place_in, shortened
from tests.patience import PATIENCE_S

TRACE = """\
Traceback (most recent call last):
  File "/code/train.py", line 42, in train
    raise ValueError("loss is nan")
ValueError: loss is nan
"""


def deep_trace(users: int, library: int, message: str = "ValueError: deep") -> list[str]:
    frames = [f'  File "/code/train.py", line {n}, in f{n}\n    f{n + 1}()' for n in range(users)]
    frames += [f'  File "/v/site-packages/t.py", line {n}, in t{n}\n    x' for n in range(library)]
    return ["Traceback (most recent call last):", *"\n".join(frames).split("\n"), message]


def test_our_frames_are_folded_and_the_users_are_not() -> None:
    trace = """\
Traceback (most recent call last):
  File "/code/train.py", line 9, in train
    report({})
  File "/venv/holdfast/train/functions.py", line 5, in report
    context.report(
    ~~~~~~~~~~~~~~^
        metrics)
        ^^^^^^^^
  File "/venv/holdfast/worker/context.py", line 7, in report
    raise ValueError
  [Previous line repeated 3 more times]
  File "/venv/holdfast_extras/metrics.py", line 3, in as_json
    return float(x)
  File "/venv/holdfast/wire.py", line 1, in send
ValueError: no
"""

    assert (
        fold(trace, "/venv/holdfast/")
        == """\
Traceback (most recent call last):
  File "/code/train.py", line 9, in train
    report({})
  … 2 frames of holdfast …
  File "/venv/holdfast_extras/metrics.py", line 3, in as_json
    return float(x)
  … 1 frame of holdfast …
ValueError: no
"""
    )
    assert fold(trace, "/venv/holdfast") == fold(trace, "/venv/holdfast/")


def test_frames_inside_an_exception_group_are_folded_too() -> None:
    def both() -> None:
        errors = []
        for text in ("{", "["):
            try:
                raise KeyError(text)
            except KeyError as error:
                errors.append(error)
        raise ExceptionGroup("two", errors)

    with pytest.raises(ExceptionGroup) as caught:
        both()
    trace = "".join(traceback.format_exception(caught.value))
    folder = str(Path(__file__).parent)

    assert f'File "{folder}' in trace
    folded = fold(trace, folder)
    assert f'File "{folder}' not in folded
    assert folded.count("… 1 frame of holdfast …") == 2
    assert "KeyError: '['" in folded


def test_a_traceback_without_our_frames_stays_as_it_is() -> None:
    assert fold(TRACE, "/venv/holdfast") == TRACE
    assert fold("", "/venv/holdfast") == ""


def test_the_place_of_a_failure_is_in_the_users_own_code() -> None:
    deep = TRACE.replace(
        "ValueError: loss is nan\n",
        '  File "/venv/lib/python3.11/site-packages/torch/nn.py", line 7, in forward\n'
        '  File "/venv/holdfast/train/functions.py", line 5, in report\n'
        "ValueError: loss is nan\n",
    )

    assert place_in(deep, "/venv/holdfast") == "train.py:42"
    assert place_in(deep, "/elsewhere") == "functions.py:5"
    assert place_in("ValueError: no frames", "/venv/holdfast") is None


def test_a_long_traceback_keeps_the_users_last_frame_the_last_of_all_and_the_error() -> None:
    shown = shortened(deep_trace(30, 50), 12)

    assert len(shown) <= 12
    text = "\n".join(shown)
    assert "Traceback" in text and shown[-1] == "ValueError: deep"
    assert 'train.py", line 29, in f29\n    f30()' in text
    assert 't.py", line 49, in t49' in text
    assert "… 49 frames left out …" in text


def test_a_recursion_without_end_takes_no_time_to_shorten() -> None:
    assert 15 < len(shortened(deep_trace(0, 20_000), 20)) <= 20


def test_a_traceback_that_fits_is_not_touched() -> None:
    trace = deep_trace(2, 2)

    assert shortened(trace, len(trace)) == trace


def test_a_long_message_is_cut_in_the_middle() -> None:
    words = [f"  size mismatch for layer {n}" for n in range(200)]
    shown = shortened([*deep_trace(1, 0, "RuntimeError: cannot load"), *words], 20)

    text = "\n".join(shown)
    assert len(shown) <= 20
    assert "RuntimeError: cannot load" in text
    assert "layer 0" in text and "layer 199" in text
    assert "train.py" in text


def test_of_a_chain_of_errors_each_keeps_its_words_and_a_frame_of_the_users() -> None:
    chain = [
        *deep_trace(10, 10, "KeyError: 'lr'"),
        "The above exception was the direct cause of the following exception:",
        *deep_trace(10, 10, "ConfigError: no learning rate"),
    ]
    shown = "\n".join(shortened(chain, 16))

    assert "KeyError: 'lr'" in shown and "ConfigError: no learning rate" in shown
    assert shown.count('train.py", line 9') == 2


def test_where_a_real_process_stands_is_the_users_innermost_frame() -> None:
    """With another thread beside it, as faulthandler writes it."""
    script = """
import sys, threading
from faulthandler import dump_traceback
def inner():
    stop = threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()
    dump_traceback(file=sys.stdout, all_threads=True)
    stop.set()
    other.join()
def outer():
    inner()
outer()
"""
    ran = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )

    shown = innermost_frames([line for line in ran.stdout.split("\n") if line], 3)
    assert "in inner" in shown[0]
    assert len(shown) == 3


def test_what_an_engine_says_instead_of_a_stack_is_shown() -> None:
    assert innermost_frames(["it was put to sleep (SIGSTOP)"], 5) == [
        "it was put to sleep (SIGSTOP)"
    ]
    assert innermost_frames([], 5) == []
