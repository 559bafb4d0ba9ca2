"""Merges what workers print into one output: whole lines, equal ones once, at a limited rate.

Pure bookkeeping: the time is passed in; reading logs and printing are done elsewhere.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter

LINE_BYTES_MAX = 1 << 16
LOG_FORMAT = "%(levelname)s %(name)s: %(message)s"  # of what a worker logs
RAISED = "holdfast: the training function raised"  # the traceback follows; the card shows it too
QUEUE_FACTOR = 10  # how many seconds' worth of lines may wait to be shown

# Escape sequences of terminals: CSI (cursor, colour), OSC (titles, links), and the short ones.
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-Z\\-~])")
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1a\x1c-\x1f\x7f]")


class LineCutter:
    """Cuts the bytes of one log into lines.

    A line is held until it is complete. Of one that is overwritten, as progress bars are, only the
    last state is kept.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._is_lost = False  # whether the beginning of the current line was not seen
        self._shown = ""  # the state of a progress bar that was shown last

    def feed(self, data: bytes) -> list[str]:
        """Return the lines that `data` completes; blank ones are left out."""
        *pieces, rest = (self._rest + data).split(b"\n")
        if self._is_lost and pieces:
            del pieces[0]
            self._is_lost = False
        self._rest = b"" if self._is_lost else _last_states(rest)
        lines = [self._finished(piece) for piece in pieces]
        if len(self._rest) > LINE_BYTES_MAX:
            lines.append(self._finished(self._rest))
            self._rest = b""
        return [line for line in lines if line]

    def skip(self) -> None:
        """Forget what is held: bytes were left out, and the next ones begin inside a line."""
        self._rest, self._is_lost, self._shown = b"", True, ""

    def progress(self) -> str | None:
        """Return the new state of a line that is being overwritten, None if nothing is new."""
        if b"\r" not in self._rest:
            return None
        state = _state(self._rest)
        if not state or state == self._shown:
            return None
        self._shown = state
        return state

    def finish(self) -> list[str]:
        """Return what is held, complete or not; nothing may be fed after this."""
        rest, self._rest = self._rest, b""
        line = self._finished(rest)
        return [line] if line else []

    def _finished(self, piece: bytes) -> str:
        line, shown = _state(piece), self._shown
        self._shown = ""
        return "" if line == shown else line


def _last_states(rest: bytes) -> bytes:
    """Return an incomplete line without the states that were overwritten for good."""
    return b"\r".join(rest.rsplit(b"\r", 2)[-2:]) if rest.count(b"\r") > 1 else rest


def _state(piece: bytes) -> str:
    states = [state for state in piece.split(b"\r") if state.strip()]
    if not states:
        return ""
    cut = " …" if len(states[-1]) > LINE_BYTES_MAX else ""
    return states[-1][:LINE_BYTES_MAX].decode(errors="replace").rstrip() + cut


def shown_plainly(text: str, *, keeps_colour: bool) -> str:
    """Return text that cannot move the cursor of a terminal, ring its bell, or stay coloured."""
    if text.isprintable():
        return text

    def filtered(escape: re.Match[str]) -> str:
        return escape[0] if keeps_colour and _COLOUR.fullmatch(escape[0]) else ""

    plain = _CONTROL.sub("", _ESCAPE.sub(filtered, text))
    if "\x1b" not in plain:
        return plain
    return f"{plain}\x1b[0m" if keeps_colour else plain.replace("\x1b", "")


def plain_lines(text: str) -> list[str]:
    """Return lines without colours and control characters, leaving out blank ones."""
    last_states = (line.rstrip().rpartition("\r")[2] for line in text.split("\n"))
    return [plain(line) for line in last_states if line.strip()]


def plain(text: str) -> str:
    """Return a line without colours and control characters."""
    shown = shown_plainly(text.expandtabs(4), keeps_colour=False)
    return "".join(char if char.isprintable() else "?" for char in shown).rstrip()


