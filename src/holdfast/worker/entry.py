"""Where a worker begins: gets its job, runs it in the main thread, and says how it went."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import queue
import signal
import socket
import sys
import threading
import traceback
from _thread import start_new_thread
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any

import cloudpickle

from holdfast.channel import Channel
from holdfast.checkpoint.fetch import keep_idle_copies
from holdfast.core.log_lines import LOG_FORMAT, RAISED
from holdfast.storage.contact import never_give_up
from holdfast.wire import (
    Assigned,
    Began,
    Dismissed,
    JobDone,
    LastWords,
    Leaving,
    Message,
    Warned,
)
from holdfast.worker.context import WorkerContext, current, enter
from holdfast.worker.conversation import Conversation
from holdfast.worker.exit_work import ExitWork
from holdfast.worker.job import Job, Task, unpack_job, unpack_task

log = logging.getLogger(__name__)

DRIVER_IS_GONE = 70  # the exit code of a worker whose driver vanished
FLUSH_TIMEOUT_S = 60.0
_AROUND_A_VALUE = 1024  # bytes of a message that are not the value in it
_ANNOUNCEMENTS = (signal.SIGTERM, signal.SIGUSR1)  # of a machine that is about to leave
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def main(handle: int) -> None:
    """Do the jobs that come over the socket `handle`, in a process that has nothing else to do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the driver, which tells us
    logging.basicConfig(format=LOG_FORMAT)
    never_give_up()
    keep_idle_copies()
    channel = Channel(socket.socket(fileno=handle))
    desk = Desk(channel, lambda: os._exit(DRIVER_IS_GONE))
    _pass_on_signals(desk.conversation)
    exit_work, raised = ExitWork(), False
    try:
        while (job := desk.next_job()) is not None:
            value = _returned(_work(desk, job))
            if not job.stays:
                channel.send(LastWords(value=value))
                break
            sys.stdout.flush()
            sys.stderr.flush()
            channel.send(JobDone(value=value))
            channel.flush(None)  # nothing is said after it that would take it along
        else:
            channel.send(LastWords())
    except BaseException as error:  # noqa: BLE001  # sys.exit in user code is a failure too
        channel.send(_last_words(error))  # first: the log may be on a disk that is full
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.write(f"{RAISED}\n{user_trace(error)}")
        raised = True
    if exit_work.is_left:
        channel.send(Leaving())
    # A driver that is put to sleep takes it when it wakes; one that is gone takes us along.
    channel.flush(None)
    exit_work.finish(after_error=raised)


