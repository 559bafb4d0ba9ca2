"""Turns signals that a driver gets into values that its loop can take."""

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
    """What a signal asks of this driver."""

    STOP = "stop"  # Ctrl+C, the first one
    PREEMPTED = "preempted"  # SIGTERM or SIGUSR1: this machine, or this process, must go


_MEANINGS = {
    signal.SIGINT: Interrupt.STOP,
    signal.SIGTERM: Interrupt.PREEMPTED,
    signal.SIGUSR1: Interrupt.PREEMPTED,
}
_TRIES = 8


class Interrupts:
    """Handles SIGINT, SIGTERM and SIGUSR1 inside its `with` block.

    The first signal of each kind is recorded for `take`, and `wake` is called; later ones are the
    same event, except that a second Ctrl+C raises `KeyboardInterrupt` at once. A Python handler
    that the user had set for SIGTERM or SIGUSR1 is called too, after ours, each time; one for
    SIGINT is called with the second Ctrl+C. After the block all handlers are as before it.

    A signal that was ignored stays ignored, as under `nohup`; one with a handler outside Python,
    such as `faulthandler.register`, is left to it. A process forked inside the block gets the
    handlers from before it. Signals can be handled only in the main thread of the main interpreter:
    elsewhere the block does nothing, and `take` returns nothing.

    Args:
        wake: Makes the loop call `take`. It runs between any two instructions of the main thread,
            so it must neither wait nor raise; writing to a pipe is fine.
        insists: Whether the first Ctrl+C, too, raises `KeyboardInterrupt`, given the frame that the
            main thread is in: nothing else could end what runs there.
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
        self._late: list[int] = []  # signals that came while handlers were set or restored

    @property
    def wants_stop(self) -> bool:
        """Whether Ctrl+C was pressed."""
        return Interrupt.STOP in self._seen

    def take(self) -> list[Interrupt]:
        """Return the events since the last call, in order; also after the block."""
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
            self._restore()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # From here on nothing is raised until all are restored, however often Ctrl+C is pressed.
        self._is_open = False
        self._restore()
        self._send_again()

    def _set(self) -> None:
        for number in _MEANINGS:
            before = signal.getsignal(number)
            if before is signal.SIG_IGN or _is_handled_outside_python(number, before):
                continue
            self._before[number] = before
            try:
                signal.signal(number, self._note)
            except ValueError:
                self._before.clear()  # not the main interpreter: every signal would be refused
                return

    def _restore(self, tries: int = _TRIES) -> None:
        """Restore all handlers, even if one that is restored already raises meanwhile.

        It may raise at any instruction, even inside an `except`; so the tries are nested.
        """
        try:
            if tries:
                self._restore(tries - 1)
            else:
                self._restore_once()
        except BaseException:
            self._restore_once()
            raise

    def _restore_once(self) -> None:
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


def _is_handled_outside_python(number: int, handler: object) -> bool:
    """Whether native code handles a signal, which `handler`, as Python reports it, may not show.

    Python could not restore that: it would set the default instead, and the next such signal would
    end the process.
    """
    if handler is None:
        return True
    if handler not in (signal.SIG_DFL, signal.SIG_IGN):
        return False
    action = ctypes.create_string_buffer(1024)  # a C structure, whose first field is a pointer
    try:
        failed = ctypes.CDLL(None).sigaction(number, None, action)
    except (AttributeError, OSError):
        return False  # this system does not tell
    actual = ctypes.c_size_t.from_buffer(action).value
    return not failed and actual not in (int(signal.SIG_DFL), int(signal.SIG_IGN))
