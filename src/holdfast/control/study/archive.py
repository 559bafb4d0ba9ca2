"""The archive of a study: trials that are over, moved out of the journal.

    .holdfast/trials/{epoch}-{n}.jsonl      a part: a sealed line for each trial

A state of the study is one record; with an archive it stays small however many trials there were.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from holdfast.control.record.shapes import problem_with_trial
from holdfast.core.quantities import counted
from holdfast.core.study.events import TrialsArchived
from holdfast.core.study.trial import Trial
from holdfast.errors import Damaged, ObjectMissing
from holdfast.storage.base import Store
from holdfast.storage.records import is_whole, salvage, seal, unseal

ARCHIVE = ".holdfast/trials"


def write_archive(store: Store, epoch: int, number: int, trials: Iterable[Trial]) -> str:
    """Write a part of the archive and return its key.

    The epoch is in the key, so that a driver that was replaced cannot overwrite its successor's.
    """
    key = f"{ARCHIVE}/{epoch:06d}-{number:06d}.jsonl"
    store.put(key, b"".join(seal(trial.to_data()) + b"\n" for trial in trials))
    return key


class ArchiveWriter:
    """Writes parts of the archive in a thread, one at a time."""

    def __init__(self, store: Store, epoch: int) -> None:
        self._store, self._epoch = store, epoch
        self._pool: ThreadPoolExecutor | None = None
        self._writing: Future[str] | None = None
        self._ids: list[str] = []

    @property
    def is_busy(self) -> bool:
        """Whether a part was begun whose end `take` has not returned yet."""
        return self._writing is not None

    def begin(self, number: int, trials: Sequence[Trial]) -> None:
        """Begin to write trials, which do not change any more."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="holdfast-archive")
        self._ids = [trial.trial_id for trial in trials]
        self._writing = self._pool.submit(write_archive, self._store, self._epoch, number, trials)

    def take(self, *, waits: bool) -> TrialsArchived | None:
        """Return the event of a part that has become durable, once; None before.

        Raises what kept the part from being written.
        """
        if self._writing is None or not (waits or self._writing.done()):
            return None
        writing, self._writing = self._writing, None
        return TrialsArchived(writing.result(), self._ids)

    def close(self) -> None:
        """Return once nothing is being written."""
        if self._pool is not None:
            self._pool.shutdown()


def archived_trials(
    store: Store,
    archives: Sequence[tuple[str, int]],
    damage: dict[str, list[str]],
    trial_type: type[Trial] = Trial,
) -> Iterator[Trial]:
    """Yield the trials of all parts of the archive, the newest part first.

    Damaged lines are passed over and noted in `damage`, by the key of their part. Raises
    `StoreError` if a part cannot be read: that is no damage.
    """
    for key, count in reversed(archives):
        trials, problems = _read_part(store, key, count, trial_type)
        if problems:
            damage[key] = problems
        yield from reversed(trials)


def _read_part(
    store: Store, key: str, count: int, trial_type: type[Trial]
) -> tuple[list[Trial], list[str]]:
    """Return the trials of a part, and what is wrong with it."""
    trials, problems = [], []
    try:
        lines = store.get(key).data.splitlines()
    except ObjectMissing:
        return [], [f"it is missing, and with it {counted(count, 'finished trial')}"]
    for number, line in enumerate(lines, start=1):
        records = [line] if is_whole(line) else salvage(line)  # the newline before it may be gone
        if records != [line]:
            problems.append(f"line {number}: the record does not match its checksum")
        for record in records:
            try:
                data = unseal(record)
                if (problem := problem_with_trial(data)) is not None:
                    raise Damaged(problem)
                trials.append(trial_type.from_data(data))
            except (Damaged, AttributeError, LookupError, TypeError, ValueError) as error:
                problems.append(f"line {number}: {error}")
    if len(trials) < count:
        problems.append(f"{count - len(trials)} of its {count} trials cannot be read")
    return trials, problems
