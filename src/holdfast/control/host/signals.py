"""Signals that a driver gets while it drives a run, made into something its loop can take."""

from __future__ import annotations

import ctypes
import enum
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self


class Interrupt(enum.Enum):
    """What somebody wants of this driver."""

    STOP = "stop"  # Ctrl+C, the first one
    PREEMPTED = "preempted"  # SIGTERM or SIGUSR1: this machine, or this process, must go


_MEANINGS = {
    signal.SIGINT: Interrupt.STOP,
    signal.SIGTERM: Interrupt.PREEMPTED,
    signal.SIGUSR1: Interrupt.PREEMPTED,
}
_TRIES = 8


class Interrupts:
    """Takes SIGINT, SIGTERM and SIGUSR1 for as long as its `with` block lasts.

    The first of each kind is noted for `take`, and `wake` is called; later ones are the same event,
    except that a second Ctrl+C raises `KeyboardInterrupt` on the spot. A Python function that the
    user had set for SIGTERM or SIGUSR1 is called too, after ours, each time; one for SIGINT is
    called with the second Ctrl+C. Whatever the block does, afterwards all is as it was before.

    A signal that was ignored stays ignored, as under `nohup`; one that was taken by code outside
    Python, such as `faulthandler.register`, is left to it. A process forked inside the block has
    what was set before it. Outside the main thread of the main interpreter signals cannot be
    taken: there the block does nothing, and `take` returns nothing.

    Args:
        wake: Makes the loop look at `take`; it is called between any two instructions of the main
            thread, so it must neither wait nor raise. Writing to a pipe is its kind of work.
        insists: Whether the first Ctrl+C, too, raises `KeyboardInterrupt`, given where it finds the
            main thread: nobody else could end what runs there.
    """

    def __init__(
        self,
        wake: Callable[[], None],
        insists: Callable[[FrameType | None], bool] = lambda _: False,
    ) -> None:
        self._wake, self._insists = wake, insists
        self._pid = 0
        self._before: dict[int, Any] = {}
        self._seen: set[Interrupt] = set()
        self._noted: list[Interrupt] = []
        self._is_open = self._is_insisting = False
        self._late: list[int] = []  # what came while signals were being set or put back

    @property
    def wants_stop(self) -> bool:
        """Whether Ctrl+C was pressed."""
        return Interrupt.STOP in self._seen

    def take(self) -> list[Interrupt]:
        """Return what came since the last call, in order; also after the block."""
        noted, self._noted = self._noted, []
        return noted

    def insist(self) -> None:
        """Raise `KeyboardInterrupt` in the main thread, if `insists` agrees; from any thread."""
        if self._is_open and signal.SIGTERM in self._before:  # or it would end the process
            self._is_insisting = True
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            return self
        self._pid = os.getpid()
        try:
            self._set()
            self._is_open = True
            self._send_again()
        except BaseException:
            self._is_open = False
            self._put_back()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # From here on nothing is raised until the last is back, however often Ctrl+C is pressed.
        self._is_open = False
        self._put_back()
        self._send_again()

    def _set(self) -> None:
        for number in _MEANINGS:
            before = signal.getsignal(number)
            if before is signal.SIG_IGN or _is_taken_outside_python(number, before):
                continue
            self._before[number] = before
            try:
                signal.signal(number, self._note)
            except ValueError:
                self._before.clear()  # not the main interpreter: the first was refused, as all are
                return

    def _put_back(self, tries: int = _TRIES) -> None:
        """Put back what was there, also if what is back already raises before the rest is.

        It may raise at any instruction, that of a handler too; so each try stands within another.
        """
        try:
            if tries:
                self._put_back(tries - 1)
            else:
                self._put_back_once()
        except BaseException:
            self._put_back_once()
            raise

    def _put_back_once(self) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _send_again(self) -> None:
        late, self._late = self._late, []
        for number in late:
            signal.raise_signal(number)

    def _note(self, number: int, frame: FrameType | None) -> None:
        before = self._before[number]
        if os.getpid() != self._pid:
            signal.signal(number, before)
            signal.raise_signal(number)
            return
        # `__exit__` may be interrupted before its first instruction.
        if not self._is_open or (frame and frame.f_code is Interrupts.__exit__.__code__):
            self._late.append(number)
            return
        if self._is_insisting and number == signal.SIGTERM:
            self._is_insisting = False
            if self._insists(frame):
                raise KeyboardInterrupt
            return
        meaning = _MEANINGS[signal.Signals(number)]
        is_again = meaning in self._seen
        if not is_again:
            self._seen.add(meaning)
            self._noted.append(meaning)
            self._wake()
        if meaning is Interrupt.STOP and not is_again and not self._insists(frame):
            return
        if callable(before) and before is not signal.default_int_handler:
            before(number, frame)
        if meaning is Interrupt.STOP:
            raise KeyboardInterrupt


def _is_taken_outside_python(number: int, known: object) -> bool:
    """Whether native code has set what a signal does, of which Python knows and may know nothing.

    Python could not put that back: it would leave what it believes was there, and the next such
    signal would end the process.
    """
    if known is None:
        return True
    if known not in (signal.SIG_DFL, signal.SIG_IGN):
        return False
    room = ctypes.create_string_buffer(1024)  # for the C structure, whose first field is a pointer
    try:
        failed = ctypes.CDLL(None).sigaction(number, None, room)
    except (AttributeError, OSError):
        return False  # not to be found out here
    really = ctypes.c_size_t.from_buffer(room).value
    return not failed and really not in (int(signal.SIG_DFL), int(signal.SIG_IGN))
