"""What people read when a group is lost: one screen of plain text, and one line.

The screen says which rank failed first and how, where the user's own code stood, what the others
did, what was lost and what happens next. Failures that differ only in numbers are told once. Only a
path or a command, which is there to be copied, may be wider than the screen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from holdfast.core.card_text import (
    COLUMNS_MAX,
    duration,
    entry,
    fit,
    fit_frame,
    plain,
    plain_lines,
)
from holdfast.core.failure_hints import concise, hint_for, is_aftermath, is_of_the_machine
from holdfast.core.hang_stacks import above_the_worker
from holdfast.core.log_lines import ranks_text
from holdfast.core.outcomes import (
    Died,
    Evicted,
    Finished,
    Hung,
    Raised,
    WorkerExit,
    how_it_died,
    likeness,
)
from holdfast.core.traces import fold, place_in, shortened, where_it_stands

LINES_MAX = 40
_TRACE_MAX = 24
_LAST_LINES_MAX = 8
_GROUPS_MAX = 6
_LABEL = 9
_SIGABRT = 6
_ON_PURPOSE = 7  # the place in order of ranks that did not fail

_Said: TypeAlias = tuple[str, str, bool]  # a label, its text, and whether that must stay whole


# ---------------------------------------------------------------------- what happens next


@dataclass(frozen=True, slots=True)
class Retry:
    """Another attempt follows; `left` of `limit` retries are left after it, None for any number."""

    attempt: int
    after_s: float = 0.0
    left: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The run has failed; `resume` is the call or command that tries again."""

    reason: str
    resume: str


@dataclass(frozen=True, slots=True)
class Exits:
    """This driver ends, and `resume` carries on; nobody is to blame."""

    reason: str
    resume: str


