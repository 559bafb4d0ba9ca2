"""Where a worker begins: gets its job, runs it in the main thread, and says how it went."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

import cloudpickle

from holdfast.core.log_lines import RAISED
from holdfast.wire import Assigned, Began, Channel, LastWords
from holdfast.worker.context import WorkerContext, current, enter
from holdfast.worker.job import Task, unpack_job, unpack_task

DRIVER_IS_GONE = 70  # the exit code of a worker whose driver vanished
FLUSH_TIMEOUT_S = 60.0
_ANNOUNCEMENTS = (signal.SIGTERM, signal.SIGUSR1)  # of a machine that is about to leave
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def main(handle: int) -> None:
    """Do the job that comes over the socket `handle`, in a process that has nothing else to do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the driver, which tells us
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    channel = Channel(socket.socket(fileno=handle))
    try:
        value = _work(channel, lambda: os._exit(DRIVER_IS_GONE))
        channel.send(LastWords(value=_pickled(value)))
    except BaseException as error:  # noqa: BLE001  # sys.exit in user code is a failure too
        sys.stdout.flush()
        sys.stderr.write(f"{RAISED}\n{user_trace(error)}")
        channel.send(_last_words(error))
    channel.flush(FLUSH_TIMEOUT_S)


_here: list[Task] = []  # what `main_inline` does, instead of a copy of it


@contextlib.contextmanager
def doing_here(task: Task) -> Iterator[None]:
    """Have `main_inline` do this very task, so that user code meets its own objects."""
    _here.append(task)
    try:
        yield
    finally:
        _here.pop()


def main_inline(handle: int) -> None:
    """Do the job that comes over the socket `handle` in the driver's own process.

    What user code raises is raised, after the driver has been told.
    """
    channel = Channel(socket.socket(fileno=handle))
    try:
        value = _work(channel, lambda: None, task=_here[-1])
        channel.send(LastWords(value=_pickled(value)))
    except BaseException as error:
        channel.send(_last_words(error))
        raise
    finally:
        channel.flush(FLUSH_TIMEOUT_S)
        context = current()
        enter(None)
        if context is not None:
            for ending in context.endings:
                ending()
            context.conversation.end()
        else:
            channel.close()


def _work(channel: Channel, on_gone: Callable[[], None], task: Task | None = None) -> Any:
    """Return what the user's function returns, once everything it reported is durable.

    With `task`, that is done in the driver's own process; without, what the job says.
    """
    messages = channel.wait()
    if not messages:
        on_gone()
        return None
    first, *others = messages
    assert isinstance(first, Assigned), f"{first!r} came before a job"
    job = unpack_job(first.job)
    context = WorkerContext(channel, job, on_gone)
    enter(context)
    context.conversation.listen(others)
    context.must_reach_storage()
    is_here = task is not None
    task = task or unpack_task(job.task)
    for setup in task.setups:
        setup(context)
    if not is_here:
        _pass_on_signals(context)
    context.conversation.say(Began())
    try:
        value = task.function() if task.config is None else task.function(dict(task.config))
    except BaseException:
        _drain_quietly(context)
        raise
    context.reporter.drain()
    return value


def _pass_on_signals(context: WorkerContext) -> None:
    """Tell the driver of signals that announce this process's end, and go on.

    A handler may run while this very thread holds a lock of the conversation, so another one talks.
    """
    heard: queue.SimpleQueue[int] = queue.SimpleQueue()

    def talk() -> None:
        while True:
            context.warn(heard.get())

    def hear(number: int, _: object) -> None:
        heard.put(number)

    threading.Thread(target=talk, name="holdfast-signals", daemon=True).start()
    for number in _ANNOUNCEMENTS:
        signal.signal(number, hear)
    _forget_in_children(hear)


def _forget_in_children(hear: Callable[[int, object], None]) -> None:
    """Let a process that user code forks be ended by these signals as any other.

    They are held back during a fork, so that none comes before the child has forgotten.
    """
    before: list[set[int]] = []

    def hold_back() -> None:
        before.append(signal.pthread_sigmask(signal.SIG_BLOCK, _ANNOUNCEMENTS))

    def let_through() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before.pop())

    def forget() -> None:
        for number in _ANNOUNCEMENTS:
            if signal.getsignal(number) is hear:
                signal.signal(number, signal.SIG_DFL)
        let_through()

    os.register_at_fork(before=hold_back, after_in_parent=let_through, after_in_child=forget)


def _drain_quietly(context: WorkerContext) -> None:
    """Save what was handed over before the function failed; its own error is the one to tell."""
    try:
        context.reporter.drain()
    except Exception:  # noqa: BLE001  # it is told, and the function's error follows
        traceback.print_exc()


def _last_words(error: BaseException) -> LastWords:
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return LastWords(_pickled(error), said, user_trace(error))


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
