"""Threads that commit checkpoints of trials: while a disk syncs one, the study goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from holdfast.core.checkpoint.manifest import Manifest

THREADS = 4


class CommitPool:
    """Commits checkpoints in threads.

    Args:
        wake: Called by a thread when a checkpoint is written, or has failed.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._pool: ThreadPoolExecutor | None = None
        self._writing: set[Future[Manifest]] = set()
        self._written: deque[Future[Manifest]] = deque()

    def begin(self, write: Callable[[], Manifest]) -> Future[Manifest]:
        """Begin to commit a checkpoint."""
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
        """Return the commits that have ended, well or not, since the last call."""
        ended = set()
        while self._written:
            ended.add(self._written.popleft())
        self._writing -= ended
        return ended

    def finish(self) -> set[Future[Manifest]]:
        """Wait for all commits, then return those that have ended since the last call."""
        wait(self._writing)
        return self.take()

    def close(self) -> None:
        """End the threads, once they are done."""
        if self._pool is not None:
            self._pool.shutdown()
