"""What a failure card shows for each kind of end: one function per question, matching all kinds.

To add a kind, add it to `core.run.outcomes`, which declares them, and to the functions here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from holdfast.core.failure.hints import (
    OUT_OF_MEMORY,
    concise,
    hint_for_error,
    hint_for_exit_code,
    hint_for_signal,
    is_aftermath,
    is_machine_error,
)
from holdfast.core.failure.stacks import (
    above_worker_entry,
    crash_place,
    crash_report,
    crashed_stack,
    place_of,
    waits_in,
)
from holdfast.core.failure.traces import fold, innermost_frames, place_in, shortened
from holdfast.core.log_lines import plain, plain_lines
from holdfast.core.quantities import duration
from holdfast.core.run.outcomes import Died, Evicted, Finished, Hung, Raised, WorkerExit
from holdfast.core.run.signature import likeness

ON_PURPOSE = 7  # the `order` of ranks that did not fail
_SIGABRT = 6
_LAST_LINES_MAX = 8


def sameness(ended: WorkerExit) -> tuple[object, ...]:
    """Return a key that is equal for ranks that ended in the same way."""
    match ended:
        case Raised(error=error):
            return "raised", likeness(error)
        case Died():
            return "died", ended.manner
        case Evicted():
            return "evicted", ended.preempted
        case Hung(stacks=stacks):
            return "hung", waits_in(stacks), place_of(stacks)
        case Finished():
            return ("finished",)
        case _:
            assert_never(ended)


def order(ended: WorkerExit) -> int:
    """Return how likely it is the cause, lowest first: external causes first, aftermath last."""
    match ended:
        case Evicted():
            return 0 if ended.preempted else ON_PURPOSE
        case Died():
            if ended.node_lost:
                return 1
            # Native libraries may abort a process whose peer is gone.
            return 5 if ended.signal == _SIGABRT and not ended.out_of_memory else 2
        case Hung():
            return 3
        case Raised(error=error):
            return 6 if is_aftermath(error) else 4
        case Finished():
            return ON_PURPOSE + 1
        case _:
            assert_never(ended)


def predicate(ended: WorkerExit, nodes: Sequence[str], *, many: bool, brief: bool) -> str:
    """Return how ranks on `nodes` ended, as the predicate of a sentence about them."""
    match ended:
        case Finished():
            return "finished"
        case Raised(error=error):
            first = concise((plain_lines(error) or ["an error without a name"])[0])
            return f"raised {first.partition(':')[0] if brief else first}"
        case Died():
            manner = ended.manner
            return manner.replace("was ", "were ", 1).replace("its", "their") if many else manner
        case Hung(idle_s=idle_s, stacks=stacks):
            waits = None if brief else waits_in(stacks)
            where = f", {'wait' if many else 'waits'} in {waits}" if waits else ""
            return f"made no progress for {duration(idle_s)}{where}"
        case Evicted() if ended.preempted:
            leaving = f"node {nodes[0]} is" if len(nodes) == 1 else f"{len(nodes)} nodes are"
            return f"evicted: {leaving} being taken away"
        case Evicted():
            return "stopped after the failure"
        case _:
            assert_never(ended)


def process_of(ended: WorkerExit) -> str | None:
    """Return what identifies the process on its node, None if it is of no use."""
    return f"pid {ended.pid}" if isinstance(ended, Died) else None


def place(ended: WorkerExit, ours: str) -> str | None:
    """Return where the user's own code stood when a rank ended, None if that is unknown."""
    match ended:
        case Raised(trace=trace):
            return place_in(trace, ours)
        case Died(last_lines=lines):
            return crash_place(crash_report(lines))
        case Hung(stacks=stacks):
            return place_of(stacks)
        case Finished() | Evicted():
            return None
        case _:
            assert_never(ended)


def story(ended: WorkerExit, lines_max: int, *, ours: str, stopped_first: bool) -> list[str]:
    """Return what a failure left behind: a traceback, a stack, or its last lines."""
    match ended:
        case Raised(trace=trace):
            return shortened(plain_lines(fold(trace, ours)), lines_max)
        case Hung(rank, stacks=stacks):
            whole = fold(above_worker_entry(stacks, ours), ours)
            stack = innermost_frames(plain_lines(whole), lines_max - 1)
            stopped = "stopped first, here" if stopped_first else "stopped here"
            return [f"rank {rank} {stopped} (most recent call first):", *stack]
        case Died(rank, last_lines=last) if len(crash := crash_report(last)) > 1:
            whole = fold(crashed_stack(crash), ours)
            stack = innermost_frames(plain_lines(whole), lines_max - 1)
            title = f"rank {rank} crashed here (most recent call first; {plain(crash[0])}):"
            return [title, *stack]
        case Died(rank, last_lines=last) if last:
            lines = [line for text in last for line in plain_lines(text)]
            lines = lines[-min(lines_max - 1, _LAST_LINES_MAX) :]
            return [f"rank {rank} printed last:", *(f"  {line}" for line in lines)]
        case Died() | Finished() | Evicted():
            return []
        case _:
            assert_never(ended)


def hint(ended: WorkerExit) -> str | None:
    """Return one thing to try, None if there is no hint."""
    match ended:
        case Died(out_of_memory=True):
            return OUT_OF_MEMORY
        case Died(node_lost=True):
            return None
        case Died(signal=int(number)):
            return hint_for_signal(number)
        case Died(exit_code=code):
            return hint_for_exit_code(code)
        case Raised(error=error):
            return hint_for_error(error)
        case Hung():
            return (
                "if this was a long step and not a hang, allow more time: "
                "FailureConfig(hang_timeout_s=…)"
            )
        case Finished() | Evicted():
            return None
        case _:
            assert_never(ended)


def is_machine_failure(ended: WorkerExit) -> bool:
    """Whether a failure is about the machine (memory, disk, packages), not about the code."""
    match ended:
        case Died():
            return ended.out_of_memory or ended.node_lost
        case Raised(error=error):
            return is_machine_error(error)
        case Finished() | Hung() | Evicted():
            return False
        case _:
            assert_never(ended)
