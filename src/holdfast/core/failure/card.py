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
from holdfast.core.crash_stacks import crash_report, crashed_stack
from holdfast.core.failure.groups import (
    HUNG_ALONE_MAX,
    Group,
    all_hung,
    groups_of,
    place_of_end,
)
from holdfast.core.failure.hints import hint_for, is_bug, is_of_the_machine
from holdfast.core.failure.stacks import OURS, above_the_worker
from holdfast.core.failure.traces import fold, shortened, where_it_stands
from holdfast.core.outcomes import Died, Hung, Raised, WorkerExit

LINES_MAX = 40
_TRACE_MAX = 24
_LAST_LINES_MAX = 8
_GROUPS_MAX = 6
_LABEL = 9

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
    groups = groups_of(exits)
    if not groups:
        return "no worker was started"
    root = all_hung(groups)
    rest = [one for one in groups[1:] if one.is_failure and not (root.is_hung and one.is_hung)]
    others = sum(len(one.ranks) for one in rest)
    said = f"{root.who(len(exits) if ranks is None else ranks)} {root.how(brief=root.is_hung)}"
    if root.is_hung and len(root.ranks) > 1:
        said += f", rank {root.exit.rank} first"
    return f"{said}; {others} other{'s' * (others > 1)} failed too" if others else said


def culprit(exits: Sequence[WorkerExit]) -> WorkerExit | None:
    """Return the end that is told first, the likeliest cause of the others; None if none failed."""
    groups = groups_of(exits)
    return groups[0].exit if groups and groups[0].is_failure else None


def to_fix(exits: Sequence[WorkerExit]) -> str | None:
    """Return what must be done to the code before trying again can help, None for nothing."""
    first = culprit(exits)
    if first is None or not is_bug(first):
        return None
    at = place_of_end(first, OURS)
    return f"fix the code at {at}" if at else "fix the code"


def card(loss: Loss) -> str:
    """Return the screen."""
    groups = groups_of(loss.exits, first_stopped=loss.first_stopped)
    root = groups[0] if groups else None
    width = max([_LABEL, *(len(one.label) + 2 for one in groups[:HUNG_ALONE_MAX])])
    below = _table(groups, loss, width)
    for label, text, is_whole in [*_files(root, loss), *_outlook(root, loss)]:
        below += entry(label, text, width, is_whole=is_whole)
    room = min(LINES_MAX - 2 - len(below), _TRACE_MAX)
    told = [f"  {line}" for line in _story(root, loss, room)] if root is not None else []
    if told:
        told.append("")
    return "\n".join([_title(loss, groups), *(fit_frame(line) for line in told), *below])


def _title(loss: Loss, groups: Sequence[Group]) -> str:
    root = groups[0] if groups else None
    if root is None:
        what = "its workers were not started"
    else:
        what = f"{all_hung(groups).who(loss.ranks)} {root.how(brief=True)}"
    title = f"── attempt {loss.attempt} of run {loss.run!r} lost: {plain(what)} "
    return fit(title, COLUMNS_MAX - 3).ljust(COLUMNS_MAX - 20, "─")


def _table(groups: Sequence[Group], loss: Loss, width: int) -> list[str]:
    lines = []
    most = max(_GROUPS_MAX, min(HUNG_ALONE_MAX, sum(one.is_hung for one in groups)))
    for one in groups[:most]:
        at = place_of_end(one.exit, loss.ours)
        tail = f" at {at}" if at else ""
        if one.varies:
            tail += f" (rank {one.exit.rank}'s words)"
        how = fit(f"{one.where}{one.how()}", max(COLUMNS_MAX - 2 - width - len(tail), 20))
        lines.append(fit(f"  {one.label:<{width}}{how}{tail}"))
    if len(groups) > most:
        rest = sum(len(one.ranks) for one in groups[most:])
        lines.append(f"  … and {rest} more, each in its own way")
    return lines


def _files(root: Group | None, loss: Loss) -> list[_Said]:
    said: list[_Said] = []
    if root is not None and root.is_failure:
        said.append(("log", loss.log_of(root.exit.rank), True))
        if loss.stacks_file is not None and isinstance(root.exit, Hung):
            said.append(("stacks", loss.stacks_file, True))
    if root is None and loss.not_started is not None:
        said.append(("why", loss.not_started, False))
    return said


def _outlook(root: Group | None, loss: Loss) -> list[_Said]:
    said: list[_Said] = []
    hint = hint_for(root.exit) if root is not None else None
    if hint is None and isinstance(loss.then, GaveUp) and (fix := to_fix(loss.exits)):
        hint = f"{fix}; then carry on, with what is saved"
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


def _story(root: Group, loss: Loss, lines_max: int) -> list[str]:
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
        case Died(rank, last_lines=last) if len(crash := crash_report(last)) > 1:
            whole = crashed_stack(crash)
            if loss.ours is not None:
                whole = fold(whole, loss.ours)
            stack = where_it_stands(plain_lines(whole), lines_max - 1)
            return [f"rank {rank} crashed here, innermost first ({plain(crash[0])}):", *stack]
        case Died(rank, last_lines=last) if last:
            kept = [line for text in last for line in plain_lines(text)]
            kept = kept[-min(lines_max - 1, _LAST_LINES_MAX) :]
            return [f"rank {rank} printed last:", *(f"  {line}" for line in kept)]
        case _:
            return []
