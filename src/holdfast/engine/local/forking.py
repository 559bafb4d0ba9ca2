"""Decides whether this process may be forked, and resets what a fork inherits from its driver.

A fork copies one thread. The work of other threads is copied half done: a held lock stays held, a
thread pool lists threads that do not exist. So a driver is forked only if it has one thread and
contains nothing that is known to break. Such a fork, once it has let go of the driver's files,
signals and handlers, is as good as a new interpreter with everything imported.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Sequence
from typing import Any

from holdfast.engine import processes
from holdfast.engine.local.worker_process import new_streams, read_nothing

# The background thread of the allocator in pyarrow; jemalloc starts it again in the child.
SURVIVE_A_FORK = frozenset({"jemalloc_bg_thd"})

# Their runtimes do not survive a fork, even before they have threads of their own.
_BREAK_IN_A_FORK = ("obstore", "grpc", "ray", "jax", "tensorflow", "torch_xla", "gevent")
_DEBUGGERS = ("pydevd", "debugpy")
# Beyond this the zygote would hold too much memory that the driver frees later.
DRIVER_BYTES_MAX = 2 << 30


def why_not_forkable() -> str | None:
    """Return why this process must not be forked, None if no reason is known.

    Native threads are not checked here: see `stray_threads`.
    """
    if sys.platform != "linux":
        return f"on {sys.platform} a fork may not use the system's own libraries"
    if threading.current_thread() is not threading.main_thread():
        return "the caller is not the main thread"
    if (reason := why_forks_break()) is not None:
        return reason
    if _is_traced() or any(name in sys.modules for name in _DEBUGGERS):
        return "a debugger or tracer is attached"
    if (size := _private_bytes()) > DRIVER_BYTES_MAX:
        return f"it uses {size >> 20} MiB of memory, which the fork would keep"
    return None


def why_forks_break() -> str | None:
    """Return what in this process would not survive a fork, None if nothing is known.

    Native threads are not checked here: see `stray_threads`.
    """
    main = threading.main_thread()
    if names := [thread.name for thread in threading.enumerate() if thread is not main]:
        return f"other threads run: {', '.join(names)}"
    if loaded := [name for name in _BREAK_IN_A_FORK if name in sys.modules]:
        return f"{loaded[0]} is loaded, which does not survive a fork"
    try:
        opened = _open_files()
    except OSError as error:
        return f"its open files cannot be listed: {error.strerror}"
    if _holds_gpu(opened):
        return "it has used a GPU"
    if _runs_a_loop():
        return "an asyncio loop runs in it"
    if _tracks_resources():
        return "multiprocessing tracks shared memory or semaphores for it"
    return None


def _is_traced() -> bool:
    """Whether a tracer is set; one that measures coverage survives a fork."""
    tracer = sys.gettrace()
    return tracer is not None and not type(tracer).__module__.startswith("coverage")


def _holds_gpu(opened: Sequence[str]) -> bool:
    cuda: Any = sys.modules.get("torch.cuda")
    if cuda is not None and hasattr(cuda, "is_initialized") and cuda.is_initialized():
        return True
    # Asking how many GPUs there are starts the driver's runtime too, and shows as open files.
    return any(path.startswith(("/dev/nvidia", "/dev/kfd", "/dev/dri/")) for path in opened)


def _open_files() -> list[str]:
    paths: list[str] = []
    for handle in os.listdir("/proc/self/fd"):
        try:
            paths.append(os.readlink(f"/proc/self/fd/{handle}"))
        except OSError:
            continue  # the handle that `listdir` used
    return paths


def _runs_a_loop() -> bool:
    asyncio: Any = sys.modules.get("asyncio")
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _tracks_resources() -> bool:
    """Whether multiprocessing runs a process of its own, which a fork would wrongly use as well."""
    for module, owner, attribute in (
        ("multiprocessing.resource_tracker", "_resource_tracker", "_fd"),
        ("multiprocessing.forkserver", "_forkserver", "_forkserver_alive_fd"),
    ):
        if getattr(getattr(sys.modules.get(module), owner, None), attribute, None) is not None:
            return True
    return False


def _private_bytes() -> int:
    with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) << 10
    return 0


def stray_threads() -> list[str]:
    """Return the names of threads, except the main one, that a fork would not survive.

    To be called just after a fork: libraries that support forks have ended their threads for it, as
    OpenBLAS does, and start them again when they need them.
    """
    if sys.platform != "linux":
        return []
    strays: list[str] = []
    for waited in range(6):  # a thread that was joined is listed for a moment longer
        strays = [name for name in processes.threads() if name not in SURVIVE_A_FORK][1:]
        if not strays:
            break
        processes.wait_a_moment(waited)
    return strays


def fork() -> int:
    """Fork this process, without Python's warning about threads: we have our own."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # missing, or closed
            stream.flush()  # or both processes would print what is in it
    if sys.version_info < (3, 12):
        return os.fork()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def forget_driver(keep: int) -> None:
    """Reset this fork of a driver to the state of a new process, except for its imports.

    Args:
        keep: The handle of the one file that belongs to the fork.
    """
    sys.settrace(None)
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _detach_files(keep)
    new_streams()
    _unhook_logging()
    main = vars(sys.modules["__main__"])
    main["__spec__"] = None
    main.pop("__file__", None)  # a process that a worker spawns must not run the user's script
    gc.freeze()


def _detach_files(keep: int) -> None:
    """Let go of all files that the driver has open, except stdout and stderr.

    The handles stay in use, by the null device: objects of the driver still hold them, and must not
    write to or close a file of ours that got the same number.
    """
    read_nothing()
    with open(os.devnull, "r+b", buffering=0) as nothing:
        own = {0, 1, 2, keep, nothing.fileno()}
        for handle in {int(name) for name in os.listdir("/proc/self/fd")} - own:
            if not os.path.lexists(f"/proc/self/fd/{handle}"):
                continue  # the handle that `listdir` used is closed
            try:
                os.dup2(nothing.fileno(), handle, inheritable=False)
            except OSError:  # the number is above the limit, which was lowered
                os.close(handle)


def _unhook_logging() -> None:
    """Remove log handlers that write to files of the driver; those that print to stderr stay."""
    loggers: list[Any] = [logging.getLogger(), *logging.root.manager.loggerDict.values()]
    for logger in loggers:
        for handler in list(getattr(logger, "handlers", ())):
            if type(handler) is logging.StreamHandler and handler.stream is not None:
                handler.stream = sys.stderr
            else:
                logger.removeHandler(handler)
