"""Writes the metrics of a run: the driver appends rows, and a thread stores them in batches.

    .holdfast/metrics/{epoch}-{n}.jsonl

A segment consists of lines of sealed JSON: a header, then rows and the beginnings of attempts. On a
disk it grows; on an object store it is put again, longer, with each batch. Only the driver that
holds the epoch writes a segment. After a write that fails, the segment is not used any more, and
the rows go to the next one: a row may be stored twice then, which does no harm.

A crash of the driver can lose the rows of the last `BATCH_S`. Steps after the newest checkpoint are
reported again anyway, and a checkpoint has its own row. So only rows between checkpoints that were
reported less than `BATCH_S` before a crash can be missing for good.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Mapping
from typing import Any, Protocol

from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import Conflict, HoldfastError
from holdfast.storage.base import IF_ABSENT, Store
from holdfast.storage.local.files import Appender
from holdfast.storage.local.store import LocalStore
from holdfast.storage.records import encode, seal, seal_body

log = logging.getLogger(__name__)

FORMAT = 1
METRICS = ".holdfast/metrics"
BATCH_S = 0.5
PAUSE_MAX_S = 10.0  # between tries while the store fails
CLOSE_TIMEOUT_S = 30.0
WAITING_BYTES_MAX = 64 << 20
FILE_BYTES = 8 << 20
OBJECT_BYTES = 256 << 10  # small, because an object is sent whole with each batch


def segment_key(epoch: int, index: int) -> str:
    """Return the key of a segment of metric rows."""
    return f"{METRICS}/{epoch:06d}-{index:06d}.jsonl"


def header_line(epoch: int, index: int) -> bytes:
    """Return the first line of a segment."""
    return seal({"format": FORMAT, "segment": f"{epoch:06d}-{index:06d}"}) + b"\n"


class MetricRows:
    """Stores the rows of one driver.

    Any thread may append. While the store fails, rows wait in memory, `WAITING_BYTES_MAX` at most,
    and are tried again. `close` logs how many were lost; without it the last ones are.

    Args:
        epoch: The epoch of the lease that this driver holds.
        in_background: Whether a thread writes; if not, `flush` and `close` do.
    """

    def __init__(
        self,
        store: Store,
        epoch: int,
        *,
        clock: Clock = SYSTEM_CLOCK,
        in_background: bool = True,
    ) -> None:
        self._url, self._clock, self._in_background = store.url, clock, in_background
        self._segments: _Segments = (
            _Files(store.local, epoch) if store.local is not None else _Objects(store, epoch)
        )
        self._changed = threading.Condition()
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._taken = self._written = self._dropped = 0
        self._failures = 0  # in a row
        self._last = (0, 0)
        self._is_urgent = self._is_closing = False
        self._thread: threading.Thread | None = None

    def begin(self, attempt: int, after_step: int) -> None:
        """Record that `attempt` continues after `after_step`, 0 for a start from scratch.

        Rows of earlier attempts for later steps do not count from now on.
        """
        now = self._clock.now()
        self._take(f'{{"begin":{attempt},"after":{after_step},"time":{now!r}'.encode())

    def append(self, step: int, attempt: int, metrics: Mapping[str, Any], time: float) -> None:
        """Add a row; it is durable within a second, unless the store is slow or fails.

        The steps of an attempt rise. A row for a step that is not new is ignored: it comes from a
        slower rank.

        Raises `ConfigError` if the metrics cannot be stored as JSON, and nothing else.
        """
        if self._last[0] == attempt and step <= self._last[1]:
            return
        when, values = float(time), encode(metrics)
        self._last = attempt, step
        body = f'{{"step":{step},"attempt":{attempt},"time":{when!r},"metrics":{values}'
        self._take(body.encode())

    def _take(self, body: bytes) -> None:
        with self._changed:
            if self._is_closing or self._waiting_bytes > WAITING_BYTES_MAX:
                self._dropped += 1
                return
            self._taken += 1
            self._waiting.append(body)
            self._waiting_bytes += len(body)
            if len(self._waiting) == 1 and self._in_background:
                self._changed.notify_all()
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._write_in_batches, name="holdfast-metrics", daemon=True
                    )
                    self._thread.start()

    # ------------------------------------------------------------------ waiting

    def flush(self, timeout_s: float) -> bool:
        """Wait until all rows added so far are durable; return whether they are."""
        if not self._in_background:
            return self._write_waiting()
        with self._changed:
            target = self._taken
            if self._written < target:
                self._is_urgent = True
                self._changed.notify_all()
            return self._changed.wait_for(lambda: self._written >= target, timeout_s)

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Return once all rows are durable; log a warning if the store failed again."""
        with self._changed:
            was_closing, self._is_closing = self._is_closing, True
            self._changed.notify_all()
        if was_closing:
            return
        if self._thread is not None:
            self._thread.join(timeout_s)
        else:
            self._write_waiting()
        with self._changed:
            lost = self._taken - self._written + self._dropped
        if lost:
            log.warning(
                "%d rows of metrics could not be stored at %s and are lost", lost, self._url
            )
        if self._thread is None or not self._thread.is_alive():
            self._segments.close()

    # ------------------------------------------------------------------ writing

    def _write_in_batches(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closing)
                self._changed.wait_for(lambda: self._is_urgent or self._is_closing, self._pause_s())
                is_last = self._is_closing
                self._is_urgent = False
            self._write_waiting()
            if is_last:
                return

    def _pause_s(self) -> float:
        return min(PAUSE_MAX_S, BATCH_S * 2.0 ** min(self._failures, 10))

    def _write_waiting(self) -> bool:
        """Write all rows that wait; return whether that succeeded."""
        with self._changed:
            batch, self._waiting, self._waiting_bytes = self._waiting, [], 0
        is_written = not batch or self._write(b"".join([seal_body(body) + b"\n" for body in batch]))
        with self._changed:
            if is_written:
                if self._failures:
                    log.info("metric rows are written again")
                self._failures = 0
                self._written += len(batch)
            else:
                self._failures += 1
                self._waiting = batch + self._waiting
                self._waiting_bytes += sum(map(len, batch))
            self._changed.notify_all()
        return is_written

    def _write(self, lines: bytes) -> bool:
        try:
            self._segments.write(lines)
        except HoldfastError as error:
            if not self._failures:  # logged once per outage
                log.warning("metric rows wait in memory: %s", error)
            return False
        except Exception:  # whatever it is, rows must be accepted and tried again
            log.exception("metric rows of %s could not be written", self._url)
            return False
        return True


