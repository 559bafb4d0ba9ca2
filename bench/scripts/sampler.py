"""What the driver of a study does, seen from inside: its main thread is looked at now and then."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EVERY_S = 0.002
# The first that a file's name begins with, below the package; of the innermost frame that has one.
PARTS = {
    "engine": "talking with workers",
    "wire": "talking with workers",
    "tune/search": "making trials",
    "tune/launching": "making trials",
    "tune/naming": "making trials",
    "journal": "journal",
    "storage/sealed": "journal",
    "control/study_journal": "journal",
    "control/open_run": "journal",
    "tune/logger": "files for people",
    "tune/telling": "files for people",
    "tune/progress": "files for people",
    "control/study_logs": "files for people",
    "core": "deciding",
    "tune/schedulers": "deciding",
    "": "the rest of the loop",
}
WAITING = "waiting for workers"


class Profile:
    """Where the time of the main thread went, and how much processor time everybody took."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()
        self._package = ""
        self._took_s = 0.0
        self._driver_s = self._main_s = self._workers_s = 0.0

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Look at what is done meanwhile."""
        import holdfast

        self._package = os.path.join(os.path.dirname(holdfast.__file__), "")
        signal.signal(signal.SIGALRM, self._look)
        signal.setitimer(signal.ITIMER_REAL, EVERY_S, EVERY_S)
        begun, driver_s, main_s = time.perf_counter(), time.process_time(), time.thread_time()
        workers_s = _of_children_s()
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._took_s = time.perf_counter() - begun
            self._driver_s = time.process_time() - driver_s
            self._main_s = time.thread_time() - main_s
            self._workers_s = _of_children_s() - workers_s

    def _look(self, _: int, frame: FrameType | None) -> None:
        self._seen[self._part(frame)] += 1

    def _part(self, frame: FrameType | None) -> str:
        if frame is not None and os.path.basename(frame.f_code.co_filename) == "selectors.py":
            return WAITING
        while frame is not None:
            path = frame.f_code.co_filename
            if path.startswith(self._package):
                below = path.removeprefix(self._package)
                return next(part for begin, part in PARTS.items() if below.startswith(begin))
            frame = frame.f_back
        return PARTS[""]

    def each_us(self, trials: int) -> dict[str, float]:
        """Return the microseconds that a trial took, by part; those of processors as `CPU, …`."""
        each = 1e6 / trials
        seen = self._seen.total() or 1
        parts = {*PARTS.values(), WAITING}
        return {
            **{part: each * self._took_s * self._seen[part] / seen for part in sorted(parts)},
            "CPU, main thread": each * self._main_s,
            "CPU, other threads": each * (self._driver_s - self._main_s),
            "CPU, workers": each * self._workers_s,
        }


def _of_children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