Next: TypeAlias = Retry | GaveUp | Exits


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A lost group, and what becomes of its run.

    Attributes:
        ranks: How many there were.
        log_of: Where a rank's log is.
        saved_step: The step of the newest checkpoint, None if there is none.
        reached_step: The last step that was reported, None if none was.
        repeats: How often in a row a loss looked like this one at the same place, this one counted.
        first_stopped: Of a group that hung, the rank that stopped first; None if nobody knows.
        stacks_file: Where the stacks of all ranks were saved.
        ours: The folder of this package, whose frames are folded.
        not_started: Why the group never came up, if it did not.
    """

    run: str
    attempt: int
    exits: Sequence[WorkerExit]
    ranks: int
    then: Next
    log_of: Callable[[int], str]
    saved_step: int | None = None
    reached_step: int | None = None
    repeats: int = 1
    first_stopped: int | None = None
    stacks_file: str | None = None
    ours: str | None = None
    not_started: str | None = None


# ---------------------------------------------------------------------- one line, one screen


def headline(exits: Sequence[WorkerExit], *, ranks: int | None = None) -> str:
    """Return a lost group in one line: who failed first and how, and how many others did."""
    groups = _groups(exits)
    if not groups:
        return "no worker was started"
    root = groups[0]
    others = sum(len(one.ranks) for one in groups[1:] if one.is_failure)
    said = f"{root.who(len(exits) if ranks is None else ranks)} {root.how()}"
    return f"{said}; {others} other{'s' * (others > 1)} failed too" if others else said


def culprit(exits: Sequence[WorkerExit]) -> WorkerExit | None:
    """Return the end that is told first, the likeliest cause of the others; None if none failed."""
    groups = _groups(exits)
    return groups[0].exit if groups and groups[0].is_failure else None


def card(loss: Loss) -> str:
    """Return the screen."""
    groups = _groups(loss.exits, first_stopped=loss.first_stopped)
    root = groups[0] if groups else None
    width = max([_LABEL, *(len(one.label) + 2 for one in groups[:_GROUPS_MAX])])
    below = _table(groups, loss, width)
    for label, text, is_whole in [*_files(root, loss), *_outlook(root, loss)]:
        below += entry(label, text, width, is_whole=is_whole)
    room = min(LINES_MAX - 2 - len(below), _TRACE_MAX)
    told = [f"  {line}" for line in _story(root, loss, room)] if root is not None else []
    if told:
        told.append("")
    return "\n".join([_title(loss, root), *(fit_frame(line) for line in told), *below])


def _title(loss: Loss, root: _Group | None) -> str:
    if root is None:
        what = "its workers were not started"
    else:
        what = f"{root.who(loss.ranks)} {root.how(brief=True)}"
    title = f"── attempt {loss.attempt} of run {loss.run!r} lost: {plain(what)} "
    return fit(title, COLUMNS_MAX - 3).ljust(COLUMNS_MAX - 20, "─")


def _table(groups: Sequence[_Group], loss: Loss, width: int) -> list[str]:
    lines = []
    for one in groups[:_GROUPS_MAX]:
        at = place_in(one.exit.trace, loss.ours) if isinstance(one.exit, Raised) else None
        tail = f" at {at}" if at else ""
        if one.varies:
            tail += f" (rank {one.exit.rank}'s words)"
        how = fit(f"{one.where}{one.how()}", max(COLUMNS_MAX - 2 - width - len(tail), 20))
        lines.append(fit(f"  {one.label:<{width}}{how}{tail}"))
    if len(groups) > _GROUPS_MAX:
        rest = sum(len(one.ranks) for one in groups[_GROUPS_MAX:])
        lines.append(f"  … and {rest} more, each in its own way")
    return lines


def _files(root: _Group | None, loss: Loss) -> list[_Said]:
    said: list[_Said] = []
    if root is not None and root.is_failure:
        said.append(("log", loss.log_of(root.exit.rank), True))
        if loss.stacks_file is not None and isinstance(root.exit, Hung):
            said.append(("stacks", loss.stacks_file, True))
    if root is None and loss.not_started is not None:
        said.append(("why", loss.not_started, False))
    return said


def _outlook(root: _Group | None, loss: Loss) -> list[_Said]:
    said: list[_Said] = []
    hint = hint_for(root.exit) if root is not None else None
    if hint is not None:
        said.append(("try", hint, False))
    if loss.repeats >= 2:
        often = f"{loss.repeats} times in a row the same, and at the same place"
        is_for_machine = root is not None and is_of_the_machine(root.exit)
        what = "will not go away by itself" if is_for_machine else "looks like a bug, not a flake"
        said.append(("again", f"{often}: it {what}", False))
    said.append(("lost", _lost(loss), False))
    begin = "the start" if loss.saved_step is None else f"step {loss.saved_step}"
    match loss.then:
        case Retry(attempt, after_s, left, limit):
            when = f"in {duration(after_s)}" if after_s > 0 else "now"
            count = f"; {left} of {limit} retries left" if left is not None else ""
            said.append(("next", f"attempt {attempt} begins {when} from {begin}{count}", False))
        case GaveUp(reason, resume):
            said += [("next", f"nothing: {reason}", False), ("resume", resume, True)]
        case Exits(reason, resume):
            goes_on = f"this process ends: {reason}; the run goes on from {begin}"
            said += [("next", goes_on, False), ("resume", resume, True)]
        case _:
            assert_never(loss.then)
    return said


def _lost(loss: Loss) -> str:
    saved, reached = loss.saved_step, loss.reached_step
    if reached is None:
        return "nothing: no step was reported"
    if saved is None:
        return f"everything up to step {reached}: nothing was saved"
    if reached <= saved:
        return f"nothing: step {saved} was saved, and none after it was reported"
    steps = "1 step" if reached == saved + 1 else f"{reached - saved} steps"
    return f"{steps} (step {saved} was saved, {reached} was reached)"


def _story(root: _Group, loss: Loss, lines_max: int) -> list[str]:
    """Return what the first failure left behind: a traceback, a stack, or its last lines."""
    match root.exit:
        case Raised(trace=trace):
            whole = fold(trace, loss.ours) if loss.ours is not None else trace
            return shortened(plain_lines(whole), lines_max)
        case Hung(rank, stacks=stacks):
            whole = stacks
            if loss.ours is not None:
                whole = fold(above_the_worker(stacks, loss.ours), loss.ours)
            stack = where_it_stands(plain_lines(whole), lines_max - 1)
            is_first = loss.first_stopped == rank or len(root.ranks) > 1
            stopped = f"rank {rank} stopped first; it" if is_first else f"rank {rank}"
            return [f"{stopped} stood here, innermost first:", *stack]
        case Died(rank, last_lines=last) if last:
            kept = [line for text in last for line in plain_lines(text)]
            kept = kept[-min(lines_max - 1, _LAST_LINES_MAX) :]
            return [f"rank {rank} printed last:", *(f"  {line}" for line in kept)]
        case _:
            return []


# ---------------------------------------------------------------------- ranks that ended alike


@dataclass(frozen=True, slots=True)
class _Group:
    """Ranks that ended in the same way; `exit` is that of the first of them."""

    exit: WorkerExit
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    order: tuple[int, int]
    varies: bool = False  # whether the words of each differ, if only in numbers

    @property
    def is_failure(self) -> bool:
        return self.order[0] < _ON_PURPOSE

    @property
    def label(self) -> str:
        text = ranks_text(self.ranks)
        return text if len(text) <= 30 else f"{len(self.ranks)} ranks"

    @property
    def where(self) -> str:
        if not isinstance(self.exit, Raised | Died | Hung) or _is_node_lost(self.exit):
            return ""
        where = self.nodes[0] if len(self.nodes) == 1 else f"{len(self.nodes)} nodes"
        if isinstance(self.exit, Died) and len(self.ranks) == 1:
            where = f"{where}, pid {self.exit.pid}"
        return f"{where}: "

    def who(self, total: int) -> str:
        if len(self.ranks) == total > 1:
            return f"all {total} ranks"
        return f"{self.label} of {total}" if total > 1 else self.label

    def how(self, *, brief: bool = False) -> str:
        many = len(self.ranks) > 1
        match self.exit:
            case Finished():
                return "finished"
            case Raised(error=error):
                first = concise((plain_lines(error) or ["an error without a name"])[0])
                return f"raised {first.partition(':')[0] if brief else first}"
            case Died(node=node) if self.exit.node_lost:
                return f"{'were' if many else 'was'} lost with node {node}"
            case Died():
                how = how_it_died(self.exit)
                return how.replace("was ", "were ", 1).replace("its", "their") if many else how
            case Hung(idle_s=idle_s):
                return f"made no progress for {duration(idle_s)}"
            case Evicted(node=node) if self.exit.preempted:
                what = f"node {node} is" if len(self.nodes) == 1 else f"{len(self.nodes)} nodes are"
                return f"must go: {what} taken away"
            case Evicted():
                return "stopped by us"
            case _:
                assert_never(self.exit)


def _groups(exits: Sequence[WorkerExit], *, first_stopped: int | None = None) -> list[_Group]:
    """Return the ranks by how they ended, the likeliest cause of it all first."""
    alike: dict[tuple[object, ...], list[WorkerExit]] = {}
    for one in sorted(exits, key=lambda one: one.rank):
        alike.setdefault(_kind(one), []).append(one)
    groups = []
    for members in alike.values():
        shown = min(members, key=lambda one: (one.rank != first_stopped, -_idle(one), one.rank))
        ranks = tuple(one.rank for one in members)
        nodes = tuple(dict.fromkeys(one.node for one in members))
        varies = len({one.error for one in members if isinstance(one, Raised)}) > 1
        groups.append(_Group(shown, ranks, nodes, (_order(shown), shown.rank), varies))
    return sorted(groups, key=lambda one: one.order)


def _kind(one: WorkerExit) -> tuple[object, ...]:
    """Return what two ranks that ended in the same way have in common."""
    match one:
        case Raised(error=error):
            return "raised", likeness(error)
        case Died(node=node) if one.node_lost:
            return "node lost", node
        case Died():
            return "died", how_it_died(one)
        case Evicted():
            return "evicted", one.preempted
        case _:
            return (type(one).__name__,)


def _order(one: WorkerExit) -> int:
    """Return how likely it is the cause: what comes from outside first, aftermath last."""
    match one:
        case Evicted():
            return 0 if one.preempted else _ON_PURPOSE
        case Died():
            if one.node_lost:
                return 1
            # A process whose peer is gone may be told so by its library in native code, and abort.
            return 5 if one.signal == _SIGABRT and not one.out_of_memory else 2
        case Hung():
            return 3
        case Raised(error=error):
            return 6 if is_aftermath(error) else 4
        case Finished():
            return _ON_PURPOSE + 1
        case _:
            assert_never(one)


def _is_node_lost(one: WorkerExit) -> bool:
    return isinstance(one, Died) and one.node_lost


def _idle(one: WorkerExit) -> float:
    return one.idle_s if isinstance(one, Hung) else 0.0
