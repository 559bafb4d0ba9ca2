"""A journal whose writer is interrupted."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from holdfast.journal import journal as journal_module
from holdfast.storage.base import Store
from tests.clocks import FakeClock
from tests.unit.journal.holders import take


def interrupt_at(nth: int) -> Callable[[FrameType, str, object], Any]:
    """Return a tracer that raises at the nth line of the journal's code, as Ctrl+C might.

    Not where a lock is taken or given back: there Python does not look at signals.
    """
    lines = iter(range(1, nth + 1))

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename != journal_module.__file__:
            return None
        code = linecache.getline(journal_module.__file__, frame.f_lineno).strip()
        if event == "line" and not code.startswith("with ") and next(lines, nth) == nth:
            raise KeyboardInterrupt
        return trace

    return trace


def test_ctrl_c_at_any_moment_leaves_a_journal_that_goes_on(store: Store, clock: FakeClock) -> None:
    writer, before = take(store, clock), sys.gettrace()
    acknowledged, is_interrupted, nth = writer.note("first"), True, 0
    while is_interrupted:
        nth += 1
        is_interrupted = False
        sys.settrace(interrupt_at(nth))
        try:
            acknowledged.append(writer.journal.record("note", {"text": "x"}))
        except KeyboardInterrupt:
            is_interrupted = True
        finally:
            sys.settrace(before)
        acknowledged += writer.note("next")

    again = take(store, clock)

    assert nth > 20
    assert set(acknowledged) <= {record.seq for record in again.replayed}
    assert not again.journal.damages
