"""The row files of a study: one per trial and format, with every step in it once.

Rows are buffered and written in batches; adding a row does no I/O. A write that fails is retried
with the next batch, and its rows wait in memory until then.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Generic, TypeVar

from holdfast.errors import HoldfastError
from holdfast.tune.logger.formats import (
    Content,
    Format,
    Record,
    dump,
    each_once,
    first_step,
    last_step,
    reaches,
    record_of,
    up_to,
)
from holdfast.tune.logger.growing_files import FileChanged, GrowingFiles

log = logging.getLogger(__name__)

P = TypeVar("P")
STATES_MAX = 1024  # of trials without waiting rows; files of the others are read again if needed
WAITING_ROWS_MAX = 50_000


class FileNames:
    """Keys of the files of one kind.

    Args:
        name: Their name, if they are not numbered.
        numbered: Their name, with braces for the number.
    """

    def __init__(self, name: str, numbered: str | None) -> None:
        self._name, self._numbered = name, numbered
        self.are_numbered = numbered is not None
        before, after = (re.escape(part) for part in re.split(r"\{.*\}", numbered or "{}"))
        self._pattern = re.compile(rf"{before}(\d+){after}")

    def first(self, folder: str) -> str:
        """Return the key of the first file in a folder."""
        return f"{folder}/{self._name}" if self._numbered is None else self.at(folder, 1)

    def at(self, folder: str, number: int) -> str:
        """Return the key with this number."""
        assert self._numbered is not None
        return f"{folder}/{self._numbered.format(number)}"

    def number_in(self, key: str) -> int:
        """Return the number in a key, 0 if it has none."""
        match = self._pattern.fullmatch(key.rpartition("/")[2])
        return int(match[1]) if match else 0


class Knowledge(Enum):
    """How `size`, `head` and `last` of a `FileState` relate to the file."""

    NONE = auto()  # unknown: the file must be read before a write
    ASSUMED = auto()  # the trial is new, so most likely there is no file
    CERTAIN = auto()  # they are what we read or wrote last


@dataclass(slots=True)
class FileState(Generic[P]):
    """One trial's file as we left it, and what waits to be written to it.

    Attributes:
        is_torn: Whether our own last write may have failed halfway.
        cut: The last step that counts of those in the file, None for all.
        waiting: Records to be added after that.
        waiting_bytes: About how many bytes they are.
        is_over: Whether the trial has ended, so that this can be dropped once written.
    """

    key: str = ""
    knowledge: Knowledge = Knowledge.NONE
    is_torn: bool = False
    size: int = 0
    head: Any = None
    last: int | None = None
    cut: int | None = None
    waiting: list[Record[P]] = field(default_factory=list)
    waiting_bytes: int = 0
    is_over: bool = False

    def needs_writing(self) -> bool:
        """Whether anything is left to do for the file."""
        return bool(self.waiting) or self.cut is not None or self.is_over

    def is_finished(self) -> bool:
        """Whether this can be dropped."""
        return self.is_over and not self.waiting and self.cut is None

    def set_written(self, size: int, head: Any, last: int | None) -> None:
        """Note what is in the file."""
        self.size, self.head, self.last = size, head, last
        self.knowledge, self.is_torn = Knowledge.CERTAIN, False

    def forget_written(self) -> None:
        """Note that another process may have written the file, so that it must be read."""
        self.knowledge, self.is_torn = Knowledge.NONE, False


class RowFiles(Generic[P]):
    """The files of all trials in one format, with the same name or, with `numbered`, numbers.

    A numbered file is not overwritten: its replacement has the next number, so that a reader that
    follows the old one notices. Thread-safe: one thread writes at a time, and adding a row does not
    wait for it.

    Attributes:
        fence: Called before writing; raises if another driver has taken the study over.
    """

    def __init__(
        self, files: GrowingFiles, format_: Format[P], name: str, *, numbered: str | None = None
    ) -> None:
        self._store, self._format, self._name = files, format_, name
        self.fence: Callable[[], None] = lambda: None
        self._names = FileNames(name, numbered)
        self._empty = format_.load(b"").head
        self._files: dict[str, FileState[P]] = {}
        self._whole: dict[str, bytes] = {}  # files to be written whole, by key
        self._lock = threading.Lock()  # guards waiting rows
        self._writing = files.lock  # guards files and their states
        self._rows = self._dropped = 0
        self._is_failing = False

    # ------------------------------------------------------------------ taking rows

    def expect(self, folder: str, *, is_first: bool = False) -> None:
        """Assume that a new trial has no file yet, where finding one would take a listing."""
        if self._names.are_numbered and (is_first or not self._store.may_have(folder)):
            with self._lock:
                self._assume_absent(folder, self._file(folder))

    def knows(self, folder: str) -> bool:
        """Whether a trial's file has a state in memory."""
        return folder in self._files

    def is_crowded(self) -> bool:
        """Whether so many rows wait that they should be written before more are added."""
        return self._rows >= WAITING_ROWS_MAX // 2 and not self._is_failing

    def add(self, folder: str, row: Mapping[str, Any]) -> None:
        """Add a row; it replaces a row of the same step, and all after that."""
        record = record_of(self._format, row)
        step = record.step
        with self._lock:
            if self._rows >= WAITING_ROWS_MAX:
                self._dropped += 1
                return
            file = self._files.get(folder) or self._file(folder)
            if file.waiting and step is not None and reaches(file.waiting, step):
                self._keep_waiting(file, up_to(file.waiting, step - 1))
            self._wait(file, record)

    def add_first(self, folder: str, payload: P) -> None:
        """Add a record without a step, which is written if the file is still empty."""
        with self._lock:
            file = self._file(folder)
            if not file.waiting and not file.size:
                self._wait(file, Record(None, payload))

    def __len__(self) -> int:
        """Return how many trials have a state in memory."""
        return len(self._files)

    def _wait(self, file: FileState[P], record: Record[P]) -> None:
        file.is_over = False
        file.waiting.append(record)
        file.waiting_bytes += len(record.payload) if isinstance(record.payload, bytes) else 256
        self._rows += 1

    def _keep_waiting(self, file: FileState[P], records: list[Record[P]]) -> None:
        self._rows += len(records) - len(file.waiting)
        file.waiting = records

    def _file(self, folder: str) -> FileState[P]:
        """Return the state of a trial's file; a new one assumes the most likely."""
        file = self._files.get(folder)
        if file is None:
            file = self._files[folder] = FileState()
            if not self._names.are_numbered:
                self._assume_absent(folder, file)
        return file

    def _assume_absent(self, folder: str, file: FileState[P]) -> None:
        """Assume that there is no file; if there is one, the first write notices."""
        if file.knowledge is Knowledge.NONE:
            file.key = self._names.first(folder)
            file.head, file.knowledge = self._empty, Knowledge.ASSUMED

    def put_whole(self, key: str, data: bytes) -> None:
        """Have the next batch write a whole file, unless it has this content."""
        with self._lock:
            self._whole[key] = data

    def end(self, folder: str) -> None:
        """The trial has ended: the next batch writes its rows and drops its state."""
        with self._lock:
            if folder in self._files:
                self._files[folder].is_over = True

    # ------------------------------------------------------------------ correcting files

    def rewind(self, folder: str, step: int) -> bool:
        """Remove every row after `step`; return whether that is done.

        If it is not, the next batch tries again.
        """
        with self._lock:
            file = self._file(folder)
            file.cut = earlier(file.cut, step)
            if file.knowledge is Knowledge.ASSUMED:
                file.forget_written()
            self._keep_waiting(file, up_to(file.waiting, step))
        with self._writing:
            return self._write_out(folder, is_urgent=True)

    def reconcile(
        self,
        folder: str,
        rows: Iterable[Mapping[str, Any]],
        *,
        first: P | None = None,
        is_urgent: bool = True,
    ) -> bool:
        """Make the file hold the rows it has up to the first of `rows`, and then these.

        If it is empty, `first` comes before them, as with `add_first`. Torn, damaged and duplicate
        rows are removed; nothing is written if the file is right already. Returns whether it is
        done; if it failed, or is not urgent, the next batch does it.
        """
        records = each_once([record_of(self._format, row) for row in rows])
        begin = first_step(records)
        if first is not None and records:
            records = [Record(None, first), *records]
        with self._lock:
            file = self._file(folder)
            self._keep_waiting(file, [])
            file.waiting_bytes = 0
            file.forget_written()
            file.cut = None if begin is None else begin - 1
            for record in records:
                self._wait(file, record)
        if not is_urgent:
            return not file.needs_writing()
        with self._writing:
            return self._write_out(folder, is_urgent=True)

    # ------------------------------------------------------------------ writing

    def flush(self, *, durable: bool) -> bool:
        """Write what waits, durably if `durable`; return whether all of it was written."""
        with self._writing:
            if not self._succeeds(self.fence):
                return False
            with self._lock:
                folders = [folder for folder, file in self._files.items() if file.needs_writing()]
            done = [self._write_out(folder, is_urgent=durable) for folder in folders]
            is_done = self._write_whole() and all(done)
            is_done = is_done and (not durable or self._succeeds(self._store.sync))
            self._forget_some()
        if is_done and self._is_failing:
            self._is_failing = False
            log.info("%s can be written again", self._name)
        return is_done

    def close(self) -> bool:
        """Make everything durable; log how many rows were lost, if any."""
        is_done = self.flush(durable=True)
        with self._lock:
            lost = self._dropped + self._rows
            self._dropped = 0
        if lost:
            log.warning("%d rows of %s could not be written and are lost", lost, self._name)
        return is_done

    def _write_whole(self) -> bool:
        with self._lock:
            batch = dict(self._whole)
        for key, data in batch.items():
            if not self._succeeds(self._put_if_changed, key, data):
                return False
            with self._lock:
                if self._whole.get(key) is data:
                    del self._whole[key]
        return True

    def _put_if_changed(self, key: str, data: bytes) -> None:
        if not self._store.create(key, data) and self._store.read(key) != data:
            self._store.replace_soon(key, data)

    def _write_out(self, folder: str, *, is_urgent: bool) -> bool:
        """Write what waits for one trial; return whether nothing is left to do for it."""
        with self._lock:
            file = self._files.get(folder)
            if file is None:
                return True
            is_urgent = is_urgent or file.is_over or file.cut is not None
            if not (is_urgent or self._store.is_due(file.size, file.waiting_bytes)):
                return True  # a later batch writes it
            batch, cut, size_bytes = file.waiting, file.cut, file.waiting_bytes
            file.waiting, file.cut, file.waiting_bytes = [], None, 0
        is_done = self._succeeds(self._write, folder, file, batch, cut)
        with self._lock:
            if is_done:
                self._rows -= len(batch)
            else:
                self._put_back(file, batch, cut)
                file.waiting_bytes += size_bytes
            if file.is_finished():
                self._files.pop(folder, None)
        return is_done

    def _put_back(self, file: FileState[P], batch: list[Record[P]], cut: int | None) -> None:
        """Queue a batch again; rows that were added meanwhile may replace some of it."""
        waiting = each_once([*batch, *file.waiting])
        waiting = waiting if file.cut is None else up_to(waiting, file.cut)
        self._rows -= len(batch) + len(file.waiting) - len(waiting)
        file.waiting, file.cut = waiting, earlier(file.cut, cut)

    def _write(
        self, folder: str, file: FileState[P], batch: list[Record[P]], cut: int | None
    ) -> None:
        if file.knowledge is Knowledge.NONE:
            self._correct(folder, file, batch, cut)
            return
        if file.size:
            batch = [record for record in batch if record.step is not None]
        first = first_step(batch)
        if first is not None and file.last is not None and first <= file.last:
            cut = earlier(cut, first - 1)
        head = self._format.grown(file.head, _payloads(batch))
        is_cut = cut is not None and file.last is not None and file.last > cut
        if is_cut or (head != file.head and file.size):
            self._correct(folder, file, batch, cut)
        elif batch:
            self._append(folder, file, batch, head)

    def _append(self, folder: str, file: FileState[P], batch: list[Record[P]], head: Any) -> None:
        data = b"".join([self._format.render(head, record.payload) for record in batch])
        if not file.size:
            data = self._format.opening(head) + data
        was_torn, file.is_torn = file.is_torn, True
        try:
            self._store.append(file.key, file.size, data, repair=was_torn)
        except FileChanged as error:
            was_certain = file.knowledge is Knowledge.CERTAIN
            file.forget_written()
            if was_certain:
                log.warning(
                    "%s; it is read again, and rows that it holds are not added", error.message
                )
            self._correct(folder, file, batch, None, keeps_stored=was_certain)
            return
        file.set_written(file.size + len(data), head, later(file.last, last_step(batch)))

    def _correct(
        self,
        folder: str,
        file: FileState[P],
        batch: list[Record[P]],
        cut: int | None,
        *,
        keeps_stored: bool = False,
    ) -> None:
        """Read the file and make it hold exactly the rows that it should.

        With `keeps_stored` its rows take precedence over those of the batch.
        """
        was_unread = file.knowledge is Knowledge.NONE
        if was_unread:
            file.key = self._find_key(folder)
        before = self._store.read(file.key)
        if before and cut == 0 and self._holds(before, batch):
            content: Content[P] = Content(self._format.grown(self._empty, _payloads(batch)), batch)
            records = batch
        else:
            content = self._format.load(before or b"")
            records = each_once(content.records)
            batch = [record for record in batch if record.step is not None or not records]
            last = last_step(records)
            if keeps_stored and last is not None:
                batch = [record for record in batch if record.step is None or record.step > last]
            records = records if cut is None else up_to(records, cut)
            records = each_once([*records, *batch])
        head = self._format.grown(content.head, _payloads(batch))
        data = dump(self._format, head, records) if before or records else b""
        if before is None or data != before:
            self._replace(folder, file, before, data)
        elif was_unread:
            self._store.adopt(file.key)
        file.set_written(len(data), head, last_step(records))

    def _holds(self, data: bytes, records: list[Record[P]]) -> bool:
        """Whether a file holds exactly these records, so that it need not be parsed."""
        head = self._format.grown(self._empty, _payloads(records))
        return data == dump(self._format, head, records)

    def _replace(self, folder: str, file: FileState[P], before: bytes | None, data: bytes) -> None:
        if before and not data.startswith(before):
            self._put(folder, file, data)
        elif data:  # the file only grows
            if before:
                self._store.adopt(file.key)
            end = len(before or b"")
            self._store.append(file.key, end, data[end:], repair=False)

    def _put(self, folder: str, file: FileState[P], data: bytes) -> None:
        before, key = file.key, file.key
        if self._names.are_numbered and self._store.names(folder) is not None:
            key = self._names.at(folder, self._names.number_in(before) + 1)
        self._store.replace(key, data)
        file.key = key
        if key != before:
            self._store.remove(before)

    # ------------------------------------------------------------------ names

    def _find_key(self, folder: str) -> str:
        """Return the key of the trial's file, which may not exist yet; remove those it replaced."""
        if not self._names.are_numbered:
            return self._names.first(folder)
        keys = [f"{folder}/{name}" for name in self._store.names(folder) or ()]
        numbered = sorted(filter(self._names.number_in, keys), key=self._names.number_in)
        for older in numbered[:-1]:  # a crash came between writing the next one and removing it
            self._store.remove(older)
        return numbered[-1] if numbered else self._names.first(folder)

    # ------------------------------------------------------------------ pieces

    def _succeeds(self, work: Callable[..., None], *args: Any) -> bool:
        """Call `work` and return whether it succeeded; of failures in a row one is logged."""
        try:
            work(*args)
        except HoldfastError as error:
            if not self._is_failing:
                log.warning("rows of %s wait in memory: %s", self._name, error)
        except Exception:  # rows must still be buffered and retried
            if not self._is_failing:
                log.exception("rows of %s wait in memory", self._name)
        else:
            return True
        self._is_failing = True
        return False

    def _forget_some(self) -> None:
        """Drop states of files without waiting rows, if there are very many."""
        with self._lock:
            idle = [folder for folder, file in self._files.items() if not file.needs_writing()]
            for folder in idle[: max(0, len(self._files) - STATES_MAX)]:
                del self._files[folder]


def _payloads(records: Iterable[Record[P]]) -> list[P]:
    return [record.payload for record in records]


def earlier(*steps: int | None) -> int | None:
    """Return the lowest step, None only if all are."""
    return min((step for step in steps if step is not None), default=None)


def later(*steps: int | None) -> int | None:
    """Return the highest step, None only if all are."""
    return max((step for step in steps if step is not None), default=None)
