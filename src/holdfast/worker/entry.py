"""Where a worker begins: gets its job, runs it in the main thread, and says how it went."""

from __future__ import annotations

import logging
import os
import signal
import socket
import traceback
from types import TracebackType
from typing import Any

import cloudpickle

from holdfast.wire import Assigned, Channel, LastWords
from holdfast.worker.context import WorkerContext, enter
from holdfast.worker.job import unpack

FLUSH_TIMEOUT_S = 60.0
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def main(handle: int) -> None:
    """Do the job that comes over the socket `handle`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the driver, which tells us
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    channel = Channel(socket.socket(fileno=handle))
    messages = channel.wait()
    if not messages:
        return  # the driver is gone already
    first, *others = messages
    assert isinstance(first, Assigned), f"{first!r} came before a job"
    try:
        job = unpack(first.job)
        context = WorkerContext(channel, job)
        enter(context)
        context.listen(others)
        context.must_reach_storage()
        for setup in job.setups:
            setup(context)
        value = job.function() if job.config is None else job.function(dict(job.config))
        channel.send(LastWords(value=_pickled(value)))
    except BaseException as error:  # noqa: BLE001  # sys.exit in user code is a failure too
        traceback.print_exc()
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        channel.send(LastWords(_pickled(error), said, user_trace(error)))
    channel.flush(FLUSH_TIMEOUT_S)


def _pickled(value: Any) -> bytes | None:
    """Return `value` as bytes, also if its class is from the user's script; None if it cannot."""
    try:
        packed: bytes = cloudpickle.dumps(value)
        return packed
    except Exception:  # noqa: BLE001  # any object's own pickling may raise anything
        return None


def user_trace(error: BaseException) -> str:
    """Return the traceback as text, from the first frame that is not ours."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))
