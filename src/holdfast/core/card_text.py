"""Lines of the screen that tells of a loss: plain, and as wide as a screen is."""

from __future__ import annotations

import re
import textwrap

from holdfast.core.log_lines import shown_plainly

COLUMNS_MAX = 100
_ENTRY_MAX = 4


def entry(label: str, text: str, width: int, *, is_whole: bool) -> list[str]:
    """Return a labelled paragraph; a whole one is to be copied, so its lines are left as long."""
    indent = " " * (2 + width)
    lines = plain_lines(text) or [""]
    if not is_whole:
        room = COLUMNS_MAX - len(indent)
        lines = [part for line in lines for part in textwrap.wrap(line, room) or [""]]
    if len(lines) > _ENTRY_MAX:
        lines[_ENTRY_MAX - 1 :] = ["…"]
    return [f"  {label:<{width}}{lines[0]}", *(f"{indent}{line}" for line in lines[1:])]


def plain_lines(text: str) -> list[str]:
    """Return lines without colours and control characters, the blank ones left out."""
    last_states = (line.rstrip().rpartition("\r")[2] for line in text.split("\n"))
    return [plain(line) for line in last_states if line.strip()]


def plain(text: str) -> str:
    """Return a line without colours and control characters."""
    shown = shown_plainly(text.expandtabs(4), keeps_colour=False)
    return "".join(one if one.isprintable() else "?" for one in shown).rstrip()


def fit_frame(line: str) -> str:
    """Return a line of a traceback that fits: of a frame's path, the end says most."""
    found = re.match(r'(\s*File ")([^"]+)(",.*)', line)
    surplus = len(line) - COLUMNS_MAX
    if found is None or surplus <= 0 or surplus + 1 >= len(found[2]):
        return fit(line)
    return f"{found[1]}…{found[2][surplus + 1 :]}{found[3]}"


def fit(line: str, columns: int = COLUMNS_MAX) -> str:
    """Return a line that fits, cut in the middle: both its ends say something."""
    if len(line) <= columns:
        return line
    tail = columns // 3
    return f"{line[: columns - tail - 1]}…{line[-tail:]}"


def duration(seconds: float) -> str:
    """Return a time as people say it."""
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
