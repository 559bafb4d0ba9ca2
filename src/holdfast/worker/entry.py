"""Entry points of workers: receive jobs, run them in the main thread, and send the results."""

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
_MESSAGE_OVERHEAD_BYTES = 1024
_ANNOUNCEMENTS = (signal.SIGTERM, signal.SIGUSR1)  # sent when the machine is about to leave
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def main(handle: int) -> None:
    """Do the jobs that come over the socket `handle`, in a process of their own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the driver, which stops us
    logging.basicConfig(format=LOG_FORMAT)
    never_give_up()
    keep_idle_copies()
    channel = Channel(socket.socket(fileno=handle))
    jobs = JobQueue(channel, lambda: os._exit(DRIVER_IS_GONE))
    _pass_on_signals(jobs.conversation)
    exit_work, raised = ExitWork(), False
    try:
        while (job := jobs.next_job()) is not None:
            value = _packed_result(_work(jobs, job))
            if not job.stays:
                channel.send(LastWords(value=value))
                break
            sys.stdout.flush()
            sys.stderr.flush()
            channel.send(JobDone(value=value))
            channel.flush(None)  # no later message would flush it
        else:
            channel.send(LastWords())
    except BaseException as error:  # noqa: BLE001  # sys.exit in user code is a failure too
        channel.send(_last_words(error))  # before the log, which may be on a full disk
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.write(f"{RAISED}\n{user_trace(error)}")
        raised = True
    if exit_work.is_left:
        channel.send(Leaving())
    # A driver that sleeps reads it when it wakes; one that is gone ends this process.
    channel.flush(None)
    exit_work.finish(after_error=raised)


class JobQueue:
    """Receives the jobs of one process, and passes other messages to the context of the job."""

    def __init__(self, channel: Channel, on_gone: Callable[[], None]) -> None:
        self._channel, self._on_gone = channel, on_gone
        self._jobs: queue.SimpleQueue[Assigned | Dismissed] = queue.SimpleQueue()
        self._has_begun = False
        self._hearing = threading.Lock()
        self._early: list[Message] = []  # what arrived while a job was being unpacked
        self.context: WorkerContext | None = None
        self.task: Task | None = None
        self.conversation = Conversation(channel, self._hear, on_gone)

    def next_job(self) -> Job | None:
        """Wait for the next job and return it.

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
        """Return the context of a job, which has handled all messages since the job came."""
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


_inline_tasks: list[Task] = []


@contextlib.contextmanager
def doing_here(task: Task) -> Iterator[None]:
    """Make `main_inline` run this very task, not a copy, so that user code gets its own objects."""
    _inline_tasks.append(task)
    try:
        yield
    finally:
        _inline_tasks.pop()


def main_inline(handle: int) -> None:
    """Do the job that comes over the socket `handle` in the driver's own process.

    Exceptions of user code are raised, after they were sent to the driver. Afterwards the context
    of this process is the one before, if there was one.
    """
    before = current()
    channel = Channel(socket.socket(fileno=handle))
    jobs = JobQueue(channel, lambda: None)
    try:
        job = jobs.next_job()
        value = None if job is None else _work(jobs, job, task=_inline_tasks[-1])
        channel.send(LastWords(value=_packed_result(value)))
    except BaseException as error:
        channel.send(_last_words(error))
        raise
    finally:
        channel.flush(FLUSH_TIMEOUT_S)
        enter(before)
        if jobs.context is not None:
            for ending in jobs.context.endings:
                ending()
            jobs.context.conversation.end()
        else:
            channel.close()


def _work(jobs: JobQueue, job: Job, task: Task | None = None) -> Any:
    """Return what the user's function returns, once everything it reported is durable.

    `task` takes the place of the one in the job, if it is given.
    """
    context = jobs.begin(job)
    enter(context)
    context.must_reach_storage()
    if task is None:
        task = _unpacked(job.task) if job.task else jobs.task
        assert task is not None, "a job without a task comes after one that had it"
        jobs.task = task
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
    """Call the user's function; `is_in_function` looks for this frame on the stack."""
    return task.function() if task.config is None else task.function(dict(task.config))


def is_in_function(frame: FrameType | None) -> bool:
    """Whether a frame belongs to the user's function, or to code that it has called."""
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
    """Redirect stdout and stderr of this process to another file."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    log_file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    for handle in (1, 2):
        os.dup2(log_file, handle)
    os.close(log_file)


def _pass_on_signals(conversation: Conversation) -> None:
    """Pass signals that announce this process's end on to the driver, and go on.

    From the start: a machine may be taken away while its workers still get ready. The handler may
    interrupt this thread while it holds a lock of the conversation, so another thread sends.
    """
    received: queue.SimpleQueue[int] = queue.SimpleQueue()

    def pass_on() -> None:
        while True:
            conversation.say(Warned(received.get()))

    def receive(number: int, _: object) -> None:
        received.put(number)

    # Started now, because there may be no resources for another thread when the signal comes; and
    # without `threading`, which would wait until the thread has begun.
    start_new_thread(pass_on, ())
    for number in _ANNOUNCEMENTS:
        signal.signal(number, receive)
    _reset_in_children(receive)


def _reset_in_children(handler: Callable[[int, object], None]) -> None:
    """Let these signals end a process that user code forks, as they end any other.

    They are blocked during a fork, so that none comes before the child has removed the handler.
    """
    before: list[set[int]] = []

    def hold_back() -> None:
        before.append(signal.pthread_sigmask(signal.SIG_BLOCK, _ANNOUNCEMENTS))

    def let_through() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before.pop())

    def reset() -> None:
        for number in _ANNOUNCEMENTS:
            if signal.getsignal(number) is handler:
                signal.signal(number, signal.SIG_DFL)
        let_through()

    os.register_at_fork(before=hold_back, after_in_parent=let_through, after_in_child=reset)


def _drain_quietly(context: WorkerContext) -> None:
    """Save what was handed over before the function failed; only its own error is raised."""
    try:
        context.reporter.drain()
    except Exception:  # noqa: BLE001  # printed; the function's error is raised afterwards
        traceback.print_exc()


def _last_words(error: BaseException) -> LastWords:
    summary = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return LastWords(_pickled(error), summary, user_trace(error))


def _packed_result(value: Any) -> bytes | None:
    """Return a function's result as bytes; if that is impossible, log a warning: it is lost."""
    packed = _pickled(value)
    why = "cannot be pickled"
    if packed is not None:
        if len(packed) < Channel.MESSAGE_BYTES_MAX - _MESSAGE_OVERHEAD_BYTES:
            return packed
        why = f"takes {len(packed) / 2**30:.1f} GiB, more than can be sent"
    kind = type(value)
    log.warning(
        "what the function returned %s, so it is lost: a %s.%s",
        why,
        kind.__module__,
        kind.__qualname__,
    )
    return None


def _pickled(value: Any) -> bytes | None:
    """Return `value` as bytes, also if its class is from the user's script; None if impossible."""
    try:
        if value is None or type(value) is str:  # as in most trials, and ten times as fast
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
