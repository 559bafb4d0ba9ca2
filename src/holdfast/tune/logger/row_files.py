"""The files of one kind, one for each trial of a study, in which every step stands once.

Rows are taken at once and written in batches; nothing is read or written while a row is taken. A
write that fails is tried again with the next batch, and its rows wait in memory until then.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from holdfast.errors import HoldfastError
from holdfast.tune.logger.file_names import FileNames
from holdfast.tune.logger.file_state import FileState, earlier, first_step, later, reaches
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
from holdfast.tune.logger.growing_files import Changed, Shelf

log = logging.getLogger(__name__)

P = TypeVar("P")
STATES_MAX = 1024  # of trials that nothing waits for; the others' files are read again if need be
WAITING_ROWS_MAX = 50_000


class RowFiles(Generic[P]):
    """The files of all trials, named alike or, with `numbered`, after a name and a number.

    A numbered file is not written over: what takes its place has the next number, so that a reader
    that follows the old one notices. Any thread may call; only one writes at a time, and nobody who
    adds a row waits for it.

    Attributes:
        fence: Raises if these are the files of another driver's study by now; asked before writing.
    """

    def __init__(
        self, shelf: Shelf, format_: Format[P], name: str, *, numbered: str | None = None
    ) -> None:
        self._shelf, self._format, self._name = shelf, format_, name
        self.fence: Callable[[], None] = lambda: None
        self._names = FileNames(name, numbered)
        self._empty = format_.load(b"").head
        self._files: dict[str, FileState[P]] = {}
        self._beside: dict[str, bytes] = {}
        self._lock = threading.Lock()  # of what waits
        self._writing = shelf.lock  # of files, and of what is known of them
        self._rows = self._dropped = 0
        self._is_failing = False

    # ------------------------------------------------------------------ taking rows

    def expect(self, folder: str, *, is_first: bool = False) -> None:
        """Take it that a new trial has no file yet, if names alone would not tell."""
        if self._names.are_numbered and (is_first or not self._shelf.may_have(folder)):
            with self._lock:
                self._guess(folder, self._file(folder))

    def knows(self, folder: str) -> bool:
        """Whether anything is in memory of a trial's file."""
        return folder in self._files

    def is_crowded(self) -> bool:
        """Whether so many rows wait that whoever adds some should rather have them written."""
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
        """Take something that belongs to no iteration; it is written if the file is empty yet."""
        with self._lock:
            file = self._file(folder)
            if not file.waiting and not file.size:
                self._wait(file, Record(None, payload))

    def __len__(self) -> int:
        """Return of how many trials something is in memory."""
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
                self._guess(folder, file)
        return file

    def _guess(self, folder: str, file: FileState[P]) -> None:
        """Take it that there is no file; if there is one, that is found out with a write."""
        if not file.is_loaded:
            file.key = self._names.first(folder)
            file.head, file.is_loaded, file.is_guess = self._empty, True, True

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
            file.cut = earlier(file.cut, step)
            file.is_loaded = file.is_loaded and not file.is_guess
            self._keep_waiting(file, up_to(file.waiting, step))
        with self._writing:
            return self._write_out(folder, is_pressed=True)

    def reconcile(
        self,
        folder: str,
        rows: Iterable[Mapping[str, Any]],
        *,
        first: P | None = None,
        is_pressed: bool = True,
    ) -> bool:
        """Make the file hold the rows it has up to the first of `rows`, and then these.

        If it has none at all, `first` comes before them, as with `add_first`. What is torn,
        damaged, or there twice is taken away too; nothing is written if the file is as it should
        be. Returns whether that went well; if not, or if it is not pressed, the next batch does it.
        """
        records = each_once([record_of(self._format, row) for row in rows])
        begin = first_step(records)
        if first is not None and records:
            records = [Record(None, first), *records]
        with self._lock:
            file = self._file(folder)
            self._keep_waiting(file, [])
            file.waiting_bytes = 0
            file.is_unknown()
            file.cut = None if begin is None else begin - 1
            for one in records:
                self._wait(file, one)
        if not is_pressed:
            return not file.needs_writing()
        with self._writing:
            return self._write_out(folder, is_pressed=True)

    # ------------------------------------------------------------------ writing

    def flush(self, *, durable: bool) -> bool:
        """Write what waits; with `durable`, for good. Return whether all of it went well."""
        with self._writing:
            if not self._tried(self.fence):
                return False
            with self._lock:
                folders = [folder for folder, file in self._files.items() if file.needs_writing()]
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
            if not self._tried(self._put_beside, key, data):
                return False
            with self._lock:
                if self._beside.get(key) is data:
                    del self._beside[key]
        return True

    def _put_beside(self, key: str, data: bytes) -> None:
        if not self._shelf.create(key, data) and self._shelf.read(key) != data:
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
        is_done = self._tried(self._write, folder, file, batch, cut)
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
        kept = each_once([*batch, *file.waiting])
        kept = kept if file.cut is None else up_to(kept, file.cut)
        self._rows -= len(batch) + len(file.waiting) - len(kept)
        file.waiting, file.cut = kept, earlier(file.cut, cut)

    def _write(
        self, folder: str, file: FileState[P], batch: list[Record[P]], cut: int | None
    ) -> None:
        if not file.is_loaded:
            self._settle(folder, file, batch, cut)
            return
        if file.size:
            batch = [one for one in batch if one.step is not None]
        first = first_step(batch)
        if first is not None and file.last is not None and first <= file.last:
            cut = earlier(cut, first - 1)
        head = self._format.grown(file.head, [one.payload for one in batch])
        is_cut = cut is not None and file.last is not None and file.last > cut
        if is_cut or (head != file.head and file.size):
            self._settle(folder, file, batch, cut)
        elif batch:
            self._append(folder, file, batch, head)

    def _append(self, folder: str, file: FileState[P], batch: list[Record[P]], head: Any) -> None:
        data = b"".join([self._format.render(head, one.payload) for one in batch])
        if not file.size:
            data = self._format.opening(head) + data
        was_torn, file.is_torn = file.is_torn, True
        try:
            self._shelf.append(file.key, file.size, data, repair=was_torn)
        except Changed as error:
            was_guess = file.is_guess
            file.is_unknown()
            if not was_guess:
                log.warning(
                    "%s; it is read again, and rows that it has are not added", error.message
                )
            self._settle(folder, file, batch, None, is_theirs=not was_guess)
            return
        file.is_torn = file.is_guess = False
        file.size += len(data)
        file.head, file.last = head, later(file.last, last_step(batch))

    def _settle(
        self,
        folder: str,
        file: FileState[P],
        batch: list[Record[P]],
        cut: int | None,
        *,
        is_theirs: bool = False,
    ) -> None:
        """Read the file, and have it hold what it should.

        What is not as it should be is put right; `is_theirs` says that the rows it has count.
        """
        if not file.is_loaded:
            file.key = self._find_key(folder)
        before = self._shelf.read(file.key)
        if before and cut == 0 and self._holds(before, batch):
            content: Content[P] = Content(self._format.grown(self._empty, _payloads(batch)), batch)
            records = batch
        else:
            content = self._format.load(before or b"")
            records = each_once(content.records)
            batch = [one for one in batch if one.step is not None or not records]
            last = last_step(records)
            if is_theirs and last is not None:
                batch = [one for one in batch if one.step is None or one.step > last]
            records = records if cut is None else up_to(records, cut)
            records = each_once([*records, *batch])
        head = self._format.grown(content.head, _payloads(batch))
        data = dump(self._format, head, records) if before or records else b""
        if before is None or data != before:
            self._replace(folder, file, before, data)
        elif not file.is_loaded:
            self._shelf.adopt(file.key)
        file.is_now(data, head, last_step(records))

    def _holds(self, data: bytes, records: list[Record[P]]) -> bool:
        """Whether a file has nothing but these records: they need not be looked for then."""
        head = self._format.grown(self._empty, _payloads(records))
        return data == dump(self._format, head, records)

    def _replace(self, folder: str, file: FileState[P], before: bytes | None, data: bytes) -> None:
        if before and not data.startswith(before):
            self._put(folder, file, data)
        elif data:  # what is there stays as it is
            if before:
                self._shelf.adopt(file.key)
            end = len(before or b"")
            self._shelf.append(file.key, end, data[end:], repair=False)

    def _put(self, folder: str, file: FileState[P], data: bytes) -> None:
        before, key = file.key, file.key
        if self._names.are_numbered and self._shelf.names(folder) is not None:
            key = self._names.at(folder, self._names.number_in(before) + 1)
        self._shelf.replace(key, data)
        file.key = key
        if key != before:
            self._shelf.remove(before)

    # ------------------------------------------------------------------ names

    def _find_key(self, folder: str) -> str:
        """Return where the trial's file is, or is to be; what an earlier one left is removed."""
        if not self._names.are_numbered:
            return self._names.first(folder)
        keys = [f"{folder}/{name}" for name in self._shelf.names(folder) or ()]
        found = sorted(filter(self._names.number_in, keys), key=self._names.number_in)
        for older in found[:-1]:  # a crash came between putting the next one and removing it
            self._shelf.remove(older)
        return found[-1] if found else self._names.first(folder)

    # ------------------------------------------------------------------ pieces

    def _tried(self, work: Callable[..., None], *args: Any) -> bool:
        try:
            work(*args)
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
            idle = [folder for folder, file in self._files.items() if not file.needs_writing()]
            for folder in idle[: max(0, len(self._files) - STATES_MAX)]:
                del self._files[folder]


def _payloads(records: Iterable[Record[P]]) -> list[P]:
    return [one.payload for one in records]
