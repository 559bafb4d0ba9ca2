"""Journals the events of a study: believed at once, durable soon."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from holdfast.control.record.open_run import OpenRun
from holdfast.control.study.archive import ArchiveWriter
from holdfast.control.study.plan import ResultFiles
from holdfast.core.study.events import STATE, StateTaken, StudyEvent, to_data
from holdfast.core.study.machine import Study
from holdfast.core.study.trial import Trial
from holdfast.errors import ConfigError, LeaseLost, StoreError
from holdfast.journal.journal import Ticket
from holdfast.storage.records import encode

log = logging.getLogger(__name__)

T = TypeVar("T")

STATE_AFTER = 1200  # events, at least; more if the state is long
PATIENCE = 2  # times as much may happen before a study waits for its files
ARCHIVE_AFTER = 250  # trials that are over
LINGER_S = 0.005  # that what happens waits for more of it to share a sync with


@dataclass(frozen=True, slots=True)
class _Draft:
    """A state that is not in the journal yet.

    Attributes:
        taken_at: The number of events between the state before and this one.
        probes: What says of each of the files whether all results by then are durable.
    """

    text: str
    taken_at: int
    probes: Sequence[Callable[[], bool] | None]

    def is_settled(self) -> bool:
        return all(probe is not None and probe() for probe in self.probes)


class StudyJournal:
    """Journals events, lets the study take them in, and keeps the journal short.

    Only a checkpoint waits for the journal: its number must be durable before its files are in
    place. All else that a crash costs is done again in the same way. A thread writes what has come
    together in a few milliseconds, because a sync of many events costs as much as of one; `settle`
    does not wait for that thread.
    """

    def __init__(self, run: OpenRun, study: Study, files: Sequence[ResultFiles] = ()) -> None:
        self._run, self._study, self._files = run, study, files
        self._last: Ticket | None = None
        self._since_state = 0
        self._state_after = STATE_AFTER
        self._draft: _Draft | None = None
        self._marks = itertools.count(1)
        self._archiving = ArchiveWriter(run.store, run.epoch)
        self._unarchived = 0  # trials that could not be archived, and wait for more to come
        self._wanted, self._closing = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._write, name="holdfast-study", daemon=True)
        self._thread.start()

    @property
    def has_lost_records(self) -> bool:
        """Whether records of an earlier driver are gone."""
        return self._run.has_lost_records

    def happen(self, event: StudyEvent) -> None:
        """Have the study take in an event that will be durable soon.

        Raises what closed the journal if it is closed: this study has taken in events that are not
        in it, and the next driver begins with what is.
        """
        self._run.lease.check_after_sleep()
        self._last = self._run.append(event.kind, to_data(event))
        self._since_state += 1
        self._study.take(event)

    def take_ended(self) -> list[Trial]:
        """Return the trials that are over since the last call."""
        ended, self._study.ended = self._study.ended, []
        return ended

    def push(self) -> None:
        """Have the events so far written soon, by the thread."""
        if not self._wanted.is_set():
            self._wanted.set()

    def settle(self) -> None:
        """Return once all events so far are durable; raise if they cannot be."""
        if self._last is not None:
            self._last.wait()
        self._run.journal.must_be_open()

    def check(self) -> None:
        """Raise `LeaseLost` if another driver has taken over."""
        self._run.lease.check()

    def _write(self) -> None:
        is_last = False
        while not is_last:
            self._wanted.wait()
            self._closing.wait(LINGER_S)
            self._wanted.clear()
            is_last = self._closing.is_set()
            try:
                self._run.journal.flush()
            except Exception as error:  # noqa: BLE001  # the next event raises it again
                log.debug("the journal is closed: %s", error)
                return

    def tidy(self) -> None:
        """Archive trials and write a state, if much has happened since the last one."""
        self._archive(waits=False)
        if self._draft is not None:
            self._go_on_with_state(self._draft)
        elif self._since_state >= self._state_after and not self._archiving.is_busy:
            self._begin_state()
        elif self._run.journal.wants_compaction():
            self._run.compact_soon()

    def _begin_state(self) -> None:
        """Take a state, to be written once all results before it are durable in files."""
        mark = f"{self._run.epoch}-{next(self._marks)}"
        text = self._state_text(mark)
        if text is not None:
            self.happen(StateTaken(mark))
            probes = [_survived(files.settle) for files in self._files]
            self._draft = _Draft(text, self._since_state, probes)
            self._go_on_with_state(self._draft)

    def _go_on_with_state(self, draft: _Draft) -> None:
        since = self._since_state - draft.taken_at
        if draft.is_settled():
            self._write_text(draft.text, since)
        elif since >= PATIENCE * self._state_after:  # or a slow disk would let it grow without end
            self.write_state()
        else:
            return
        # No more than this is ever read at once: a driver keeps the memory that took.
        self._run.journal.end_segment()
        self._run.compact_soon()

    def write_state(self) -> None:
        """Write a state, after which the journal can drop all events before it."""
        self._draft = None
        are_durable = [_survived(files.flush) for files in self._files]
        if not all(are_durable):  # the journal is all that has some results
            self._since_state = 0
            return
        self._archive(waits=True)  # a state without archived trials is short
        text = self._state_text()
        if text is not None:
            self._write_text(text, 0)

    def _state_text(self, mark: str | None = None) -> str | None:
        """Return the state as text; None if scheduler, searcher or stopper cannot give theirs."""
        try:
            state = self._study.get_state()
            text = encode({**state, "taken": mark})
        except Exception as error:
            if not self._study.made:  # it would fail every time
                raise
            # The events stay in the journal instead, and lead to the same study.
            self._study.judges.tell_failure("the state of the study", error, "is not written down")
            self._since_state = 0
            return None
        self._state_after = STATE_AFTER + 4 * (len(state["trials"]) + len(state["finished"]))
        return text

    def _write_text(self, text: str, since: int) -> None:
        self._last = self._run.journal.append_text(STATE, text, believed=True)
        self._draft, self._since_state = None, since

    def write_last_state(self) -> None:
        """Write a state, with all trials archived that are to be."""
        while self._archiving.is_busy or self._has_many_over():
            self._archive(waits=True)
        self.write_state()

    def _has_many_over(self) -> bool:
        return len(self._study.finished) >= self._unarchived + ARCHIVE_AFTER

    def _archive(self, *, waits: bool) -> None:
        """Archive trials that are over, if there are many."""
        if self._has_many_over() and not self._archiving.is_busy:
            over = list(self._study.finished.values())
            self._archiving.begin(len(self._study.archives), over)
        try:
            written = self._archiving.take(waits=waits)
        except LeaseLost:
            raise
        except (StoreError, ConfigError) as error:  # they stay in the journal: nothing is lost
            self._unarchived = len(self._study.finished)
            log.warning("trials that are over are not archived yet: %s", error)
            return
        if written is not None:
            self._unarchived = 0
            self.happen(written)

    def close(self) -> None:
        """Return once everything is durable; raise if it cannot be made so."""
        self._archiving.close()
        self._closing.set()
        self._wanted.set()
        self._thread.join()
        if self._run.lost is None:
            self.settle()


def _survived(call: Callable[[], T]) -> T | None:
    """Return what a method of `ResultFiles` returns, None if it raises."""
    try:
        return call()
    except Exception:
        name = type(getattr(call, "__self__", call)).__name__
        log.exception("%s failed; the study goes on, and its journal keeps the results", name)
        return None
