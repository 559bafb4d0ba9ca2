"""Shortens the text of tracebacks and stacks to the lines that say most.

A traceback lists frames oldest first; the stack of a thread lists them innermost first. Frames of
the user's own code say most, then the ones next to the failure. What is left out is counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast.core.quantities import counted

# In a traceback (`line 7, in f`), an exception group (`|` in front), faulthandler (`line 7 in f`)
_FRAME = re.compile(r'^(?P<indent>[ |]*)File "(?P<file>[^"]*)", line (?P<line>\d+)')
THREAD = re.compile(r"^(Current thread|Thread) 0x[0-9a-f]+")
_LIBRARIES = ("site-packages/", "dist-packages/", "/lib/python", "<frozen ", "<__array_function__")
_MESSAGE_MAX = 8


@dataclass(slots=True)
class _Piece:
    """A frame with its source lines, or a line of other text, which has no `file`."""

    lines: list[str]
    indent: str = ""
    file: str | None = None
    line: int = 0

    @property
    def is_users(self) -> bool:
        return self.file is not None and not any(mark in self.file for mark in _LIBRARIES)


def fold(trace: str, ours: str) -> str:
    """Return a traceback in which the frames of files below the folder `ours` are only counted."""
    lines: list[str] = []
    hidden: list[_Piece] = []
    for piece in [*_pieces(trace.split("\n")), None]:
        if piece is not None and _is_below(piece.file, ours):
            hidden.append(piece)
            continue
        if hidden:
            lines.append(f"{hidden[0].indent}… {counted(len(hidden), 'frame')} of holdfast …")
            hidden = []
        if piece is not None:
            lines += piece.lines
    return "\n".join(lines)


def place_in(trace: str, ours: str) -> str | None:
    """Return where the user's own code stood last, as `train.py:42`; None if it has no frame."""
    for piece in reversed(_pieces(trace.split("\n"))):
        if piece.is_users and not _is_below(piece.file, ours):
            assert piece.file is not None
            return f"{piece.file.rpartition('/')[2]}:{piece.line}"
    return None


def shortened(trace: Sequence[str], lines_max: int) -> list[str]:
    """Return a traceback cut to `lines_max`: the errors, and the frames that say most."""
    if len(trace) <= lines_max:
        return list(trace)
    pieces = _short_messages(_pieces(trace))
    backwards = range(len(pieces) - 1, -1, -1)
    texts = [at for at in backwards if pieces[at].file is None]
    frames = [at for at in backwards if pieces[at].file is not None]
    users = [at for at in frames if pieces[at].is_users]
    error = [at for at in texts if at > max(frames, default=-1)]
    # If one error was raised while another was handled, a frame of each is shown.
    named = {_block(pieces, at): at for at in reversed(users)}
    blocks = sorted(named.values(), reverse=True)
    first = [*error, *blocks[:1], *frames[:1]]
    return _chosen(pieces, [*first, *texts, *blocks, *users, *frames], lines_max)


def _block(pieces: Sequence[_Piece], at: int) -> int:
    """Return which of several tracebacks a frame is in, by the index of its last frame."""
    while at + 1 < len(pieces) and pieces[at + 1].file is not None:
        at += 1
    return at


def innermost_frames(stacks: Sequence[str], lines_max: int) -> list[str]:
    """Return the innermost frames of the main thread, including the user's innermost one.

    `stacks` is what faulthandler writes, in which the main thread comes last. Of any other text the
    beginning is returned.
    """
    headers = [at for at, line in enumerate(stacks) if THREAD.match(line)]
    stack = stacks[headers[-1] + 1 :] if headers else stacks
    if len(stack) <= lines_max:
        return list(stack)
    pieces = _pieces(stack)
    every = range(len(pieces))
    users = [at for at in every if pieces[at].is_users]
    return _chosen(pieces, [*users[:1], *every], lines_max)


def innermost(stacks: str, ours: str) -> tuple[list[tuple[str, str]], str | None]:
    """Return the calls below the user's innermost frame, and where that is, as `train.py:42`.

    `stacks` is what faulthandler writes, in which the main thread comes last. The calls are pairs
    of file and function, of libraries and of files below the folder `ours`, innermost first.
    """
    lines = stacks.split("\n")
    headers = [at for at, line in enumerate(lines) if THREAD.match(line)]
    called: list[tuple[str, str]] = []
    for piece in _pieces(lines[headers[-1] + 1 :] if headers else lines):
        if piece.file is None:
            continue
        if piece.is_users and not _is_below(piece.file, ours):
            return called, f"{piece.file.rpartition('/')[2]}:{piece.line}"
        called.append((piece.file, piece.lines[0].rpartition(" in ")[2]))
    return called, None


def _pieces(lines: Iterable[str]) -> list[_Piece]:
    pieces: list[_Piece] = []
    for text in lines:
        frame = _FRAME.match(text)
        last = pieces[-1] if pieces else None
        if frame is not None:
            pieces.append(_Piece([text], frame["indent"], frame["file"], int(frame["line"])))
        elif last is not None and last.file is not None and _continues(text, last.indent):
            last.lines.append(text)
        else:
            pieces.append(_Piece([text]))
    return pieces


def _continues(text: str, indent: str) -> bool:
    """Whether a line belongs to the frame before it: source, marks below it, or a repetition."""
    if not text.startswith(indent):
        return False
    rest = text[len(indent) :]
    return rest.startswith(("  ", "[Previous line repeated")) and bool(rest.strip())


def _is_below(file: str | None, folder: str) -> bool:
    return file is not None and file.startswith(folder.rstrip("/") + "/")


def _short_messages(pieces: Sequence[_Piece]) -> list[_Piece]:
    """Return the pieces with long messages cut in the middle."""
    short: list[_Piece] = []
    message: list[_Piece] = []
    for piece in [*pieces, None]:
        if piece is not None and piece.file is None:
            message.append(piece)
            continue
        if len(message) > _MESSAGE_MAX:
            left_out = len(message) - _MESSAGE_MAX + 1
            message[5:-2] = [_Piece([f"… {left_out} lines …"])]
        short += message
        message = []
        if piece is not None:
            short.append(piece)
    return short


def _chosen(pieces: Sequence[_Piece], wanted: Iterable[int], lines_max: int) -> list[str]:
    """Return as many pieces as fit, the first wanted first, in their order, with gaps counted."""
    chosen: set[int] = set()
    lines: list[str] = []
    misses = 0
    for at in wanted:
        if at in chosen:
            continue
        rendered = _rendered(pieces, {*chosen, at})
        if len(rendered) <= lines_max:
            chosen.add(at)
            lines = rendered
        else:
            misses += 1
        if misses > lines_max:
            break  # it is full, and an endless recursion has very many frames
    return lines


def _rendered(pieces: Sequence[_Piece], chosen: set[int]) -> list[str]:
    lines: list[str] = []
    left_out: list[_Piece] = []
    for at, piece in enumerate([*pieces, None]):
        if piece is not None and at not in chosen:
            left_out.append(piece)
            continue
        if left_out:
            if all(gap.file is not None for gap in left_out):
                count, noun = len(left_out), "frame"
            else:
                count, noun = sum(len(gap.lines) for gap in left_out), "line"
            lines.append(f"  … {counted(count, noun)} left out …")
            left_out = []
        if piece is not None:
            lines += piece.lines
    return lines
