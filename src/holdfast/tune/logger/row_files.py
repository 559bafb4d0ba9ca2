"""The row files of a study: one of a kind for each trial, with every step in it once.

Rows are taken at once and written in batches; nothing is read or written while a row is taken. A
write that fails is tried again with the next batch, and its rows wait in memory until then.
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
STATES_MAX = 1024  # of trials that no row waits for; the others' files are read again if need be
WAITING_ROWS_MAX = 50_000


class FileNames:
    """Keys of the files of one kind.

    Args:
        name: Their name, unless there is `numbered`.
        numbered: Their name, with braces where the number is.
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
        """Return the key that has a number."""
        assert self._numbered is not None
        return f"{folder}/{self._numbered.format(number)}"

    def number_in(self, key: str) -> int:
        """Return the number in a key, 0 if it is of another kind."""
        match = self._pattern.fullmatch(key.rpartition("/")[2])
        return int(match[1]) if match else 0


class Knowledge(Enum):
    """How `size`, `head` and `last` of a `FileState` relate to the file."""

    NONE = auto()  # they say nothing: the file is read before a write
    ASSUMED = auto()  # they say that there is no file, because the trial is new
    CERTAIN = auto()  # they are what we read or wrote last


@dataclass(slots=True)
class FileState(Generic[P]):
    """One trial's file as it was left, and what waits to be written to it.

    Attributes:
        is_torn: Whether our own last write may have been cut short.
        cut: The last iteration that counts of what is in the file, None for all.
        waiting: Records to be added after that.
        waiting_bytes: About how many bytes they are.
        is_over: Whether the trial has ended, so that this can be forgotten.
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
        """Whether there is anything to do for it."""
        return bool(self.waiting) or self.cut is not None or self.is_over

    def is_finished(self) -> bool:
        """Whether it can be forgotten."""
        return self.is_over and not self.waiting and self.cut is None

    def set_written(self, size: int, head: Any, last: int | None) -> None:
        """Note what exactly is in the file."""
        self.size, self.head, self.last = size, head, last
        self.knowledge, self.is_torn = Knowledge.CERTAIN, False

    def forget_written(self) -> None:
        """Note that the file may have been written by others, and must be read."""
        self.knowledge, self.is_torn = Knowledge.NONE, False


class RowFiles(Generic[P]):
    """The files of all trials, named alike or, with `numbered`, after a name and a number.

    A numbered file is not written over: what takes its place has the next number, so that a reader
    that follows the old one notices. Any thread may call; only one writes at a time, and adding a
    row does not wait for it.

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
        self._lock = threading.Lock()  # guards what waits
        self._writing = files.lock  # guards files and what is known of them
        self._rows = self._dropped = 0
        self._is_failing = False

    # ------------------------------------------------------------------ taking rows

    def expect(self, folder: str, *, is_first: bool = False) -> None:
        """Assume that a new trial has no file yet, where that would need a listing."""
        if self._names.are_numbered and (is_first or not self._store.may_have(folder)):
            with self._lock:
                self._assume_absent(folder, self._file(folder))

    def knows(self, folder: str) -> bool:
        """Whether anything is in memory of a trial's file."""
        return folder in self._files

    def is_crowded(self) -> bool:
        """Whether so many rows wait that they should be written before more are added."""
        return self._rows >= WAITING_ROWS_MAX // 2 and not self._is_failing

    def add(self, folder: str, row: Mapping[str, Any]) -> None:
        """Take a row; one of a step that is there already takes its place and all after."""
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
        """Take a record that belongs to no iteration; it is written if the file is still empty."""
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
        """Return what is known of a trial's file; of a new one, what is most likely."""
        file = self._files.get(folder)
        if file is None:
            file = self._files[folder] = FileState()
            if not self._names.are_numbered:
                self._assume_absent(folder, file)
        return file

    def _assume_absent(self, folder: str, file: FileState[P]) -> None:
        """Assume that there is no file; if there is one, the first write finds out."""
        if file.knowledge is Knowledge.NONE:
            file.key = self._names.first(folder)
            file.head, file.knowledge = self._empty, Knowledge.ASSUMED

    def put_whole(self, key: str, data: bytes) -> None:
        """Take a whole file; the next batch writes it unless it is so already."""
        with self._lock:
            self._whole[key] = data

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

        If it has none at all, `first` comes before them, as with `add_first`. What is torn,
        damaged, or there twice is taken away too; nothing is written if the file is as it should
        be. Returns whether that went well; if not, or if it is not urgent, the next batch does it.
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
        """Write what waits; with `durable`, for good. Return whether all of it went well."""
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
                return True  # its time will come
            batch, cut, weight = file.waiting, file.cut, file.waiting_bytes
            file.waiting, file.cut, file.waiting_bytes = [], None, 0
        is_done = self._succeeds(self._write, folder, file, batch, cut)
        with self._lock:
            if is_done:
                self._rows -= len(batch)
            else:
                self._put_back(file, batch, cut)
                file.waiting_bytes += weight
            if file.is_finished():
                self._files.pop(folder, None)
        return is_done

    def _put_back(self, file: FileState[P], batch: list[Record[P]], cut: int | None) -> None:
        """Have a batch wait again; what has come meanwhile counts, and may take its place."""
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
                    "%s; it is read again, and rows that it has are not added", error.message
                )
            self._correct(folder, file, batch, None, is_theirs=was_certain)
            return
        file.set_written(file.size + len(data), head, later(file.last, last_step(batch)))

    def _correct(
        self,
        folder: str,
        file: FileState[P],
        batch: list[Record[P]],
        cut: int | None,
        *,
        is_theirs: bool = False,
    ) -> None:
        """Read the file, and make it hold what it should, and nothing else.

        With `is_theirs` the rows that it has win over those of the batch.
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
            if is_theirs and last is not None:
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
        """Whether a file has exactly these records, so that it need not be parsed."""
        head = self._format.grown(self._empty, _payloads(records))
        return data == dump(self._format, head, records)

    def _replace(self, folder: str, file: FileState[P], before: bytes | None, data: bytes) -> None:
        if before and not data.startswith(before):
            self._put(folder, file, data)
        elif data:  # what is there stays as it is
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
        """Return where the trial's file is, or is to be; what an earlier one left is removed."""
        if not self._names.are_numbered:
            return self._names.first(folder)
        keys = [f"{folder}/{name}" for name in self._store.names(folder) or ()]
        numbered = sorted(filter(self._names.number_in, keys), key=self._names.number_in)
        for older in numbered[:-1]:  # a crash came between putting the next one and removing it
            self._store.remove(older)
        return numbered[-1] if numbered else self._names.first(folder)

    # ------------------------------------------------------------------ pieces

    def _succeeds(self, work: Callable[..., None], *args: Any) -> bool:
        """Do some work; an error is logged once for each time that writing begins to fail."""
        try:
            work(*args)
        except HoldfastError as error:
            if not self._is_failing:
                log.warning("rows of %s wait in memory: %s", self._name, error)
        except Exception:  # whatever it is, rows must go on being taken and tried
            if not self._is_failing:
                log.exception("rows of %s wait in memory", self._name)
        else:
            return True
        self._is_failing = True
        return False

    def _forget_some(self) -> None:
        """Forget the states of files that no row waits for, if there are very many."""
        with self._lock:
            idle = [folder for folder, file in self._files.items() if not file.needs_writing()]
            for folder in idle[: max(0, len(self._files) - STATES_MAX)]:
                del self._files[folder]


def _payloads(records: Iterable[Record[P]]) -> list[P]:
    return [record.payload for record in records]


def earlier(step: int | None, other: int | None) -> int | None:
    """Return the lower of two steps, None only if both are."""
    return min((each for each in (step, other) if each is not None), default=None)


def later(step: int | None, other: int | None) -> int | None:
    """Return the higher of two steps, None only if both are."""
    return max((each for each in (step, other) if each is not None), default=None)
