"""The files of one kind, one for each trial of a study, in which every iteration stands once.

Rows are taken at once and written in batches; nothing is read or written while a row is taken. A
write that fails is tried again with the next batch, and its rows wait in memory until then.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from holdfast.errors import HoldfastError
from holdfast.tune.logger.formats import (
    Content,
    Format,
    Record,
    dump,
    each_once,
    last_step,
    record_of,
    up_to,
)
from holdfast.tune.logger.shelves import Changed, Shelf

log = logging.getLogger(__name__)

P = TypeVar("P")
STATES_MAX = 1024  # of trials that nothing waits for; the others' files are read again if need be
WAITING_ROWS_MAX = 50_000


@dataclass(slots=True)
class _File(Generic[P]):
    """What is known of one trial's file.

    Attributes:
        is_loaded: Whether the rest says what is in the file; if not, it is read before a write.
        is_torn: Whether our own last write may have been cut short.
        cut: The last iteration that counts of what is in the file, None for all.
        waiting: Records to be added after that.
        waiting_bytes: About how many bytes they are.
        is_over: Whether the trial has ended, so that this can be forgotten.
    """

    key: str = ""
    is_loaded: bool = False
    is_torn: bool = False
    size: int = 0
    head: Any = None
    last: int | None = None
    cut: int | None = None
    waiting: list[Record[P]] = field(default_factory=list)
    waiting_bytes: int = 0
    is_over: bool = False


class RowFiles(Generic[P]):
    """The files of all trials, named alike or, with `numbered`, after a name and a number.

    A numbered file is not written over: what takes its place has the next number, so that a reader
    that follows the old one notices. Any thread may call; only one writes at a time, and nobody who
    adds a row waits for it.
    """

    def __init__(
        self, shelf: Shelf, format_: Format[P], name: str, *, numbered: str | None = None
    ) -> None:
        self._shelf, self._format, self._name = shelf, format_, name
        self._numbered = numbered
        self._files: dict[str, _File[P]] = {}
        self._beside: dict[str, bytes] = {}
        self._lock = threading.Lock()  # of what waits
        self._writing = threading.RLock()  # of files, and of what is known of them
        self._rows = self._dropped = 0
        self._is_failing = False

    # ------------------------------------------------------------------ taking rows

    def add(self, folder: str, row: Mapping[str, Any]) -> None:
        """Take a row; one of an iteration that is there already takes its place and all after."""
        record = record_of(self._format, row)
        with self._lock:
            if self._rows >= WAITING_ROWS_MAX:
                self._dropped += 1
                return
            file = self._file(folder)
            if record.step is not None and _reaches(file.waiting, record.step):
                self._keep_waiting(file, up_to(file.waiting, record.step - 1))
            self._wait(file, record)

    def add_first(self, folder: str, payload: P) -> None:
        """Take something that belongs to no iteration; it is written if the file is empty yet."""
        with self._lock:
            file = self._file(folder)
            if not file.waiting and not file.size:
                self._wait(file, Record(None, payload))

    def __len__(self) -> int:
        """Return of how many trials something is in memory."""
        return len(self._files)

    def _wait(self, file: _File[P], record: Record[P]) -> None:
        file.is_over = False
        file.waiting.append(record)
        file.waiting_bytes += len(record.payload) if isinstance(record.payload, bytes) else 256
        self._rows += 1

    def _keep_waiting(self, file: _File[P], records: list[Record[P]]) -> None:
        self._rows += len(records) - len(file.waiting)
        file.waiting = records

    def _file(self, folder: str) -> _File[P]:
        """Return what is known of a trial's file, the most recently used last."""
        file = self._files.pop(folder, None)
        if file is None:
            file = _File()
        self._files[folder] = file
        return file

    def put_beside(self, key: str, data: bytes) -> None:
        """Take a whole file that is to be written with the next batch, if it is not so already."""
        with self._lock:
            self._beside[key] = data

    def end(self, folder: str) -> None:
        """The trial has ended: write its rows with the next batch and forget it."""
        with self._lock:
            if folder in self._files:
                self._files[folder].is_over = True

    # ------------------------------------------------------------------ correcting files

    def rewind(self, folder: str, step: int) -> bool:
        """Take away every row after iteration `step`; return whether the file is so already.

        If it is not, the next batch tries again.
        """
        with self._lock:
            file = self._file(folder)
            file.cut = _earlier(file.cut, step)
            self._keep_waiting(file, up_to(file.waiting, step))
        with self._writing:
            return self._write_out(folder, is_pressed=True)

    def reconcile(
        self, folder: str, rows: Iterable[Mapping[str, Any]], *, first: P | None = None
    ) -> bool:
        """Make the file hold the rows it has up to the first of `rows`, and then these.

        If it has none at all, `first` comes before them, as with `add_first`. What is torn,
        damaged, or there twice is taken away too; nothing is written if the file is as it should
        be. Returns whether that went well; if not, the next batch tries again.
        """
        records = each_once([record_of(self._format, row) for row in rows])
        begin = _first_step(records)
        if first is not None and records:
            records = [Record(None, first), *records]
        with self._lock:
            file = self._file(folder)
            self._keep_waiting(file, [])
            file.waiting_bytes, file.is_loaded = 0, False
            file.cut = None if begin is None else begin - 1
            for one in records:
                self._wait(file, one)
        with self._writing:
            return self._write_out(folder, is_pressed=True)

    # ------------------------------------------------------------------ writing

    def flush(self, *, durable: bool) -> bool:
        """Write what waits; with `durable`, for good. Return whether all of it went well."""
        with self._writing:
            with self._lock:
                folders = [folder for folder, file in self._files.items() if _needs(file)]
            done = [self._write_out(folder, is_pressed=durable) for folder in folders]
            is_done = self._write_beside() and all(done)
            is_done = is_done and (not durable or self._tried(self._shelf.sync))
            self._forget_some()
        if is_done and self._is_failing:
            self._is_failing = False
            log.info("%s is written again", self._name)
        return is_done

    def close(self) -> bool:
        """Make everything durable; say how many rows could not be kept, if any."""
        is_done = self.flush(durable=True)
        with self._lock:
            lost = self._dropped + self._rows
            self._dropped = 0
        if lost:
            log.warning("%d rows of %s could not be written and are lost", lost, self._name)
        return is_done

    def _write_beside(self) -> bool:
        with self._lock:
            batch = dict(self._beside)
        for key, data in batch.items():
            if not self._tried(partial(self._put_beside, key, data)):
                return False
            with self._lock:
                if self._beside.get(key) is data:
                    del self._beside[key]
        return True

    def _put_beside(self, key: str, data: bytes) -> None:
        if self._shelf.read(key) != data:
            self._shelf.replace_soon(key, data)

    def _write_out(self, folder: str, *, is_pressed: bool) -> bool:
        """Write what waits for one trial; return whether nothing is left to do for it."""
        with self._lock:
            file = self._files.get(folder)
            if file is None:
                return True
            is_pressed = is_pressed or file.is_over or file.cut is not None
            if not (is_pressed or self._shelf.is_due(file.size, file.waiting_bytes)):
                return True  # its time will come
            batch, cut, weight = file.waiting, file.cut, file.waiting_bytes
            file.waiting, file.cut, file.waiting_bytes = [], None, 0
        is_done = self._tried(partial(self._write, folder, file, batch, cut))
        with self._lock:
            if is_done:
                self._rows -= len(batch)
            else:
                self._put_back(file, batch, cut)
                file.waiting_bytes += weight
            if _is_finished(file):
                self._files.pop(folder, None)
        return is_done

    def _put_back(self, file: _File[P], batch: list[Record[P]], cut: int | None) -> None:
        """Have a batch wait again; what has come meanwhile counts, and may take its place."""
        kept = each_once([*batch, *file.waiting])
        kept = kept if file.cut is None else up_to(kept, file.cut)
        self._rows -= len(batch) + len(file.waiting) - len(kept)
        file.waiting, file.cut = kept, _earlier(file.cut, cut)

    def _write(self, folder: str, file: _File[P], batch: list[Record[P]], cut: int | None) -> None:
        if not file.is_loaded:
            self._load(folder, file)
        if file.size:
            batch = [one for one in batch if one.step is not None]
        first = _first_step(batch)
        if first is not None and file.last is not None and first <= file.last:
            cut = _earlier(cut, first - 1)
        head = self._format.grown(file.head, [one.payload for one in batch])
        is_cut = cut is not None and file.last is not None and file.last > cut
        if is_cut or (head != file.head and file.size):
            self._rewrite(folder, file, batch, cut)
        elif batch:
            self._append(folder, file, batch, head)

    def _append(self, folder: str, file: _File[P], batch: list[Record[P]], head: Any) -> None:
        data = b"".join([self._format.render(head, one.payload) for one in batch])
        if not file.size:
            data = self._format.opening(head) + data
        was_torn, file.is_torn = file.is_torn, True
        try:
            self._shelf.append(file.key, file.size, data, repair=was_torn)
        except Changed as error:
            log.warning("%s; it is read again, and rows that it has are not added", error.message)
            file.is_torn = False
            self._load(folder, file)
            new = [r for r in batch if r.step is None or file.last is None or r.step > file.last]
            if new:
                self._rewrite(folder, file, new, None)
            return
        file.is_torn = False
        file.size += len(data)
        file.head, file.last = head, _later(file.last, last_step(batch))

    def _load(self, folder: str, file: _File[P]) -> None:
        """Learn what is in the file; what is not as it should be is put right."""
        file.key = self._find_key(folder)
        data = self._shelf.read(file.key)
        content: Content[P] = self._format.load(data or b"")
        records = each_once(content.records)
        if data is not None:
            clean = dump(self._format, content.head, records)
            if clean != data:
                self._put(folder, file, clean)
                data = clean
            else:
                self._shelf.adopt(file.key)
        file.size, file.head, file.last = len(data or b""), content.head, last_step(records)
        file.is_loaded, file.is_torn = True, False

    def _rewrite(
        self, folder: str, file: _File[P], batch: list[Record[P]], cut: int | None
    ) -> None:
        before = self._shelf.read(file.key) or b""
        content = self._format.load(before)
        records = each_once(content.records)
        if cut is not None:
            records = up_to(records, cut)
        records = each_once([*records, *batch])
        head = self._format.grown(content.head, [one.payload for one in batch])
        data = dump(self._format, head, records)
        if data != before:
            self._put(folder, file, data)
        file.size, file.head, file.last = len(data), head, last_step(records)
        file.is_loaded, file.is_torn = True, False

    def _put(self, folder: str, file: _File[P], data: bytes) -> None:
        before, key = file.key, file.key
        if self._numbered is not None and self._shelf.names(folder) is not None:
            key = self._numbered_key(folder, self._number_in(before) + 1)
        self._shelf.replace(key, data)
        file.key = key
        if key != before:
            self._shelf.remove(before)

    # ------------------------------------------------------------------ names

    def _find_key(self, folder: str) -> str:
        """Return where the trial's file is, or is to be; what an earlier one left is removed."""
        if self._numbered is None:
            return f"{folder}/{self._name}"
        found = [
            key
            for name in self._shelf.names(folder) or ()
            if self._number_in(key := f"{folder}/{name}")
        ]
        found.sort(key=self._number_in)
        for older in found[:-1]:  # a crash came between putting the next one and removing it
            self._shelf.remove(older)
        return found[-1] if found else self._numbered_key(folder, 1)

    def _numbered_key(self, folder: str, number: int) -> str:
        assert self._numbered is not None
        return f"{folder}/{self._numbered.format(number)}"

    def _number_in(self, key: str) -> int:
        assert self._numbered is not None
        before, after = (re.escape(part) for part in re.split(r"\{.*\}", self._numbered))
        found = re.fullmatch(rf"{before}(\d+){after}", key.rpartition("/")[2])
        return int(found[1]) if found else 0

    # ------------------------------------------------------------------ pieces

    def _tried(self, work: Callable[[], None]) -> bool:
        try:
            work()
        except HoldfastError as error:
            if not self._is_failing:  # once for each time that it begins to fail
                log.warning("rows of %s wait in memory: %s", self._name, error)
        except Exception:  # whatever it is, rows must go on being taken and tried
            if not self._is_failing:
                log.exception("rows of %s wait in memory", self._name)
        else:
            return True
        self._is_failing = True
        return False

    def _forget_some(self) -> None:
        """Forget what is known of files that nothing waits for, if there are very many."""
        with self._lock:
            idle = [folder for folder, file in self._files.items() if not _needs(file)]
            for folder in idle[: max(0, len(self._files) - STATES_MAX)]:
                del self._files[folder]


def _needs(file: _File[P]) -> bool:
    return bool(file.waiting) or file.cut is not None or file.is_over


def _is_finished(file: _File[P]) -> bool:
    return file.is_over and not file.waiting and file.cut is None


def _reaches(records: list[Record[P]], step: int) -> bool:
    last = last_step(records)
    return last is not None and last >= step


def _first_step(records: Iterable[Record[P]]) -> int | None:
    return next((one.step for one in records if one.step is not None), None)


def _earlier(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _later(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)
