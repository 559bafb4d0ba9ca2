"""Hints for common failures, and which errors only follow the failure of another rank."""

from __future__ import annotations

import re

_OF_SIGNALS = {
    1: "the terminal it was started from was closed; use nohup, tmux or a scheduler",
    4: "native code was built for another kind of CPU; install a build for this one",
    6: "native code aborted and printed why in the log: a CUDA assertion, NCCL, a C++ error",
    7: (
        "usually shared memory is full: see `df /dev/shm`; give a container more (docker run "
        "--shm-size=8g, or --ipc=host), or use fewer data-loader workers"
    ),
    8: "native code divided by zero; the first line of the stack above called it",
    9: (
        "SIGKILL comes from outside: the kernel when memory runs out (`dmesg` shows it), a "
        "scheduler at a limit, or `kill -9`"
    ),
    11: (
        "native code crashed, called from the first line of the stack; libraries built for "
        "different versions of CUDA or torch are a common cause"
    ),
    15: "SIGTERM comes from outside: a scheduler at its time limit, or `kill`",
}
OUT_OF_MEMORY = (
    "use less memory: fewer data-loader workers, a smaller batch, fewer ranks on a node, or a "
    "higher limit"
)
_OF_ERRORS = (
    (
        re.compile(r"CUDA out of memory|OutOfMemoryError"),
        (
            "use less memory of the GPU: a smaller batch with gradient accumulation, mixed "
            "precision, or PYTORCH_ALLOC_CONF=expandable_segments:True"
        ),
    ),
    (
        re.compile(r"^MemoryError|DefaultCPUAllocator|bad_alloc|Cannot allocate memory|Errno 12\b"),
        OUT_OF_MEMORY,
    ),
    (re.compile(r"dev/shm|DataLoader worker .*(Bus error|shared memory)"), _OF_SIGNALS[7]),
    (
        re.compile(r"DataLoader worker .*killed by signal: Killed"),
        f"usually the kernel killed it because memory ran out (`dmesg` shows it): {OUT_OF_MEMORY}",
    ),
    (
        re.compile(r"No space left on device|Errno 28|Disk quota exceeded|\bStoreFull\b|\[HF405\]"),
        "free space where it writes to: `df -h` shows how full each disk is",
    ),
    (re.compile(r"Too many open files|Errno 24"), "raise the limit: `ulimit -n 65536`"),
    (
        re.compile(r"^ModuleNotFoundError|^ImportError"),
        "install it where the workers run",
    ),
)

# Errors of ranks whose peer is gone or could not save its part: gloo, NCCL, MPI, plain sockets, and
# our own `report`, which removes the staged files of a checkpoint that is given up, perhaps while a
# rank still writes its part.
_AFTERMATH = re.compile(
    r"""Connection\ (closed|reset)\ by\ (remote\ )?peer | DistBackendError | DistNetworkError
      | ncclRemoteError | ncclSystemError | NCCL\ (error|communicator\ was\ aborted)
      | remote\ process\ (has\ )?(exited|terminated) | gloo/transport | Broken\ pipe
      | ConnectionResetError | BrokenPipeError | EOFError | Watchdog\ caught\ collective
      | [Ss]ocket\ [Tt]imeout | BrokenBarrierError | ^NotSaved:\ rank\ \d+:
      | /\.holdfast/staging/.*:\ No\ such\ file\ or\ directory""",
    re.VERBOSE,
)


def is_aftermath(error: str) -> bool:
    """Whether an error is one that ranks raise because another rank is gone."""
    return _AFTERMATH.search(error) is not None


_SOURCE = re.compile(r"\[\S+\.(cc|cpp|cu|h|hpp):\d+\] ?")


def concise(error: str) -> str:
    """Return an error without what says nothing to a user.

    When libraries report that a peer is gone, these are places in their source and general advice.
    """
    if not is_aftermath(error):
        return error
    message = _SOURCE.sub("", error)
    match = _AFTERMATH.search(message)
    if match is None:
        return message
    rest_of_clause = re.split(r"[.;]( |$)", message[match.end() :], maxsplit=1)[0]
    return message[: match.end()] + rest_of_clause


def is_machine_error(error: str) -> bool:
    """Whether an error is about the machine (memory, disk, packages), not about the code."""
    return hint_for_error(error) is not None


# Errors that the same code raises again every time.
_BUGS = re.compile(
    r"""^(\w+\.)*(ArithmeticError | AssertionError | AttributeError | ConfigError | ImportError
      | IndentationError | IndexError | KeyError | LookupError | ModuleNotFoundError | NameError
      | NotImplementedError | RanksDisagree | RecursionError | SyntaxError | TypeError
      | UnboundLocalError | UnicodeDecodeError | UnicodeEncodeError | ValueError
      | ZeroDivisionError)(:|$)""",
    re.VERBOSE,
)


def is_bug(error: str) -> bool:
    """Whether the same code will raise the error again."""
    if is_aftermath(error) or is_machine_error(error):
        return False
    return _BUGS.match(error) is not None


def hint_for_error(error: str) -> str | None:
    """Return one thing to try after an error was raised, None if there is no hint for it."""
    return next((hint for pattern, hint in _OF_ERRORS if pattern.search(error)), None)


def hint_for_signal(number: int) -> str | None:
    """Return one thing to try after a signal ended a process, None if there is no hint."""
    return _OF_SIGNALS.get(number)


def hint_for_exit_code(code: int | None) -> str:
    """Return one thing to try after a process exited by itself."""
    return (
        f"it ended itself without a Python error: os._exit({code}), or exit({code}) in native code;"
        " the log may say more"
    )
