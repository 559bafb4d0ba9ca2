"""Checkpoints of trials, written aside: while a disk syncs one, the study goes on with others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from holdfast.core.checkpoint.manifest import Manifest

THREADS = 4


class Aside:
    """Threads that write checkpoints, and what they have written that nobody has asked for yet.

    Args:
        wake: Called by a thread when one is written.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._pool: ThreadPoolExecutor | None = None
        self._writing: set[Future[Manifest]] = set()
        self._written: deque[Future[Manifest]] = deque()

    def begin(self, write: Callable[[], Manifest]) -> Future[Manifest]:
        """Have a checkpoint written."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="holdfast-commit")
        writing = self._pool.submit(write)
        self._writing.add(writing)
        writing.add_done_callback(self._note)
        return writing

    def _note(self, writing: Future[Manifest]) -> None:
        self._written.append(writing)
        self._wake()

    def take(self) -> set[Future[Manifest]]:
        """Return what was written, or failed to be, since the last call."""
        found = set()
        while self._written:
            found.add(self._written.popleft())
        self._writing -= found
        return found

    def finish(self) -> set[Future[Manifest]]:
        """Return the same, once nothing is being written any more."""
        wait(self._writing)
        return self.take()

    def close(self) -> None:
        """Let go of the threads, once they are done."""
        if self._pool is not None:
            self._pool.shutdown()