def ranks_text(ranks: Iterable[int]) -> str:
    """Return ranks in few words: `rank 1`, `ranks 0-3`, `ranks 0,2-3`."""
    ordered = sorted(set(ranks))
    starts = [ordered[0], *(after for before, after in pairwise(ordered) if after != before + 1)]
    ends = [*(before for before, after in pairwise(ordered) if after != before + 1), ordered[-1]]
    spans = [f"{a}" if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True)]
    return f"{'rank' if len(ordered) == 1 else 'ranks'} {','.join(spans)}"


# ---------------------------------------------------------------------- lines of all ranks


@dataclass(slots=True)
class Line:
    """One line to show, and the ranks that printed it."""

    text: str
    ranks: list[int]
    since: float
    number: int


_number = attrgetter("number")


@dataclass(slots=True)
class LeftOut:
    """How much was printed and not shown; bytes where the lines were not counted."""

    ranks: set[int] = field(default_factory=set)
    lines: int = 0
    size_bytes: int = 0

    def __bool__(self) -> bool:
        return bool(self.ranks)


class Together:
    """Queues the lines of all ranks of a group in the order to show them.

    Equal lines of different ranks within `window_s` become one. The lines of each rank stay in
    order. At most `lines_max` lines per second are shown; the rest is left out and counted.
    """

    def __init__(self, ranks: Collection[int], *, window_s: float, lines_max: int) -> None:
        self._count = len(ranks)
        self._window_s, self._lines_max = window_s, lines_max
        self._queue: deque[Line] = deque()
        self._waiting: dict[str, list[Line]] = {}
        self._last_of: dict[int, int] = {}  # rank -> the number of its last line
        self._next = 1
        self._second_began = float("-inf")
        self._shown = 0  # lines in this second
        self._left_out = LeftOut()

    def add(self, rank: int, text: str, now: float) -> None:
        """Add a line of a rank."""
        self._begin_second(now)
        last = self._last_of.get(rank, 0)
        same = self._waiting.get(text, [])
        # Only after this rank's own last line: what it printed must stay in order.
        for line in same[bisect_right(same, last, key=_number) :]:
            if now - line.since < self._window_s:
                line.ranks.append(rank)
                self._last_of[rank] = line.number
                return
        if len(self._queue) >= QUEUE_FACTOR * self._lines_max:
            self._leave_out([rank], 1)
            return
        line = Line(text, [rank], now, self._next)
        self._next += 1
        self._last_of[rank] = line.number
        self._queue.append(line)
        self._waiting.setdefault(text, []).append(line)

    def skipped(self, rank: int, size_bytes: int, now: float) -> None:
        """Count bytes of a rank that were not read."""
        self._begin_second(now)
        self._leave_out([rank], 0)
        self._left_out.size_bytes += size_bytes

    def take(self, now: float, *, is_end: bool = False) -> list[Line | LeftOut]:
        """Return what to show now, in order; with `is_end` everything that is queued."""
        due: list[Line | LeftOut] = []
        while self._queue and (is_end or self._is_due(self._queue[0], now)):
            line = self._queue.popleft()
            self._forget(line)
            due += self._new_second(now)
            if self._shown < self._lines_max:
                self._shown += 1
                due.append(line)
            else:
                self._leave_out(line.ranks, len(line.ranks))
        due += self._new_second(float("inf") if is_end else now)
        return due

    def _is_due(self, line: Line, now: float) -> bool:
        return len(line.ranks) == self._count or now - line.since >= self._window_s

    def _forget(self, line: Line) -> None:
        same = self._waiting[line.text]
        del same[0]  # the queue is in order, so `line` is the oldest of them
        if not same:
            del self._waiting[line.text]

    def _begin_second(self, now: float) -> None:
        """Restart the count after silence, so that what is left out is shown after the rest."""
        if not self._left_out and now - self._second_began >= 1.0:
            self._second_began, self._shown = now, 0

    def _new_second(self, now: float) -> list[LeftOut]:
        """Restart the count if a second is over; return what was left out in it."""
        if now - self._second_began < 1.0:
            return []
        self._second_began, self._shown = now, 0
        left_out, self._left_out = self._left_out, LeftOut()
        return [left_out] if left_out else []

    def _leave_out(self, ranks: Sequence[int], lines: int) -> None:
        self._left_out.ranks.update(ranks)
        self._left_out.lines += lines