class _Segments(Protocol):
    """The segments of one epoch, written one after the other."""

    def write(self, lines: bytes) -> None:
        """Make lines durable; if this raises, they may or may not be, and must be written again."""
        ...

    def close(self) -> None: ...


class _Files:
    """Segments that grow on a disk."""

    def __init__(self, store: LocalStore, epoch: int) -> None:
        self._store, self._epoch = store, epoch
        self._next, self._size = 0, 0
        self._key = ""
        self._appender: Appender | None = None

    def write(self, lines: bytes) -> None:
        if self._appender is None:
            self._appender, header = self._open()
            self._size, lines = 0, header + lines
        try:
            self._appender.write(lines)
            self._appender.sync()
        except BaseException:
            self.close()
            if not self._size:
                self._remove(self._key)
            raise
        self._size += len(lines)
        if self._size >= FILE_BYTES:
            self.close()

    def _open(self) -> tuple[Appender, bytes]:
        while True:
            index, self._next = self._next, self._next + 1
            self._key = segment_key(self._epoch, index)
            try:
                appender = self._store.appender(self._key)
            except Conflict:
                continue  # it was written earlier in this epoch
            except HoldfastError:
                self._remove(self._key)
                raise
            return appender, header_line(self._epoch, index)

    def _remove(self, key: str) -> None:
        """Remove an empty segment: a disk that stays full is tried very often."""
        with contextlib.suppress(HoldfastError):
            self._store.delete(key)

    def close(self) -> None:
        if self._appender is not None:
            self._appender.close()
            self._appender = None


class _Objects:
    """Segments that are put again with each batch, longer each time."""

    def __init__(self, store: Store, epoch: int) -> None:
        self._store, self._epoch = store, epoch
        self._next = 0
        self._key: str | None = None
        self._data = b""

    def write(self, lines: bytes) -> None:
        if self._key is None:
            self._put_new(lines)
        else:
            key, self._key = self._key, None
            # If this fails it may still arrive later, so the key must not be put again.
            self._store.put(key, self._data + lines)
            self._key, self._data = key, self._data + lines
        if len(self._data) >= OBJECT_BYTES:
            self.close()

    def _put_new(self, lines: bytes) -> None:
        while True:
            index, self._next = self._next, self._next + 1
            key, data = segment_key(self._epoch, index), header_line(self._epoch, index) + lines
            try:
                self._store.put(key, data, IF_ABSENT)
            except Conflict:
                continue  # it was written earlier in this epoch
            self._key, self._data = key, data
            return

    def close(self) -> None:
        self._key, self._data = None, b""
