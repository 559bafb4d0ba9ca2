"""What is worth trying after a failure of a known kind, and which errors only follow another's."""

from __future__ import annotations

import re

from holdfast.core.outcomes import Died, Hung, Raised, WorkerExit

_OF_SIGNALS = {
    1: "the terminal it was started from was closed; use nohup, tmux or a scheduler",
    4: "native code was built for another kind of CPU; install a build for this one",
    6: "native code gave up and has said why in the log: a CUDA assertion, NCCL, a C++ error",
    7: (
        "as a rule shared memory is full: look at `df /dev/shm`; give a container more (docker run "
        "--shm-size=8g, or --ipc=host), or use fewer data-loader workers"
    ),
    8: "native code divided by zero, where the innermost line is that is shown",
    9: (
        "somebody sent SIGKILL: a scheduler at its limit, a person, or the kernel for want of "
        "memory, which `dmesg` tells"
    ),
    11: (
        "native code crashed, called from the innermost line that is shown; libraries built for "
        "different versions of CUDA or torch are a common cause"
    ),
    15: "somebody asked it to end with SIGTERM: a scheduler at its time limit, or `kill`",
}
_OUT_OF_MEMORY = (
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
        _OUT_OF_MEMORY,
    ),
    (re.compile(r"dev/shm|DataLoader worker .*(Bus error|shared memory)"), _OF_SIGNALS[7]),
    (
        re.compile(r"DataLoader worker .*killed by signal: Killed"),
        f"as a rule the kernel killed it for want of memory, which `dmesg` tells: {_OUT_OF_MEMORY}",
    ),
    (
        re.compile(r"No space left on device|Errno 28|Disk quota exceeded|\bStoreFull\b|\[HF405\]"),
        "make room where it writes to: `df -h` tells how full a disk is",
    ),
    (re.compile(r"Too many open files|Errno 24"), "raise the limit: `ulimit -n 65536`"),
    (re.compile(r"^ModuleNotFoundError|^ImportError"), "install it where this worker runs"),
)

# What ranks say when it is another one that is gone, or could not save its part; gloo, NCCL, MPI,
# plain sockets, and our own `report`: what is staged of a checkpoint that is given up is removed,
# perhaps while a rank still writes its part.
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
    """Whether an error is what ranks raise when another rank is gone."""
    return _AFTERMATH.search(error) is not None


_SOURCE = re.compile(r"\[\S+\.(cc|cpp|cu|h|hpp):\d+\] ?")


def concise(error: str) -> str:
    """Return what an error says, as far as it says something to a user.

    Where libraries tell that a peer is gone, in the middle between where in their source they found
    out, and general advice.
    """
    if not is_aftermath(error):
        return error
    told = _SOURCE.sub("", error)
    found = _AFTERMATH.search(told)
    return told[: found.end()] + _rest_of_word(told[found.end() :]) if found else told


def _rest_of_word(text: str) -> str:
    """Return how a sentence goes on, up to the end of its clause."""
    return re.split(r"[.;]( |$)", text, maxsplit=1)[0]


def is_of_the_machine(one: WorkerExit) -> bool:
    """Whether a failure is about what the machine has or lacks, and not about the code."""
    match one:
        case Died():
            return one.out_of_memory or one.node_lost
        case Raised(error=error):
            return any(known.search(error) for known, _ in _OF_ERRORS)
        case _:
            return False


# Errors that come back however often the same code is run.
_BUGS = re.compile(
    r"""^(\w+\.)*(ArithmeticError | AssertionError | AttributeError | ConfigError | ImportError
      | IndentationError | IndexError | KeyError | LookupError | ModuleNotFoundError | NameError
      | NotImplementedError | RanksDisagree | RecursionError | SyntaxError | TypeError
      | UnboundLocalError | UnicodeDecodeError | UnicodeEncodeError | ValueError
      | ZeroDivisionError)(:|$)""",
    re.VERBOSE,
)


def is_bug(one: WorkerExit | None) -> bool:
    """Whether a failure is one that the same code will meet again."""
    if not isinstance(one, Raised) or is_aftermath(one.error) or is_of_the_machine(one):
        return False
    return _BUGS.match(one.error) is not None


def hint_for(one: WorkerExit) -> str | None:
    """Return one thing to try, None if there is nothing to say that the failure does not."""
    match one:
        case Died(out_of_memory=True):
            return _OUT_OF_MEMORY
        case Died(node_lost=True):
            return None
        case Died(signal=int(number)):
            return _OF_SIGNALS.get(number)
        case Died(exit_code=int(code)):
            return (
                f"it ended itself without a Python error: os._exit({code}), or exit({code}) in "
                "native code; the log may say more"
            )
        case Raised(error=error):
            return next((hint for known, hint in _OF_ERRORS if known.search(error)), None)
        case Hung():
            return (
                "if this was no hang but a long step, say how long one may take: "
                "FailureConfig(hang_timeout_s=…)"
            )
        case _:
            return None