class Desk:
    """Where jobs of one process come in."""

    def __init__(self, channel: Channel, on_gone: Callable[[], None]) -> None:
        self._channel, self._on_gone = channel, on_gone
        self._jobs: queue.SimpleQueue[Assigned | Dismissed] = queue.SimpleQueue()
        self._has_begun = False
        self._hearing = threading.Lock()
        self._early: list[Message] = []  # what was said while a job was being unpacked
        self.context: WorkerContext | None = None
        self.task: Task | None = None
        self.conversation = Conversation(channel, self._hear, on_gone)

    def next_job(self) -> Job | None:
        """Return the next job once it has come.

        None if there will be no more, or the driver is gone before the first.
        """
        if not self._has_begun:
            self._has_begun = True
            messages = self._channel.wait()
            if not messages:
                self._on_gone()
                return None
            first, *others = messages
            assert isinstance(first, Assigned), f"{first!r} came before a job"
            self.conversation.listen(others)
        else:
            message = self._jobs.get()
            if isinstance(message, Dismissed):
                return None
            first = message
            self.conversation.begin_anew()
        if first.log is not None:
            print_to(first.log)
        return unpack_job(first.job)

    def begin(self, job: Job) -> WorkerContext:
        """Return the context of a job, which has heard all that was said since the job came."""
        context = WorkerContext(job, self.conversation)
        with self._hearing:
            self.context = context
            for message in self._early:
                context.hear(message)
            self._early.clear()
        return context

    def _hear(self, message: Message) -> None:
        if isinstance(message, Assigned | Dismissed):
            self._jobs.put(message)
            return
        with self._hearing:
            if self.context is None:
                self._early.append(message)
            else:
                self.context.hear(message)


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

    What user code raises is raised, after the driver has been told. Afterwards this process is
    again in the function that it was in before, if it was in one.
    """
    before = current()
    channel = Channel(socket.socket(fileno=handle))
    desk = Desk(channel, lambda: None)
    try:
        job = desk.next_job()
        value = None if job is None else _work(desk, job, task=_here[-1])
        channel.send(LastWords(value=_returned(value)))
    except BaseException as error:
        channel.send(_last_words(error))
        raise
    finally:
        channel.flush(FLUSH_TIMEOUT_S)
        enter(before)
        if desk.context is not None:
            for ending in desk.context.endings:
                ending()
            desk.context.conversation.end()
        else:
            channel.close()


def _work(desk: Desk, job: Job, task: Task | None = None) -> Any:
    """Return what the user's function returns, once everything it reported is durable.

    With `task`, that is done in the driver's own process; without, what the job says.
    """
    context = desk.begin(job)
    enter(context)
    context.must_reach_storage()
    if task is None:
        task = _unpacked(job.task) if job.task else desk.task
        assert task is not None, "a job without a task comes after one that had it"
        desk.task = task
    for setup in task.setups:
        setup(context)
    context.conversation.say(Began())
    try:
        value = _call(task)
    except BaseException:
        _drain_quietly(context)
        raise
    context.reporter.drain()
    return value


def _call(task: Task) -> Any:
    """Call the user's function; this on the stack says that it is running."""
    return task.function() if task.config is None else task.function(dict(task.config))


def is_in_function(frame: FrameType | None) -> bool:
    """Whether a frame belongs to the user's function, or to something that it has called."""
    while frame is not None and frame.f_code is not _call.__code__:
        frame = frame.f_back
    return frame is not None


def _unpacked(task: bytes) -> Task:
    try:
        return unpack_task(task)
    except BaseException as error:
        error.add_note("(while the function, with all it holds, was unpickled in the worker)")
        raise


def print_to(path: str) -> None:
    """Have all that is printed go to another file."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    log_file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    for handle in (1, 2):
        os.dup2(log_file, handle)
    os.close(log_file)


def _pass_on_signals(conversation: Conversation) -> None:
    """Tell the driver of signals that announce this process's end, and go on.

    From the beginning on: a machine may be taken away while its workers still get ready.
    A handler may run while this very thread holds a lock of the conversation, so another one talks.
    """
    heard: queue.SimpleQueue[int] = queue.SimpleQueue()

    def talk() -> None:
        while True:
            conversation.say(Warned(heard.get()))

    def hear(number: int, _: object) -> None:
        heard.put(number)

    # Now: when the signal comes, there may be no room for another thread. And not `threading`'s, so
    # that nobody waits until it has begun.
    start_new_thread(talk, ())
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


def _returned(value: Any) -> bytes | None:
    """Return what a function returned as bytes; say so if it cannot be, because then it is lost."""
    packed = _pickled(value)
    why = "cannot be pickled"
    if packed is not None:
        if len(packed) < Channel.MESSAGE_BYTES_MAX - _AROUND_A_VALUE:
            return packed
        why = f"takes {len(packed) / 2**30:.1f} GiB, more than can be sent"
    kind = type(value)
    log.warning(
        "what the function returned %s, so that nobody gets it: a %s.%s",
        why,
        kind.__module__,
        kind.__qualname__,
    )
    return None


def _pickled(value: Any) -> bytes | None:
    """Return `value` as bytes, also if its class is from the user's script; None if it cannot."""
    try:
        if value is None or type(value) is str:  # as of most trials, and ten times as soon done
            return pickle.dumps(value)
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
