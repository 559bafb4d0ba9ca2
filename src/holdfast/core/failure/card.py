"""The failure card: one screen of plain text about a lost group, and its headline.

The card says which rank failed first and how, where the user's own code stood, what the other ranks
did, what was lost and what happens next. Failures that differ only in numbers are shown once. Only
paths and commands, which are to be copied, may be wider than the screen.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from holdfast.core.failure.groups import HUNG_ALONE_MAX, Group, all_hung, groups_of
from holdfast.core.failure.hints import is_bug
from holdfast.core.failure.kinds import hint, is_machine_failure, place, story
from holdfast.core.failure.stacks import OURS
from holdfast.core.log_lines import plain, plain_lines
from holdfast.core.quantities import duration
from holdfast.core.run.outcomes import Raised, WorkerExit

LINES_MAX = 40
COLUMNS_MAX = 100
_TRACE_MAX = 24
_GROUPS_MAX = 6
_LABEL = 9
_ENTRY_MAX = 4

_Entry: TypeAlias = tuple[str, str, bool]  # a label, its text, and whether that must stay whole


# ---------------------------------------------------------------------- what happens next


@dataclass(frozen=True, slots=True)
class Retry:
    """Another attempt follows; `left` of `limit` retries remain after it, None for any number."""

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
    """This driver ends although nothing failed; `resume` is the call or command that goes on."""

    reason: str
    resume: str


Next: TypeAlias = Retry | GaveUp | Exits


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A lost group, and what happens to its run.

    Attributes:
        ranks: How many there were.
        log_of: Returns the path of a rank's log.
        saved_step: The step of the newest checkpoint, None if there is none.
        reached_step: The last step that was reported, None if none was.
        repeats: How often in a row a loss looked like this one at the same place, this one counted.
        first_stopped: The rank of a hung group that stopped first, None if that is not known.
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
    ours: str = OURS
    not_started: str | None = None


# ---------------------------------------------------------------------- headline and card


def headline(exits: Sequence[WorkerExit], *, ranks: int | None = None) -> str:
    """Return a lost group in one line: which rank failed first and how, and how many others."""
    groups = groups_of(exits)
    if not groups:
        return "no worker was started"
    root = all_hung(groups)
    also_failed = sum(
        len(group.ranks)
        for group in groups[1:]
        if group.is_failure and not (root.is_hung and group.is_hung)
    )
    total = len(exits) if ranks is None else ranks
    line = f"{root.who(total)} {root.predicate(brief=root.is_hung)}"
    if root.is_hung and len(root.ranks) > 1:
        line += f", rank {root.exit.rank} first"
    if also_failed:
        line += f"; {also_failed} other{'s' * (also_failed > 1)} failed too"
    return line


def culprit(exits: Sequence[WorkerExit]) -> WorkerExit | None:
    """Return the likeliest cause of the other ends; None if no rank failed."""
    groups = groups_of(exits)
    return groups[0].exit if groups and groups[0].is_failure else None


def to_fix(exits: Sequence[WorkerExit]) -> str | None:
    """Return what to fix in the code before trying again can help, None for nothing."""
    first = culprit(exits)
    if not isinstance(first, Raised) or not is_bug(first.error):
        return None
    at = place(first, OURS)
    return f"fix the code at {at}" if at else "fix the code"


def card(loss: Loss) -> str:
    """Return the failure card."""
    groups = groups_of(loss.exits, first_stopped=loss.first_stopped)
    root = groups[0] if groups else None
    width = max([_LABEL, *(len(group.label) + 2 for group in groups[:HUNG_ALONE_MAX])])
    below = _table(groups, loss, width)
    for label, text, is_whole in [*_files(root, loss), *_outlook(root, loss)]:
        below += _paragraph(label, text, width, is_whole=is_whole)
    room = min(LINES_MAX - 2 - len(below), _TRACE_MAX)
    trace = [f"  {line}" for line in _story(root, loss, room)] if root is not None else []
    if trace:
        trace.append("")
    return "\n".join([_title(loss, groups), *(_fit_frame(line) for line in trace), *below])


def _title(loss: Loss, groups: Sequence[Group]) -> str:
    if groups:
        event = f"{all_hung(groups).who(loss.ranks)} {groups[0].predicate(brief=True)}"
    else:
        event = "its workers were not started"
    title = f"── attempt {loss.attempt} of run {loss.run!r} lost: {plain(event)} "
    return _fit(title, COLUMNS_MAX - 3).ljust(COLUMNS_MAX - 20, "─")


def _table(groups: Sequence[Group], loss: Loss, width: int) -> list[str]:
    lines = []
    most = max(_GROUPS_MAX, min(HUNG_ALONE_MAX, sum(group.is_hung for group in groups)))
    for group in groups[:most]:
        at = place(group.exit, loss.ours)
        tail = f" at {at}" if at else ""
        if group.varies:
            tail += f" (rank {group.exit.rank}'s words)"
        room = max(COLUMNS_MAX - 2 - width - len(tail), 20)
        ending = _fit(f"{group.where}{group.predicate()}", room)
        lines.append(_fit(f"  {group.label:<{width}}{ending}{tail}"))
    if len(groups) > most:
        rest = sum(len(group.ranks) for group in groups[most:])
        lines.append(f"  … and {rest} more, each for a different reason")
    return lines


def _files(root: Group | None, loss: Loss) -> list[_Entry]:
    entries: list[_Entry] = []
    if root is not None and root.is_failure:
        entries.append(("log", loss.log_of(root.exit.rank), True))
        if loss.stacks_file is not None and root.is_hung:
            entries.append(("stacks", loss.stacks_file, True))
    if root is None and loss.not_started is not None:
        entries.append(("why", loss.not_started, False))
    return entries


def _outlook(root: Group | None, loss: Loss) -> list[_Entry]:
    entries: list[_Entry] = []
    advice = hint(root.exit) if root is not None else None
    if advice is None and isinstance(loss.then, GaveUp) and (fix := to_fix(loss.exits)):
        advice = f"{fix}; then resume from what is saved"
    if advice is not None:
        entries.append(("try", advice, False))
    if loss.repeats >= 2:
        often = f"{loss.repeats} times in a row, at the same place"
        is_machine = root is not None and is_machine_failure(root.exit)
        verdict = "will not go away by itself" if is_machine else "looks like a bug, not bad luck"
        entries.append(("again", f"{often}: it {verdict}", False))
    entries.append(("lost", _lost(loss), False))
    begin = "the start" if loss.saved_step is None else f"step {loss.saved_step}"
    match loss.then:
        case Retry(attempt, after_s, left, limit):
            when = f"in {duration(after_s)}" if after_s > 0 else "now"
            count = f"; {left} of {limit} retries left" if left is not None else ""
            entries.append(("next", f"attempt {attempt} begins {when} from {begin}{count}", False))
        case GaveUp(reason, resume):
            entries += [("next", f"nothing: {reason}", False), ("resume", resume, True)]
        case Exits(reason, resume):
            goes_on = f"this process ends: {reason}; the run goes on from {begin}"
            entries += [("next", goes_on, False), ("resume", resume, True)]
        case _:
            assert_never(loss.then)
    return entries


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
    """Return the traceback, stack or last lines of the first failure."""
    first = loss.first_stopped == root.exit.rank or len(root.ranks) > 1
    return story(root.exit, lines_max, ours=loss.ours, stopped_first=first)


# ---------------------------------------------------------------------- lines


def _paragraph(label: str, text: str, width: int, *, is_whole: bool) -> list[str]:
    """Return the lines of an entry; a whole one is to be copied, so its lines are not wrapped."""
    indent = " " * (2 + width)
    lines = plain_lines(text) or [""]
    if not is_whole:
        room = COLUMNS_MAX - len(indent)
        lines = [part for line in lines for part in textwrap.wrap(line, room) or [""]]
    if len(lines) > _ENTRY_MAX:
        lines[_ENTRY_MAX - 1 :] = ["…"]
    return [f"  {label:<{width}}{lines[0]}", *(f"{indent}{line}" for line in lines[1:])]


def _fit_frame(line: str) -> str:
    """Return a line of a traceback that fits: the end of a frame's path says most."""
    frame = re.match(r'(\s*File ")([^"]+)(",.*)', line)
    surplus = len(line) - COLUMNS_MAX
    if frame is None or surplus <= 0 or surplus + 1 >= len(frame[2]):
        return _fit(line)
    return f"{frame[1]}…{frame[2][surplus + 1 :]}{frame[3]}"


def _fit(line: str, columns: int = COLUMNS_MAX) -> str:
    """Return a line that fits, cut in the middle: both ends say something."""
    if len(line) <= columns:
        return line
    tail = columns // 3
    return f"{line[: columns - tail - 1]}…{line[-tail:]}"
