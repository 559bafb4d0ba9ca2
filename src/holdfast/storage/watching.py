"""How a long piece of work is followed, called off, and shared among threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from holdfast.errors import TransferCancelled

T = TypeVar("T")
R = TypeVar("R")


@dataclass(slots=True)
class Progress:
    """How far a transfer has come; passed to the callback after every piece."""

    bytes_total: int
    files_total: int
    bytes_done: int = 0
    files_done: int = 0


ProgressCallback = Callable[[Progress], None]


@dataclass(slots=True)
class Watch:
    """How a caller follows a transfer and calls it off; both are optional."""

    on_progress: ProgressCallback | None = None
    cancel: threading.Event = field(default_factory=threading.Event)

    def checked(self) -> None:
        if self.cancel.is_set():
            raise TransferCancelled("the transfer was called off; nothing of it was committed")


class Tally:
    """Counts pieces from several threads and tells the watcher."""

    def __init__(self, watch: Watch, bytes_total: int, files_total: int) -> None:
        self._watch, self._lock = watch, threading.Lock()
        self._progress = Progress(bytes_total, files_total)

    def checked(self) -> None:
        self._watch.checked()

    def add(self, size: int, files: int = 0) -> None:
        self.checked()
        if self._watch.on_progress is None:
            return
        with self._lock:
            self._progress.bytes_done += size
            self._progress.files_done += files
            self._watch.on_progress(self._progress)


def each(work: Callable[[T], R], items: Sequence[T], threads: int) -> list[R]:
    """Do `work` on all items, in parallel where there are several; the first error ends it."""
    if len(items) <= 1 or threads <= 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(threads, len(items)), "holdfast-transfer") as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            raise
