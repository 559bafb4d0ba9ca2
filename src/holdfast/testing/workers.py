"""Workers for testing engines: each follows the orders in its first message.

Orders are words: a verb, or `verb=value`. What a worker observes it reports.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import shared_memory
from typing import Any, NoReturn

from holdfast.channel import Channel
from holdfast.wire import Assigned, LastWords, Meeting, Message, Met, Reported
from holdfast.worker.entry import print_to

PAUSE = "import signal; signal.pause()"


def obey(handle: int) -> None:
    """Follow the orders in the first message; the entry point of a worker."""
    with socket.socket(fileno=handle) as line:
        channel = Channel(line)
        messages = channel.wait()
        if not messages:
            return  # the driver is gone already
        follow(channel, messages, os._exit)


def follow(channel: Channel, messages: list[Message], leave: Callable[[int], NoReturn]) -> None:
    """Follow the orders in the first message; `leave` ends the worker at once, with a code."""
    first, *others = messages
    assert isinstance(first, Assigned)
    for word in first.job.decode().split():
        verb, _, value = word.partition("=")
        _VERBS[verb](_Scene(channel, others, leave), value)
    channel.send(LastWords(value=b"done"))
    channel.flush(10.0)


class _Scene:
    """What a verb can use."""

    def __init__(
        self, channel: Channel, waiting: list[Message], leave: Callable[[int], NoReturn]
    ) -> None:
        self.channel, self.waiting, self.leave = channel, waiting, leave

    def report(self, **metrics: Any) -> None:
        self.channel.send(Reported(0, metrics))
        self.channel.flush(10.0)


# ---------------------------------------------------------------------- sending


def _report(scene: _Scene, value: str) -> None:
    for index in range(int(value)):
        scene.channel.send(Reported(index, {"pid": os.getpid()}))
    scene.channel.flush(10.0)


def _print(_: _Scene, value: str) -> None:
    sys.stdout.write(f"{value}\n")


def _mumble(_: _Scene, value: str) -> None:
    sys.stderr.write(value)


def _echo(scene: _Scene, _: str) -> None:
    """Answer every message until one is numbered below zero, or the driver hangs up."""
    while messages := scene.waiting or scene.channel.wait():
        scene.waiting = []
        for message in messages:
            assert isinstance(message, Met)
            if message.index < 0:
                return
            scene.channel.send(Meeting(message.index, message.data))
        scene.channel.flush(10.0)
    raise ConnectionError("the driver is gone")


def _reassigned(scene: _Scene, _: str) -> None:
    """Wait for another job, and print to its log from then on."""
    [message] = scene.waiting or scene.channel.wait()
    assert isinstance(message, Assigned) and message.log is not None
    print_to(message.log)


def _flood(scene: _Scene, value: str) -> None:
    """Send so many MiB without waiting for them to be read."""
    for index in range(int(value)):
        scene.channel.send(Meeting(index, bytes(1 << 20)))
    scene.channel.flush(10.0)


# ---------------------------------------------------------------------- looking around


def _environment(scene: _Scene, value: str) -> None:
    scene.report(value=subprocess.getoutput(f"echo ${value}"))


def _files(scene: _Scene, _: str) -> None:
    files: dict[str, str] = {}
    for handle in os.listdir("/proc/self/fd"):
        try:
            files[handle] = os.readlink(f"/proc/self/fd/{handle}")
        except OSError:
            continue  # the handle that `listdir` used
    scene.report(files=files)


def _parent(scene: _Scene, _: str) -> None:
    scene.report(parent=os.getppid(), pid=os.getpid())


def _signals(scene: _Scene, _: str) -> None:
    """Report which signals are handled or blocked differently than in a new process."""
    default = (signal.SIG_DFL, signal.default_int_handler)
    watched = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD)
    odd = [number.name for number in watched if signal.getsignal(number) not in default]
    scene.report(odd=odd, blocked=sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())))


def _module(scene: _Scene, value: str) -> None:
    scene.report(loaded=value in sys.modules)


def _arguments(scene: _Scene, _: str) -> None:
    scene.report(path=[*map(str, sys.path)], arguments=len(sys.argv), last=ascii(sys.argv[-1]))


def _draw(scene: _Scene, _: str) -> None:
    """Report a number from each random generator that is loaded."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    scene.report(
        python=random.random(),
        numpy=None if numpy is None else float(numpy.random.rand()),
        torch=None if torch is None else torch.initial_seed(),
        threads=None if torch is None else torch.get_num_threads(),
    )


def _compute(scene: _Scene, _: str) -> None:
    """Multiply matrices large enough for many threads, with each library that is loaded."""
    sums: dict[str, float] = {}
    if (numpy := sys.modules.get("numpy")) is not None:
        half = numpy.full((600, 600), 0.5)
        sums["sum"] = float((half @ half).sum())
    if (torch := sys.modules.get("torch")) is not None:
        half = torch.full((600, 600), 0.5, dtype=torch.float64)
        sums["torch"] = float((half @ half).sum())
    if (pyarrow := sys.modules.get("pyarrow")) is not None:
        table = pyarrow.table({"key": [1, 2] * 50_000, "value": [0.5] * 100_000})
        grouped = table.group_by("key").aggregate([("value", "sum")])
        sums["pyarrow"] = sum(grouped["value_sum"].to_pylist())
    if (pandas := sys.modules.get("pandas")) is not None:
        frame = pandas.DataFrame({"key": [1, 2] * 50_000, "value": [0.5] * 100_000})
        sums["pandas"] = float(frame.groupby("key")["value"].sum().sum())
    scene.report(**sums)


