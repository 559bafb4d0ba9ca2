"""Progress, cancellation and threads for transfers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from holdfast.errors import TransferCancelled

T = TypeVar("T")
R = TypeVar("R")


@dataclass(slots=True)
class Progress:
    """The progress of a transfer; passed to the callback after every piece."""

    bytes_total: int
    files_total: int
    bytes_done: int = 0
    files_done: int = 0


ProgressCallback = Callable[[Progress], None]


@dataclass(slots=True)
class Watch:
    """Lets a caller follow a transfer and cancel it; both are optional."""

    on_progress: ProgressCallback | None = None
    cancel: threading.Event = field(default_factory=threading.Event)

    def checked(self) -> None:
        if self.cancel.is_set():
            raise TransferCancelled("the transfer was cancelled; nothing of it was committed")


class Tally:
    """Counts pieces from several threads and reports progress."""

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
    """Call `work` on all items and return the results in order; the first error ends it.

    The calling thread takes part. There is no future per item, because that would cost more than
    reading a small file.
    """
    results: list[Any] = [None] * len(items)
    errors: list[BaseException] = []
    numbers = itertools.count()

    def run_items() -> None:
        while not errors and (number := next(numbers)) < len(items):
            try:
                results[number] = work(items[number])
            except BaseException as error:  # noqa: BLE001  # raised below
                errors.append(error)

    workers = [
        threading.Thread(target=run_items, name=f"holdfast-transfer-{number}", daemon=True)
        for number in range(min(threads, len(items)) - 1)
    ]
    try:
        for thread in workers:
            thread.start()
        run_items()
        for thread in workers:
            thread.join()
    except BaseException as interruption:
        errors.append(interruption)  # the others stop after the item they have
        raise
    if errors:
        raise errors[0]
    return results