def _scribble(_: _Scene, __: str) -> None:
    """Write to a file that the driver has opened and stored in this module."""
    sys.modules[__name__].notes.write("by the worker\n")


def _complain(_: _Scene, value: str) -> None:
    logging.getLogger(value).warning("%s complains", value)


# ---------------------------------------------------------------------- starting things


def _child(scene: _Scene, _: str) -> None:
    scene.report(child=subprocess.Popen([sys.executable, "-c", PAUSE]).pid)


def _stranger(scene: _Scene, _: str) -> None:
    """Start a program in a session of its own."""
    command = [sys.executable, "-c", PAUSE]
    scene.report(child=subprocess.Popen(command, start_new_session=True).pid)


def _daemon(scene: _Scene, _: str) -> None:
    """Leave a process behind as daemons do: forked, without its parent, in a session of its own."""
    reader, writer = os.pipe()
    middle = os.fork()
    if middle == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(writer, str(os.getpid()).encode())
            os.close(writer)
            while True:
                signal.pause()
        os._exit(0)
    os.waitpid(middle, 0)
    scene.report(child=int(os.read(reader, 32)))


def _multiprocess(_: _Scene, __: str) -> None:
    """Start a process with `multiprocessing`, in a new interpreter."""
    process = multiprocessing.get_context("spawn").Process(target=os.getpid)
    process.start()
    process.join()
    assert process.exitcode == 0, process.exitcode


def _share(scene: _Scene, _: str) -> None:
    """Create a segment of shared memory, and do not remove it."""
    segment = shared_memory.SharedMemory(create=True, size=1)
    scene.report(segment=segment.name)


# ---------------------------------------------------------------------- going wrong


def _raise(scene: _Scene, value: str) -> None:
    scene.channel.send(LastWords(error=value, trace=f"trace of {value}"))
    scene.channel.flush(10.0)
    scene.leave(1)


def _burst(_: _Scene, value: str) -> None:
    raise ValueError(value)


def _exit(scene: _Scene, value: str) -> None:
    scene.leave(int(value))


def _signal(_: _Scene, value: str) -> None:
    os.kill(os.getpid(), int(value))


def _deaf(scene: _Scene, _: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    scene.report(deaf=True)


def _hang(_: _Scene, __: str) -> None:
    while True:
        time.sleep(60)


def _hog(_: _Scene, __: str) -> None:
    """Never release the interpreter's lock again."""
    sum(iter(int, 1))


def _spin(_: _Scene, __: str) -> None:
    """Call functions and return from them for ever."""

    def turn(left: int) -> None:
        if left:
            turn(left - 1)

    while True:
        turn(20)


def _deadlock(scene: _Scene, _: str) -> None:
    """Wait for another thread that waits for this one."""
    mine, its = threading.Lock(), threading.Lock()

    def wait_for_main() -> None:
        with its:
            scene.report(locked=True)
            mine.acquire()

    mine.acquire()
    thread = threading.Thread(target=wait_for_main)
    thread.start()
    while not its.locked():
        os.sched_yield()
    its.acquire()


def _threads(scene: _Scene, value: str) -> None:
    """Start many threads that do nothing."""
    begun = threading.Barrier(int(value) + 1)
    for _ in range(int(value)):
        threading.Thread(target=_rest, args=(begun,), daemon=True).start()
    begun.wait()
    scene.report(threads=int(value))


def _rest(begun: threading.Barrier) -> None:
    begun.wait()
    while True:
        time.sleep(60)


def _stick(_: _Scene, value: str) -> None:
    """Wait in the kernel, where no handler runs, for a child that waits to open a pipe."""
    os.mkfifo(value)
    opens = (os.POSIX_SPAWN_OPEN, 9, value, os.O_RDONLY, 0)
    os.posix_spawn(sys.executable, [sys.executable, "-c", ""], {}, file_actions=[opens])


def _execute(_: _Scene, __: str) -> None:
    """Become another program."""
    os.execv(sys.executable, [sys.executable, "-c", f"print('executed', flush=True); {PAUSE}"])


def _eat(_: _Scene, value: str) -> None:
    """Use so many MiB of memory."""
    eaten = [bytearray(os.urandom(1 << 20)) for _ in range(int(value))]
    assert eaten


_VERBS: dict[str, Callable[[_Scene, str], None]] = {
    verb.__name__[1:]: verb
    for verb in (
        *(_report, _print, _mumble, _echo, _reassigned, _flood),
        *(_environment, _files, _parent, _signals, _module, _arguments, _draw),
        *(_compute, _scribble, _complain),
        *(_child, _stranger, _daemon, _multiprocess, _share),
        *(_raise, _burst, _exit, _signal, _deaf, _hang, _hog, _spin, _deadlock),
        *(_threads, _stick, _execute, _eat),
    )
}
